# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the page shows, made by a simulated operation and an invented federation."""

from collections.abc import Iterator
from functools import cache
import io
from typing import Any

from fdrl_ros.surgery.arm.mount import Mount
from fdrl_ros.surgery.gym.state import PATIENT_FIELDS, STATE_FIELDS
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.render.endoscope import Endoscope
from fdrl_ros.surgery.render.view import view_of
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.controller import controller
import numpy as np

TICK = 0.2  # s; slower than real, so that what changes can be seen
JOINTS = 'yaw', 'pitch', 'insertion', 'roll', 'wrist_pitch', 'wrist_yaw'
CSRF = 'a token against forgery'
ROOM = (
    *('take_over', 'hand_back', 'lock', 'unlock', 'veto', 'allow', 'pin', 'unpin', 'enable'),
    *('disable', 'pause_arm', 'resume_arm', 'home', 'stop_operation'),
)
FEDERATION = 'pause', 'resume', 'stop', 'withdraw', 'admit', 'forgive', 'roll_back'
CALMING = 'take_over', 'lock', 'veto', 'pause_arm', 'disable', 'stop_operation', 'pause', 'stop'
NOTE = 'A browser is no emergency stop.'
PROCEDURES = 'palpation', 'incision', 'peg_transfer', 'needle_pass'
CHOICES = (  # until which tick: who acts, why, whether the shield intervenes
    (60, 'global', 'best', ''),
    (95, 'home', 'best', ''),
    (100, 'home', 'kept', 'force'),
    (140, 'home', 'kept', ''),
    (185, 'hold', 'risk_gate', ''),
    (240, 'hospital_2', 'best', ''),
    (300, 'home', 'locked', ''),
)


def policy(name: str, round: int, success: float | None, **more: Any) -> dict[str, Any]:
    """Return a policy of a robot as the page gets it."""
    value = {
        **{'name': name, 'round': round, 'status': 'candidate', 'reason': '', 'pinned': False},
        **{'success_share': success, 'mean_return': 4.2, 'hold_return': -1.5, 'value_noise': 0.8},
    }
    return value | more


POLICIES = [
    policy('home', 6, 0.94, mean_return=5.6),
    policy('global', 6, 0.91, mean_return=5.1, pinned=True),
    policy('hospital_2', 6, 0.83),
    policy('hospital_3', 5, 0.41, status='refused', reason='too much force on public states'),
    policy('hospital_1', 6, None, status='valuing', mean_return=None),
]


def _chosen(tick: int) -> tuple[str, str, str]:
    for until, *choice in CHOICES:
        if tick % CHOICES[-1][0] < until:
            return choice[0], choice[1], choice[2]
    raise AssertionError(tick)


def frames(ticks: int) -> Iterator[dict[str, Any]]:
    """Yield states of a robot as the page gets them, 5 a second, of several operations."""
    settings = WorldSettings(mode='kinematic')
    env = SurgeryEnv(settings=settings)
    cohort = public_cohort(7, 0.5, PROCEDURES)
    names = [each.name for each in STATE_FIELDS]
    rng, tick, number = np.random.default_rng(1), 0, 0
    timeline: list[list[Any]] = []
    outcome = None
    while tick < ticks:
        case = cohort.patient(number, procedure=PROCEDURES[number % len(PROCEDURES)])
        number += 1
        state, info = env.reset(options={'patient': case})
        over, done = False, 0
        while not over and tick < ticks:
            state, _, ended, cut, info = env.step(controller(state)[0])
            over, done, tick = ended or cut, done + 1, tick + 1
            operation = env.operation
            values = dict(zip(names, operation.values(), strict=True))
            policy, reason, veto = _chosen(tick)
            if not timeline or timeline[-1][1:] != [policy, reason, veto]:
                timeline.append([100.0 + TICK * tick, policy, reason, veto])
            held = policy == 'hold'
            force, limit = operation.measured_force, values['force_limit']
            yield {
                'stamp': 100.0 + TICK * tick,
                'received': None,
                'age': 0.02,
                'operating': True,
                'selector_silent': 0.02,
                'joints': {
                    **dict(zip(JOINTS, operation.arm.joints().tolist(), strict=True)),
                    'jaw': operation.jaw.angle,
                },
                'tip': list(operation.arm.position),
                'setpoint': list(operation.setpoint),
                'waypoint': list(operation.waypoint),
                'force': force,
                'force_vector': list(operation.force),
                'force_limit': limit,
                'procedure': case.procedure.name,
                'patient': case.name.rpartition('/')[2],
                'progress': values['done'],
                'time_left': values['time_left'],
                'jaw': values['jaw'],
                'surface': values['surface'],
                'vitals': {each.name: values[each.name] for each in PATIENT_FIELDS},
                'choice': {
                    'policy': policy,
                    'action': -1 if held else 3,
                    'value': None if held else 5.0 + np.sin(tick / 40) + 0.1 * rng.normal(),
                    'uncertainty': None if held else 0.5 + 0.2 * np.cos(tick / 60),
                    'expected_risk': 0.04,
                    'reason': reason,
                    'veto': veto,
                    'predicted_force': force + 0.3,
                },
                'risk': {
                    **{'risk': min(1.0, 0.4 * force / limit), 'force': force / 10.0},
                    **{'damage': 0.01, 'critical': 0.0, 'mitigation': 0.93},
                    'case_mitigation': 0.95,
                },
                'driver': 'selector',
                'armed': True,
                'locked': 'home' if reason == 'locked' else '',
                'vetoed': ['hospital_3'],
                'arm_state': 'ENABLED',
                'homed': True,
                'policies': POLICIES,
                'visibility': {'seen': True, 'reason': '', 'share': [0.82, 0.11, 0.04, 0.03]},
                'outcome': outcome,
                'picture': True,
                'overlay': True,
                'timeline': [list(each) for each in timeline[-200:]],
            }
        outcome = {
            **{'procedure': case.procedure.name, 'patient': 'p', 'success': bool(info['success'])},
            **{'failure': info['failure'], 'peak_force': info['greatest_force']},
        }
    env.close()


