# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Settings of the simulated world that are not a patient's."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fdrl_ros.errors import SettingError
from fdrl_ros.settings import setting, Settings

if TYPE_CHECKING:  # the key authority loads these settings and nothing else of the world
    from fdrl_ros.surgery.patient.patient import Patient


@dataclass(frozen=True)
class WorldSettings(Settings):
    """How the world is simulated, how long an operation may take and how it is rewarded."""

    mode: str = setting(
        'dynamic',
        'how the arm moves: PyBullet with motors, or exact placement with the same lag',
        choices=('dynamic', 'kinematic'),
    )
    horizon: int = setting(
        0, "time allowed for one operation; 0 for the procedure's own", unit='ticks', minimum=0
    )
    force_noise: float = setting(
        0.0, 'standard deviation of the measured force', limits=(0.0, 5.0), unit='N'
    )
    pace: float = setting(
        1.0,
        'how many times faster than real time the body of the patient lives',
        limits=(1.0, 600.0),
    )
    progress_reward: float = setting(
        250.0, 'reward of coming one metre nearer', unit='1/m', minimum=0.0
    )
    hold_reward: float = setting(5.0, 'reward of all that is to be done', minimum=0.0)
    success_reward: float = setting(5.0, 'reward of success', minimum=0.0)
    failure_penalty: float = setting(5.0, 'penalty of failure by force or breach', minimum=0.0)
    force_penalty: float = setting(
        0.5, 'penalty a tick for a force above the band, per target force', minimum=0.0
    )
    time_penalty: float = setting(0.05, 'penalty of a tick', minimum=0.0)


def sparse(settings: WorldSettings) -> WorldSettings:
    """
    Return settings that reward success, punish failure and tell nothing on the way.

    :raises SettingError: on anything but WorldSettings.
    """
    return replace(
        checked_world(settings),
        progress_reward=0.0,
        hold_reward=0.0,
        force_penalty=0.0,
        time_penalty=0.0,
    )


def horizon_of(patient: 'Patient', settings: WorldSettings) -> int:
    """Return the time allowed for an operation on a patient, ticks."""
    return settings.horizon or patient.procedure.horizon


def checked_world(settings: WorldSettings) -> WorldSettings:
    """
    Return settings that are some.

    :raises SettingError: on anything else.
    """
    if not isinstance(settings, WorldSettings):
        raise SettingError('settings', settings, 'WorldSettings')
    return settings


SPARSE = sparse(WorldSettings())
"""Rewards at the end of an operation alone."""
