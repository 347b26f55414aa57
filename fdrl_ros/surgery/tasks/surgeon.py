# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Simulated surgeons: the hand-written controller with experience, and with the flaws of people.

A surgeon sees what the robot sees and knows the hospital's instruments, never a patient's hidden
numbers. The less skilled, the more often a move is wrong, trembles or answers to a state that has
passed, and the less exactly the instruments are known. Numbers: group `surgeon` of
config/world.yaml.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count

from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.runtime.ranges import check_number
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, STAY, TICK
from fdrl_ros.surgery.gym.episode import Choice, Episode, roll_out, run_episode
from fdrl_ros.surgery.gym.state import STATE_SIZE
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.scalar_or_array import Array
from fdrl_ros.surgery.settings import horizon_of, WorldSettings
from fdrl_ros.surgery.tasks.controller import controller, Experience, NO_EXPERIENCE
from fdrl_ros.tasks.task import SimpleEpisode
import numpy as np
from numpy.typing import NDArray

_SKILL, _SKILL_HOSPITAL, _SKILL_SPREAD, _CAUTION_RATIO = (
    constant(f'surgeon.{name}')
    for name in ('skill', 'skill_hospital', 'skill_spread', 'caution_ratio')
)

_FLAWS = {
    name: (constant(f'surgeon.{name}_least'), constant(f'surgeon.{name}_most'))
    for name in ('wrong', 'tremor', 'late', 'calibration', 'gain', 'protocol')
}
"""Each flaw of the least and of the most skilled surgeon."""

_JUDGED = round(1.0 / TICK)
"""Ticks after which surgeons judge anew how far aside a place is."""

_COARSE, _FINE, _JAW = range(6), range(6, STAY), range(STAY, ACTION_COUNT)
_ALIKE = [_COARSE] * len(_COARSE) + [range(6, STAY + 1)] * (len(_FINE) + 1) + [_JAW] * 2
"""What each action may be mistaken for: moves of its size, or other orders to the jaw."""

_FIRST, _COUNT = (np.array([number(alike) for alike in _ALIKE]) for number in (min, len))


@dataclass(frozen=True)
class Habits:
    """
    How the surgeons of one hospital work.

    :param experience: of the hospital's instruments, procedures and style.
    :param skill: of its surgeons on average, 0 to 1.
    """

    experience: Experience = NO_EXPERIENCE
    skill: float = _SKILL

    def __post_init__(self) -> None:
        """
        Refuse a skill that is none.

        :raises SettingError: then.
        """
        check_number('skill', self.skill, 0.0, 1.0)


def habits_of(cohort: Cohort) -> Habits:
    """
    Return the habits of a hospital's surgeons, which differ as far as H says.

    Mean skill and caution are spread evenly over the hospitals, each in an order that the seed
    alone decides. Surgeons know the hospital's instruments and protocols; of public patients
    nobody knows more than the textbook.
    """
    made = cohort.instruments
    skill = caution = 0.0
    if cohort.hospitals > 1 and not cohort.public:
        rng, count = np.random.default_rng([Stream.SURGEONS, cohort.seed]), cohort.hospitals
        skill, caution = (
            cohort.strength * float(rng.permutation(count)[cohort.hospital]) / (count - 1)
            for _ in range(2)
        )
        skill = 2.0 * skill - cohort.strength
    return Habits(
        Experience(
            made.calibration,
            made.force_gain,
            made.protocol,
            _CAUTION_RATIO**caution,
        ),
        _SKILL + _SKILL_HOSPITAL * skill,
    )


