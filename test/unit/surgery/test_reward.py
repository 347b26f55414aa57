# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""An operation against a slow judgement by hand, sub-step by sub-step, and what loads do to it."""

import copy
import dataclasses
import math

from fdrl_ros.surgery.arm.kinematics import forward_kinematics
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.patient.physiology import Physiology
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
import numpy as np
import pytest

# No two rewards are alike, so none can stand in for another.
SETTINGS = WorldSettings(
    mode='kinematic', hold_reward=3.0, success_reward=7.0, failure_penalty=11.0
)
DYNAMIC = dataclasses.replace(SETTINGS, mode='dynamic')
TICK = 12 / 240
NEAR = 0.0006
JAW_COST = 0.0025
SAID_BY_OUTCOME = ('reward', 'peak_force', 'mean_force', 'damage', 'critical')
SAID_BY_OPERATION = ('force_rate', 'time_above', 'force', 'load')


def patient_for(procedure, index=0, **changes):
    """Return a patient of a hospital that weighs force twice and time half, who never coughs."""
    found = Cohort(1, 3, 0.5, 11, procedures=PROCEDURE_NAMES).patient(index, procedure=procedure)
    events = tuple(each for each in found.events if each.kind != 'breathing')
    changes = {'events': events, 'force_emphasis': 2.0, 'time_emphasis': 0.5, **changes}
    return dataclasses.replace(found, **changes)


def impossible(patient, **changes):
    """Return a patient who is refused otherwise: one with the tip in the organ at the start."""
    made = copy.copy(patient)
    for name, value in changes.items():
        object.__setattr__(made, name, value)
    return made


