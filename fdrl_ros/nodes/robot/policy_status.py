# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a robot tells of one version of a policy."""

import math
from typing import Any

from builtin_interfaces.msg import Time
import fdrl_ros.msg as ros
from fdrl_ros.selector.candidates.registry import Status, Version
from fdrl_ros.selector.candidates.supervision import Supervision

_NUMBERS = (
    'force_share',
    'workspace_share',
    'one_action_share',
    'mean_return',
    'hold_return',
    'success_share',
    'force_failures',
)


def policy_status(version: Version, status: Status, word: Supervision) -> Any:
    """
    Describe a version; what nobody measured yet is NaN.

    :param status: of it.
    :param word: what the surgeon said.
    """
    report, model = version.report, version.model
    seconds, rest = divmod(version.came, 1.0)
    found = report.to_mapping() if report else {}
    estimates = model.estimates.values() if model else ()
    numbers = {name: float(found.get(name, math.nan)) for name in _NUMBERS}
    return ros.PolicyStatus(
        name=version.name,
        sender=version.message.envelope.sender,
        round=version.round,
        digest=version.policy.digest,
        n_parameters=version.policy.shape.n_parameters,
        came=Time(sec=int(seconds), nanosec=int(rest * 1e9)),
        status=str(status),
        reason=version.refusal or version.setback,
        pinned=word.pinned.get(version.name) == version.digest,
        locked=word.locked == version.name,
        value_misfit=max((each.misfit for each in estimates), default=math.nan),
        value_noise=max((each.noise for each in estimates), default=math.nan),
        **numbers,
    )