class Surgeons:
    """
    One surgeon for each of n operations, drawn from the surgeons of a hospital.

    :param habits: of the hospital.
    :param rngs: source of everything that is drawn for an operation, one for each.
    :param horizon: the longest that one of the operations may take, ticks.
    :param skill: of all of them; None draws each.
    :raises SettingError: if there is no such skill.

    `skills` are the surgeons', shape (n,).
    """

    def __init__(
        self,
        habits: Habits,
        rngs: Sequence[np.random.Generator],
        horizon: int,
        skill: float | None = None,
    ) -> None:
        drawn = np.array([rng.uniform(-1.0, 1.0) for rng in rngs])
        own = np.clip(habits.skill + _SKILL_SPREAD * drawn, 0.0, 1.0)
        if skill is not None:
            check_number('skill', skill, 0.0, 1.0)
            own[:] = skill
        self.skills: Array = own
        self._known = habits.experience
        streams = [rng.spawn(2) for rng in rngs]
        moments = -(-horizon // _JUDGED)
        self._errors: Array = np.array([rng.standard_normal(3) for rng in rngs]).T
        self._aside: Array = np.array([one.standard_normal((moments, 2)) for one, _ in streams])
        self._drawn: Array = np.array([other.random((horizon, 3)) for _, other in streams])
        self._flaws = {
            name: least + (most - least) * own for name, (least, most) in _FLAWS.items()
        }
        self._last = np.zeros((len(rngs), STATE_SIZE), np.float32)

    def experience(self, rows: NDArray[np.int64], tick: int) -> Experience:
        """
        Return what surgeons take their hospital's instruments and procedures for.

        :param rows: numbers of their operations, shape (m,).
        :param tick: since the start; what is aside they judge anew each second.
        """
        height, force, target = self._errors[:, rows]
        errors, known = np.array([*self._aside[rows, tick // _JUDGED].T, height]), self._known
        place, gain, protocol = (
            self._flaws[name][rows] for name in ('calibration', 'gain', 'protocol')
        )
        return Experience(
            np.reshape(known.calibration, (3, 1)) + place * errors,
            known.force_gain * np.exp(gain * force),
            known.protocol * np.exp(protocol * target),
            known.caution,
        )

    def act(
        self, states: NDArray[np.float32], rows: NDArray[np.int64], tick: int
    ) -> NDArray[np.int64]:
        """
        Return what each surgeon does; ask once a tick, from the first one on.

        :param states: shape (m, STATE_SIZE).
        :param rows: numbers of their operations, shape (m,).
        :param tick: since the start.
        :returns: actions, shape (m,).
        """
        which, move, late = self._drawn[rows, tick].T
        passed = (late < self._flaws['late'][rows]) & (tick > 0)
        seen = np.where(passed[:, None], self._last[rows], states)
        self._last[rows] = states
        chosen = controller(seen, self.experience(rows, tick))
        wrong, tremor = (self._flaws[name][rows] for name in ('wrong', 'tremor'))
        mistake = _FIRST[chosen] + (move * _COUNT[chosen]).astype(np.int64)
        slip = _FINE.start + (move * len(_FINE)).astype(np.int64)
        acted = np.where(which < wrong + tremor, slip, chosen)
        return np.where(which < wrong, mistake, acted)

    def choice(self) -> Choice:
        """Return the first surgeon as somebody who answers one state after the other."""
        ticks, first = count(), np.zeros(1, np.int64)

        def choose(state: NDArray[np.float32]) -> int:
            return int(self.act(state[None], first, next(ticks))[0])

        return choose


def operate(
    habits: Habits,
    patients: Sequence[Patient],
    world: WorldSettings,
    rngs: Sequence[np.random.Generator],
) -> list[SimpleEpisode[Patient]] | list[Episode]:
    """
    Return what surgeons of a hospital did to patients; of each, whoever the others are.

    Kinematic arms operate side by side, others one after the other.

    :param rngs: source of everything that is drawn for an operation, one for each.
    """
    horizons = [horizon_of(patient, world) for patient in patients]
    if world.mode == 'kinematic':
        team = Surgeons(habits, rngs, max(horizons))
        return roll_out(patients, team.act, world).episodes()
    with closing(SurgeryEnv(settings=world)) as env:
        return [
            run_episode(env, Surgeons(habits, [rng], horizon).choice(), patient)
            for patient, rng, horizon in zip(patients, rngs, horizons, strict=True)
        ]
