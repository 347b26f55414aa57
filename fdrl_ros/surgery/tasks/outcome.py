# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a tick earns and how an operation ends, for one patient's numbers or arrays of many."""

from dataclasses import dataclass
import math
from typing import NamedTuple

from fdrl_ros.errors import SettingError
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.scalar_or_array import excess, maths_of, Number, Point
from fdrl_ros.surgery.settings import horizon_of, WorldSettings
from fdrl_ros.surgery.tasks.procedures import Procedure

HARD_STOP = constant('tissue.hard_stop')
LATERAL = constant('workspace.lateral')
ABOVE = constant('workspace.above')
FAILURES = ('force', 'workspace', 'depth', 'drop', 'vitals', 'time')
NO_FAILURE = -1
"""Code of an operation that goes on or succeeded; a failure's is its place in FAILURES."""

_CODES = {'': NO_FAILURE, **{name: code for code, name in enumerate(FAILURES)}}
_FORCE, _WORKSPACE, _VITALS, _TIME = (
    _CODES[name] for name in ('force', 'workspace', 'vitals', 'time')
)


def failure_code(name: str) -> int:
    """
    Return the number of a failure, NO_FAILURE for an empty name.

    :raises SettingError: if there is no such failure.
    """
    if name not in _CODES:
        raise SettingError('loss', name, 'one of ' + ', '.join(FAILURES))
    return _CODES[name]


class TickOutcome(NamedTuple):
    """
    What one tick of one operation brought.

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


def force_terms(procedure: Procedure, protocol: float = 1.0) -> tuple[float, float]:
    """
    Return the force that costs nothing (N), and the one that the excess is measured by (N).

    :param protocol: factor of the target force in the patient's hospital.
    """
    if procedure.target_force == 0.0:
        return procedure.warn_force, procedure.force_limit
    target = protocol * procedure.target_force
    return target + procedure.tolerance, target


@dataclass(slots=True)
class RewardWeights:
    """
    What the rewards of one operation depend on; of many, arrays.

    :param free_force: force that costs nothing, N.
    :param force_scale: what a force above it is measured by, N.
    :param force_emphasis: weight of forces in the hospital's reward.
    :param time_emphasis: weight of time in the hospital's reward.
    """

    free_force: Number
    force_scale: Number
    force_emphasis: Number
    time_emphasis: Number


@dataclass(slots=True)
class Rules(RewardWeights):
    """
    The limits of one operation, with the weights of its rewards; of many, arrays.

    :param goal: planned contact point, m: the middle of the workspace.
    :param thickness: of the organ, m.
    :param target_force: to be held by the textbook, N, or 0.
    :param error_scale: the same, or infinite: what the state's force error is measured by, N.
    :param calibration: what the state shows of places is off by this, m.
    :param warn_force: force above which tissue is harmed, N.
    :param force_limit: force that ends the operation, N.
    :param horizon: time allowed, ticks.
    """

    goal: Point
    thickness: Number
    target_force: Number
    error_scale: Number
    calibration: Point
    warn_force: Number
    force_limit: Number
    horizon: Number


def rules_of(patient: Patient, settings: WorldSettings) -> Rules:
    """Return the rules of an operation on a patient."""
    procedure = patient.procedure
    return Rules(
        *force_terms(procedure, patient.protocol),
        patient.force_emphasis,
        patient.time_emphasis,
        patient.goal,
        patient.thickness,
        procedure.target_force,
        procedure.target_force or math.inf,
        patient.calibration,
        procedure.warn_force,
        procedure.force_limit,
        horizon_of(patient, settings),
    )


class Tick(NamedTuple):
    """
    What one tick brought, before it is judged.

    :param ticks: since the start, with this one.
    :param tip: where it is, m.
    :param peak: greatest load within the tick, N.
    :param load: at the end of the tick, N.
    :param lost: code of the failure that the procedure itself was lost by, or NO_FAILURE.
    :param hypotensive: the pressure was too low for too long.
    :param done: fraction of the procedure that is done.
    :param progress: what it has grown by.
    :param nearer: what the remaining cost has fallen by, m.
    """

    ticks: Number
    tip: Point
    peak: Number
    load: Number
    lost: Number
    hypotensive: Number
    done: Number
    progress: Number
    nearer: Number


class Judgement(NamedTuple):
    """What a tick earned and ended; see :class:`TickOutcome`. The failure is a code."""

    reward: Number
    critical: Number
    success: Number
    failure: Number
    terminated: Number
    truncated: Number


def breached(goal: Point, thickness: Number, tip: Point) -> Number:
    """Return whether a tip has left the workspace around a goal, or has gone through the organ."""
    above = tip[2] - goal[2]
    return (
        (abs(tip[0] - goal[0]) > LATERAL)
        | (abs(tip[1] - goal[1]) > LATERAL)
        | (above > ABOVE)
        | (-above > thickness)
    )


def judge(rules: Rules, settings: WorldSettings, tick: Tick) -> Judgement:
    """Judge a tick; of several failures the gravest counts, and time only if work is left."""
    breach, done = breached(rules.goal, rules.thickness, tick.tip), tick.done >= 1.0
    choose = maths_of(tick.peak).choose
    failure = choose((tick.ticks >= rules.horizon) & (tick.done < 1.0), _TIME, NO_FAILURE)
    failure = choose(tick.hypotensive, _VITALS, failure)
    failure = choose(tick.lost != NO_FAILURE, tick.lost, failure)
    failure = choose(breach, _WORKSPACE, failure)
    failure = choose(tick.peak > rules.force_limit, _FORCE, failure)
    good, truncated = failure == NO_FAILURE, failure == _TIME
    success, failed = good & done, (good | truncated) ^ True
    critical = (tick.peak > HARD_STOP) | breach | tick.hypotensive
    reward = reward_of(rules, settings, tick, success, failed)
    return Judgement(reward, critical, success, failure, success | failed, truncated)


class Gain(NamedTuple):
    """The part of a :class:`Tick` that earns a reward."""

    nearer: Number
    progress: Number
    load: Number


def reward_of(
    weights: RewardWeights,
    settings: WorldSettings,
    gain: Gain | Tick,
    success: Number,
    failed: Number,
) -> Number:
    """
    Return what a tick earns.

    :param success: 1 if the operation succeeded.
    :param failed: 1 if it failed before its time was up.
    """
    emphasis = weights.force_emphasis
    over = excess(gain.load, weights.free_force)
    return (
        settings.progress_reward * gain.nearer
        + settings.hold_reward * gain.progress
        - settings.force_penalty * emphasis * over / weights.force_scale
        - settings.time_penalty * weights.time_emphasis
        + settings.success_reward * success
        - settings.failure_penalty * emphasis * failed
    )
