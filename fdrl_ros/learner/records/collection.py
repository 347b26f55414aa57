# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Simulate a hospital's operations by surgeons of differing skill.

Every operation is a pure function of the cohort, the settings and the patient's number: the record
of a patient depends on no other patient, as the privacy unit requires.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from fdrl_ros.errors import SettingError, TrainingStopped
from fdrl_ros.learner.records.records import Records
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.settings import setting, Settings
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.episode import Choice, run_episode
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
import numpy as np

Progress = Callable[[int, int], None]
"""Called with the count done and the total."""


@dataclass(frozen=True)
class CollectionSettings(Settings):
    """How a hospital's records are collected."""

    patients: int = setting(
        500, 'patients n_i of a hospital', limits=(1, 1000000), unit='patients'
    )
    exploration: float = setting(
        0.4, 'mean share of ticks at which a surgeon tries another move', limits=(0.0, 1.0)
    )
    variation: float = setting(
        0.2, 'how far the exploration of one operation may be from the mean', limits=(0.0, 0.5)
    )
    guide: str = setting('expert', 'who moves at the other ticks', choices=('expert', 'policy'))


def collect_records(
    cohort: Cohort,
    settings: CollectionSettings,
    world: WorldSettings | None = None,
    *,
    policy: Choice | None = None,
    progress: Progress = lambda done, count: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Records:
    """
    Operate once on each of the cohort's first training patients.

    :param policy: the released policy that guides, if the settings say so.
    :param progress: called after each patient.
    :param stopped: called before each patient.
    :raises SettingError: if the settings need a policy and none is given.
    :raises TrainingStopped: once `stopped` returns True.
    """
    if settings.guide == 'policy' and policy is None:
        raise SettingError('guide', settings.guide, "a policy to be given, or 'expert'")
    guide = policy if settings.guide == 'policy' else None
    world = world or WorldSettings()
    episodes = []
    with closing(SurgeryEnv(cohort, world)) as env:
        for index in range(settings.patients):
            if stopped():
                raise TrainingStopped(f'collection stopped before patient {index}')
            env.np_random = np.random.default_rng(
                [Stream.BEHAVIOUR, cohort.seed, cohort.hospital, int(cohort.public), index]
            )
            patient = cohort.patient(index)
            choose = _surgeon(settings, env.np_random, guide or _expert_on(patient, world))
            episodes.append(run_episode(env, choose, patient))
            progress(index + 1, settings.patients)
    return Records.from_episodes(episodes)


def _expert_on(patient: Patient, world: WorldSettings) -> Choice:
    return lambda state: expert(state, patient, world)[0]


def _surgeon(settings: CollectionSettings, rng: np.random.Generator, guide: Choice) -> Choice:
    """Draw a patient's surgeon: the guide with an individual exploration."""
    low = max(0.0, settings.exploration - settings.variation)
    high = min(1.0, settings.exploration + settings.variation)
    exploration = rng.uniform(low, high)

    def choose(state: np.ndarray) -> int:
        if rng.random() < exploration:
            return int(rng.integers(ACTION_COUNT))
        return guide(state)

    return choose
