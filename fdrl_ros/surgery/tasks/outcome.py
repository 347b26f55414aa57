# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How an operation ends, and what one tick of it brought."""

from dataclasses import dataclass

from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.patient.patient import Patient, Point

HARD_STOP = constant('tissue.hard_stop')
LATERAL = constant('workspace.lateral')
ABOVE = constant('workspace.above')
FAILURES = ('force', 'workspace', 'depth', 'drop', 'vitals', 'time')


@dataclass(frozen=True)
class Outcome:
    """
    What one tick brought.

    :param reward: with the hospital's emphasis.
    :param peak_force: greatest load of the tip within the tick, N; see :class:`Operation`.
    :param mean_force: mean load over the tick, N.
    :param damage: done to tissue since the start, N s.
    :param critical: C_t of FDRL Eq. 10: force above the hard stop, a breach, or hypotension.
    :param success: all that was to be done is done.
    :param failure: one of FAILURES, or empty.
    :param terminated: by success or by a failure other than time.
    :param truncated: the time is up.
    """

    reward: float
    peak_force: float
    mean_force: float
    damage: float
    critical: bool
    success: bool
    failure: str
    terminated: bool
    truncated: bool


def breached(patient: Patient, tip: Point) -> bool:
    """Say whether a tip has left the workspace, or has gone through the organ."""
    goal = patient.goal
    x, y, z = tip[0] - goal[0], tip[1] - goal[1], tip[2] - goal[2]
    return abs(x) > LATERAL or abs(y) > LATERAL or z > ABOVE or -z > patient.thickness


def failure_of(
    *, force: bool, breach: bool, lost: str, hypotensive: bool, done: bool, late: bool
) -> str:
    """
    Return what an operation fails by, the gravest first, or nothing.

    :param force: it was above the limit.
    :param breach: the tip has left the workspace.
    :param lost: how the procedure itself was lost, or nothing.
    :param hypotensive: the pressure was too low for too long.
    :param done: nothing is left to be done, so time does not matter.
    :param late: the time is up.
    """
    if force:
        return 'force'
    if breach:
        return 'workspace'
    if lost:
        return lost
    if hypotensive:
        return 'vitals'
    return 'time' if late and not done else ''