class Judgement:
    """One patient and one exact arm, as docs/world.md has them, from numbers alone."""

    def __init__(self, patient):
        self.patient, self.procedure = patient, patient.procedure
        self.substeps = self.ticks = 0
        self.target = self.setpoint = self.tip = np.array(patient.start)
        self.force, self.load, self.damage = np.zeros(3), 0.0, 0.0
        self.time_above = [0.0, 0.0, 0.0]
        self.angle = self.jaw = self.jaw_before = self.jaw_target = 0.0
        self.done, self.held, self.grasped = 0.0, 0.0, False
        self.body = Physiology(patient)
        modulus, nu = patient.young_modulus, constant('tissue.poisson_ratio')
        radius = patient.procedure.contact_radius
        self.hertz = 4 * modulus * math.sqrt(radius) / (3 * (1 - nu**2))
        self.goal = np.array(patient.goal)
        if patient.procedure.name == 'peg_transfer':
            up = np.array([0.0, 0.0, constant('peg_transfer.height')])
            self.pegs = self.goal + up, np.array(patient.destination) + up
            self.top = self.pegs[0][2] + constant('peg_transfer.peg')
        self.cost = self.remaining()

    def surface(self, time):
        """Return height and upward speed of the untouched surface."""
        patient = self.patient
        rate = 2 * math.pi * patient.respiratory_rate / 60
        angle = rate * time + patient.breathing_phase
        rest = patient.goal[2] + patient.registration_error
        swing = patient.breathing_amplitude
        return rest + swing * math.sin(angle), swing * rate * math.cos(angle)

    def pull(self):
        """Return the force of the nearer peg on a ring that the jaw holds, x and y."""
        if not (self.procedure.name == 'peg_transfer' and self.grasped and self.tip[2] < self.top):
            return np.zeros(2)
        away = min((self.tip[:2] - peg[:2] for peg in self.pegs), key=np.linalg.norm)
        distance = np.linalg.norm(away) + 1e-12
        beyond = max(0.0, distance - constant('peg_transfer.play'))
        return -constant('peg_transfer.spring') * beyond * away / distance

    def substep(self):
        """Let 1/240 s pass; return the load and the tissue's part of it."""
        patient = self.patient
        self.substeps += 1
        way = self.target - self.setpoint
        length, stride = np.linalg.norm(way), 0.050 / 240
        self.setpoint = self.setpoint + way * (stride / max(length, stride))
        moved = (self.setpoint - self.tip) * (1 - math.exp(-1 / 240 / patient.servo_lag))
        self.tip, (slip_x, slip_y, rise) = self.tip + moved, moved * 240
        height, swell = self.surface(self.substeps / 240)
        depth, normal = height - self.tip[2], 0.0
        if depth > 0:
            deeper = swell - rise
            normal = max(0.0, self.hertz * depth**1.5 * (1 + patient.damping * deeper))
        slip = math.sqrt(slip_x**2 + slip_y**2 + constant('tissue.slip_speed') ** 2)
        drag = patient.friction * normal / slip
        pull = self.pull()
        self.force = np.array([pull[0] - drag * slip_x, pull[1] - drag * slip_y, normal])
        self.load = normal + math.hypot(*pull)
        return self.load, normal

    def progress(self):
        """Bring what is done up to date; say how it was lost, if it was."""
        return getattr(self, self.procedure.name)()

    def palpation(self):
        held = abs(self.force[2] - self.procedure.target_force) <= self.procedure.tolerance
        held &= max(abs(self.tip - self.goal)[:2]) <= constant('workspace.lateral_tolerance')
        self.held = self.held + TICK if held else 0.0
        self.done = min(1.0, self.held / self.procedure.hold_time)
        self.done = 1.0 if self.done > 1 - 1e-9 else self.done
        return ''

    def along(self, point):
        """Return how far along and beside the line of a cut a point is, and its length."""
        line = np.array(self.patient.destination) - self.goal
        length = np.linalg.norm(line[:2])
        unit, off = line[:2] / length, point[:2] - self.goal[:2]
        return off @ unit, abs(off[0] * unit[1] - off[1] * unit[0]), length

    def incision(self):
        along, beside, length = self.along(self.tip)
        depth = self.surface(self.substeps / 240)[0] - self.tip[2]
        right = abs(depth - constant('incision.depth')) <= constant('incision.depth_tolerance')
        right &= beside <= constant('incision.line_tolerance')
        if right and 0 < along - self.done * length <= constant('incision.bite'):
            self.done = min(1.0, along / length)
        return 'depth' if depth > constant('incision.depth_limit') else ''

    def peg_transfer(self):
        from_pick, from_place = (max(abs(self.tip - peg)) for peg in self.pegs)
        before, self.jaw_before = self.jaw_before, self.jaw
        if self.grasped and self.jaw > 0.5:
            self.grasped = False
            if from_place > constant('peg_transfer.place_tolerance'):
                return 'drop'
            self.done = 1.0
        elif not self.grasped and self.jaw < 0.5 <= before:
            self.grasped = bool(from_pick <= constant('peg_transfer.pick_tolerance'))
            self.done = 0.5 if self.grasped else 0.0
        return ''

    def remaining(self):
        """Return the cost that is left, metres."""
        name = self.procedure.name
        surface = self.surface(self.substeps / 240 + self.patient.servo_lag)[0]
        if name == 'palpation':
            wanted = (self.procedure.target_force / self.hertz) ** (2 / 3)
            return sum(abs(self.target - self.goal)[:2]) + abs(surface - self.target[2] - wanted)
        if name == 'incision':
            along, beside, length = self.along(self.target)
            lead = along - self.done * length
            deep, hover = constant('incision.depth'), constant('incision.hover')
            above = self.target[2] - surface
            off = max(0.0, abs(above - hover) - 0.002) + hover + deep + 0.002
            cuts = beside <= constant('incision.line_tolerance')
            if cuts and abs(lead) <= constant('incision.bite'):
                off = abs(above + deep)
            return (
                max(0.0, length + 0.001 - along)
                + 3 * max(0.0, beside - 0.0004)
                + 3 * max(0.0, lead - 0.0015)
                + 2 * off
            )
        pick, place = self.pegs
        told = 1 if self.jaw_target > 0.4 else 0
        if self.done == 1.0:
            return 0.0
        if self.grasped:
            there = 1 if max(abs(self.target - place)) <= NEAR else 0
            return self.carrying(self.target) + JAW_COST * (1 - there + abs(told - there))
        closing = told == 0 and self.jaw >= 0.5
        ready = max(abs(self.target - pick)) <= NEAR and (self.jaw >= 0.8 or closing)
        wrong = told if ready else 1 + (1 - told)
        return sum(abs(self.target - pick)) + self.carrying(pick) + JAW_COST * (wrong + 2)

    def carrying(self, point):
        """Return the way of a ring up, over and down to the second peg."""
        place = self.pegs[1]
        clear = self.top + constant('peg_transfer.clearance')
        x, y, z = abs(point - place).tolist()
        if max(x, y) <= NEAR:
            return x + y + z
        to_lift = clear - point[2]
        return x + y + (2 * to_lift if to_lift > 0 else -to_lift) + clear - place[2]

    def tick(self, action):
        """Carry out an action for 12 sub-steps and judge them; return all numbers by name."""
        procedure = self.procedure
        self.target = self.target + np.array(ACTIONS[action].displacement)
        if procedure.name == 'peg_transfer' and ACTIONS[action].jaw is not None:
            self.jaw_target = 0.8 * ACTIONS[action].jaw
        load_before, done_before, cost_before = self.load, self.done, self.cost
        loads, normals = zip(*(self.substep() for _ in range(12)), strict=True)
        bruise = sum(max(0.0, each - procedure.warn_force) for each in normals) / 240
        self.damage += bruise
        for index, level in enumerate((0.8, 3.4, 6.5)):
            self.time_above[index] += sum(each > level for each in loads) / 240
        self.angle += min(0.2, max(-0.2, self.jaw_target - self.angle))
        self.jaw = self.angle / 0.8
        self.ticks += 1
        self.body.advance(TICK, normals[-1], bruise)
        off, lost = self.tip - self.goal, self.progress()
        breach = max(abs(off[:2])) > 0.040 or off[2] > 0.045 or -off[2] > self.patient.thickness
        faint = self.body.low_time >= 60.0
        rules = {
            'force': max(loads) > procedure.force_limit,
            'workspace': breach,
            lost: lost != '',
            'vitals': faint,
            'success': self.done == 1.0,
            'time': self.ticks >= procedure.horizon,
        }
        ending = next((name for name, holds in rules.items() if holds), '')
        self.cost = self.remaining()
        over = max(0.0, self.load - procedure.warn_force) / procedure.force_limit
        if procedure.name == 'palpation':
            most = procedure.target_force + procedure.tolerance
            over = max(0.0, self.load - most) / procedure.target_force
        reward = 250.0 * (cost_before - self.cost) + 3.0 * (self.done - done_before)
        reward -= 0.5 * 2.0 * over + 0.05 * 0.5
        reward += {'': 0.0, 'time': 0.0, 'success': 7.0}.get(ending, -11.0 * 2.0)
        return {
            'reward': reward,
            'peak_force': max(loads),
            'mean_force': sum(loads) / 12,
            'damage': self.damage,
            'force_rate': (self.load - load_before) / TICK,
            'time_above': self.time_above,
            'force': self.force,
            'load': self.load,
            'tip': self.tip,
            'done': self.done,
            'vitals': self.body.values(),
            'blood_loss': self.body.blood_loss,
            'critical': max(loads) > 10.0 or breach or faint,
            'ending': ending,
        }


