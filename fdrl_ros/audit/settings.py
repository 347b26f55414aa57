# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Settings of an audit."""

from dataclasses import dataclass

from fdrl_ros.settings import setting, Settings


@dataclass(frozen=True)
class AuditSettings(Settings):
    """What is put among the patients, and how sure the bound shall be."""

    canaries: int = setting(
        2000,
        'canaries, each a member by a fair coin; at most the number of trained weights',
        minimum=2,
        maximum=1000000,
    )
    strength: float = setting(
        10.0,
        "norm of a canary's gradient before clipping, in units of C",
        minimum=1.0,
        maximum=1000.0,
    )
    failure: float = setting(
        0.001,
        'chance of a bound above the true epsilon: one minus the confidence',
        minimum=1e-9,
        maximum=0.5,
    )