@cache
def pictures(count: int = 3) -> list[bytes]:
    """Return JPEGs of the endoscope during an operation."""
    from PIL import Image

    env = SurgeryEnv(settings=WorldSettings(mode='kinematic'))
    case = public_cohort(7, 0.5, ('incision',)).patient(1)
    state, _ = env.reset(options={'patient': case})
    endoscope, found = Endoscope(), []
    for number in range(6 * count):
        state = env.step(controller(state)[0])[0]
        if number % 6 == 5:
            operation = env.operation
            joints = operation.arm.joints().tolist()
            frame = endoscope.capture(joints, operation.jaw.angle, view_of(operation))
            file = io.BytesIO()
            Image.fromarray(frame.rgb).save(file, 'JPEG', quality=85)
            found.append(file.getvalue())
    env.close()
    return found


def urdf() -> str:
    """Return the description of arm and patient."""
    return Mount().urdf()


def hospital(**more: Any) -> dict[str, Any]:
    """Return a hospital as the page gets it."""
    value = {
        **{'stage': 'training', 'step': 120, 'steps': 300, 'round': 6, 'epsilon': 5.2},
        **{'budget': 8.0, 'delta': 1e-4, 'unit': 'patient', 'secure': True, 'pays_for': 2},
        'alive': True,
    }
    return value | more


def federation(now: float) -> dict[str, Any]:
    """Return a federation as the page gets it."""
    procedures = 'reach', 'palpation', 'incision', 'needle_pass', 'retraction'
    success = [
        {
            'round': round,
            'policy': 'global',
            'success': 0.35 + 0.09 * round,
            'procedures': {
                name: min(0.98, 0.25 + 0.07 * place + (0.12 - 0.015 * place) * round)
                for place, name in enumerate(procedures)
            },
        }
        for round in range(6)
    ]
    return {
        **{'namespace': '/federation', 'round': 6, 'rounds': 8, 'attempt': 2},
        **{'phase': 'TRAIN', 'reason': '', 'time_left': 48.0, 'age': 0.2},
        'members': ['hospital_1', 'hospital_2', 'hospital_4'],
        'survivors': ['hospital_1'],
        'missing': {'hospital_3': 'its privacy budget does not pay for the round'},
        'refusals': [[now - 300.0, 'update of hospital_3: signature of another round']],
        'blames': [[now - 900.0, 'hospital_5', 'parcel']],
        'roll_backs': [[now - 600.0, 'round 4 was rolled back: success fell from 0.71 to 0.52']],
        'hospitals': {
            'hospital_1': hospital(stage='sending', step=300, epsilon=4.1, pays_for=3),
            'hospital_2': hospital(),
            'hospital_3': hospital(stage='waiting', epsilon=7.9, pays_for=0),
            'hospital_4': hospital(step=60, epsilon=6.8, pays_for=1),
            'hospital_5': hospital(stage=None, alive=False, epsilon=None, pays_for=None),
        },
        'success': success,
    }