def told(operation, outcome):
    """Return what an operation says of its last tick, by the names of a judgement."""
    ending = 'success' if outcome.success else outcome.failure
    assert outcome.terminated == (ending not in ('', 'time'))
    assert outcome.truncated == (ending == 'time')
    return {
        **{name: getattr(outcome, name) for name in SAID_BY_OUTCOME},
        **{name: getattr(operation, name) for name in SAID_BY_OPERATION},
        'tip': operation.arm.position,
        'done': operation.scene.done,
        'vitals': operation.physiology.values(),
        'blood_loss': operation.physiology.blood_loss,
        'ending': ending,
    }


def by_chance(rng, share):
    """Return a driver that acts at random in a share of the ticks, else as the expert does."""

    def choose(operation):
        action = expert(operation.state(), operation.patient, SETTINGS)[0]
        return int(rng.integers(ACTION_COUNT)) if rng.random() < share else action

    return choose


def careless(action):
    """Return a driver that is expert until there is contact or a grasp, then does one thing."""

    def choose(operation):
        if not math.isnan(operation.touched) or operation.scene.grasped:
            return action
        return expert(operation.state(), operation.patient, SETTINGS)[0]

    return choose


def compared(patient, driver, seen, **body):
    """Operate to the end; hold every tick against the judgement; add what was seen."""
    operation, judgement = Operation(SETTINGS), Judgement(patient)
    operation.reset(patient)
    for name, value in body.items():
        setattr(operation.physiology, name, value)
        setattr(judgement.body, name, value)
    while not operation.done:
        action = driver(operation)
        operation.act(ACTIONS[action])
        operation.advance(12)
        said, wanted = told(operation, operation.tick()), judgement.tick(action)
        ending = wanted.pop('ending')
        assert (said.pop('ending'), operation.ticks) == (ending, judgement.ticks)
        for name, value in wanted.items():
            assert said[name] == pytest.approx(value, rel=1e-9, abs=1e-9), (name, patient.name)
        seen |= {ending} | {name for name in ('damage', 'critical', 'blood_loss') if wanted[name]}
        seen |= {f'above {each}' for each in range(3) if wanted['time_above'][each]}
        seen |= {'sliding'} if np.any(wanted['force'][:2]) else set()
    return judgement


