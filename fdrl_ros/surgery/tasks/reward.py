# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The reward of a tick, for one operation and for many: its numbers may be arrays."""

from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.procedures import Procedure
from fdrl_ros.surgery.tasks.task import excess, Number


def force_terms(procedure: Procedure) -> tuple[float, float]:
    """Return the force that costs nothing (N), and the one that the excess is measured by (N)."""
    if procedure.target_force == 0.0:
        return procedure.warn_force, procedure.force_limit
    return procedure.target_force + procedure.tolerance, procedure.target_force


def reward_of(
    settings: WorldSettings,
    *,
    nearer: Number,
    progress: Number,
    load: Number,
    free: Number,
    against: Number,
    force_emphasis: Number,
    time_emphasis: Number,
    success: Number = 0.0,
    failed: Number = 0.0,
) -> Number:
    """
    Return what a tick earns.

    :param settings: of the world.
    :param nearer: what the remaining cost has fallen by, m.
    :param progress: what the fraction done has grown by.
    :param load: at the end of the tick, N.
    :param free: with `against`, see :func:`force_terms`.
    :param force_emphasis: weight of forces in the hospital's reward.
    :param time_emphasis: weight of time in the hospital's reward.
    :param success: 1 if the operation succeeded.
    :param failed: 1 if it failed before its time was up.
    """
    return (
        settings.progress_reward * nearer
        + settings.hold_reward * progress
        - settings.force_penalty * force_emphasis * excess(load, free) / against
        - settings.time_penalty * time_emphasis
        + settings.success_reward * success
        - settings.failure_penalty * force_emphasis * failed
    )