@pytest.mark.parametrize(
    ('procedure', 'wanted'),
    [
        ('palpation', {'success', 'force', 'time', 'above 0', 'damage', 'sliding', 'blood_loss'}),
        ('incision', {'success', 'depth', 'time', 'above 0', 'damage', 'sliding'}),
        ('peg_transfer', {'success', 'drop', 'force', 'time', 'above 0', 'above 1', 'sliding'}),
    ],
)
def test_every_tick_of_whole_episodes_is_as_judged_by_hand(procedure, wanted):
    rng, seen = np.random.default_rng(8), set()
    drivers = [by_chance(rng, each) for each in (0.0, 0.8)]
    for index, driver in enumerate([*drivers, *map(careless, (0, 3, 4))]):
        compared(patient_for(procedure, index), driver, seen)
    for index, action in enumerate((1, 4, 13), 5):
        compared(patient_for(procedure, index, young_modulus=35000.0), careless(action), seen)
    assert seen >= wanted, wanted - seen


@pytest.mark.parametrize('procedure', ['palpation', 'incision', 'peg_transfer'])
@pytest.mark.parametrize(
    ('shift', 'modulus', 'wanted'),
    [
        ((0.0, 0.0, -0.044), 35000.0, {'force', 'critical', 'damage', 'above 2'}),
        ((0.041, 0.0, 0.01), 5000.0, {'critical', 'workspace'}),
        ((0.0, 0.0, -0.081), 100.0, {'critical', 'workspace'}),
    ],
)
def test_a_tip_that_begins_where_it_never_should_is_judged_as_by_hand(
    procedure, shift, modulus, wanted
):
    patient, seen = patient_for(procedure, young_modulus=modulus), set()
    start = tuple(np.add(patient.goal, shift).tolist())
    compared(impossible(patient, start=start), careless(5), seen)
    assert seen >= wanted, wanted - seen


def test_a_failure_by_vitals_is_judged_as_by_hand():
    patient, seen = patient_for('palpation', mean_arterial_pressure=40.0), set()
    compared(patient, careless(12), seen, low_time=59.5)
    assert seen >= {'vitals', 'critical'}


def test_a_ring_that_pulls_at_its_peg_counts_for_the_limit_and_harms_nobody():
    patient, seen = patient_for('peg_transfer', events=()), set()
    judgement = compared(patient, careless(0), seen)
    untouched = Physiology(patient)
    for _ in range(judgement.ticks):
        untouched.advance(TICK)
    assert seen >= {'force', 'above 0', 'above 1'} and judgement.load > 3.4
    assert judgement.damage == judgement.body.blood_loss == 0.0
    assert judgement.body.values() == untouched.values()


# With motors and masses.


@pytest.fixture(scope='module')
def world():
    operation = Operation(DYNAMIC)
    yield operation
    operation.close()


def jacobian(joints, count):
    """Return how the tip moves with each of the first joints, shape (3, count)."""
    step = 1e-6
    columns = []
    for index in range(count):
        way = np.eye(6)[index] * step
        ahead, behind = (forward_kinematics(each)[0] for each in (joints + way, joints - way))
        columns.append((ahead - behind) / (2 * step))
    return np.array(columns).T


def begin(world, procedure, shift, **changes):
    """Put a still patient on the table with the tip at a point seen from the goal."""
    changes = {'breathing_amplitude': 0.0, 'registration_error': 0.0, 'events': (), **changes}
    patient = patient_for(procedure, young_modulus=20000.0, **changes)
    goal = (0.02, -0.015, patient.goal[2])
    start = tuple(np.add(goal, shift).tolist())
    to_x, to_y = goal[0] + 0.014, goal[1] + 0.006
    patient = impossible(patient, goal=goal, start=start, destination=(to_x, to_y, goal[2]))
    world.reset(patient)
    return np.array(goal)


def assert_balanced(world, force, count):
    """Hold the motors to what carries a force (N) on a tip at rest."""
    arm = world.arm
    wanted = -jacobian(arm.joints(), count).T @ force
    assert np.abs(arm.velocity).max() < 1e-6
    assert np.abs(wanted).max() > 0.1
    assert arm.efforts() == pytest.approx(wanted, rel=1e-3, abs=1e-4)


def test_motors_of_a_bent_wrist_balance_the_tissue_at_rest(world):
    goal = begin(world, 'palpation', (0.0, 0.0, 0.001))
    joints = world.arm.joints() + (0.0, 0.0, 0.008, 0.3, 0.4, -0.2)
    world.set_joint_target(joints.tolist(), 240)
    world.advance(720)
    hertz = world.tissue.stiffness * (goal[2] - world.arm.position[2]) ** 1.5
    assert hertz > 0.1
    assert_balanced(world, np.array([0.0, 0.0, hertz]), 6)


def test_motors_balance_the_pull_of_a_peg_at_rest(world):
    goal = begin(world, 'peg_transfer', (0.0, 0.0, constant('peg_transfer.height')))
    world.scene.grasped = True
    world.set_target(tuple((goal + (0.004, 0.0, constant('peg_transfer.height'))).tolist()))
    world.advance(480)
    pull = 800.0 * (world.arm.position[0] - goal[0] - 0.0015)
    assert pull > 1.9
    assert_balanced(world, np.array([-pull, 0.0, 0.0]), 3)
    assert world.load == pytest.approx(pull, rel=1e-6)
    assert world.damage == 0.0


def test_friction_holds_the_motors_back(world):
    efforts = []
    for friction in (0.0, 0.3):
        goal = begin(world, 'palpation', (0.0, 0.0, -0.004), friction=friction)
        world.set_target(tuple((goal + (0.02, 0.0, -0.004)).tolist()))
        world.advance(60)
        efforts.append(world.arm.efforts())
    normal = world.force[2]
    carried = -jacobian(world.arm.joints(), 3).T @ (-0.3 * normal, 0.0, 0.0)
    assert efforts[1] - efforts[0] == pytest.approx(carried, rel=0.05, abs=2e-3)
