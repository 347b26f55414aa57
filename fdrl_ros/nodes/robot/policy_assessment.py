# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a selector finds out of a policy: from the robot's disk, or in a process of its own."""

from collections.abc import Callable, Sequence
from pathlib import Path

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.public_value import fitted_with, kept_valuation
from fdrl_ros.deployment.robot.safety_test import basis, frozen_set, safety_report
from fdrl_ros.errors import LastingError, PolicyError, RecordsError, SettingError, StateError
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.subprocess_runner import KeptProcess
from fdrl_ros.selector import HOLD, ValueModel
from fdrl_ros.selector.candidates.policy_files import PolicyFiles
from fdrl_ros.selector.candidates.safety_limits import SafetyReport

LASTING = (PolicyError, RecordsError, SettingError, StateError)
"""What is raised because of the policy or the plan: the same ones raise it again."""


def tested(
    policy: Policy,
    plan: Plan,
    files: PolicyFiles,
    stopped: Callable[[], bool],
    elsewhere: KeptProcess,
) -> SafetyReport:
    """
    Return what the test of a policy found; it is on the disk then.

    A second process computes, so that the control loop keeps its 100 Hz.

    :param elsewhere: that process, kept for what is tested and valued next.
    :raises TrainingStopped: as soon as `stopped` says so.
    :raises LastingError: if it cannot be found out with this plan, now or later.
    :raises StoreError: if a file cannot be written.
    :raises FdrlError: if the process ends without a result.
    """
    report = files.load_report(policy.digest.hex())
    if report is None or report.basis != basis(plan):
        report = elsewhere(find_report, (policy, plan, files.folder), stopped)
        files.save_report(report)
    return report


def valued(
    policy: Policy | None,
    plan: Plan,
    lead_in: Policy,
    known: Sequence[Policy],
    files: PolicyFiles,
    stopped: Callable[[], bool],
    elsewhere: KeptProcess,
) -> ValueModel:
    """
    Return the estimate of a policy's return; it is on the disk then.

    A second process computes, as in :func:`tested`, which raises the same.

    :param policy: None holds.
    :param lead_in: the public start, as
        :class:`fdrl_ros.deployment.robot.public_value.PublicValuation` takes it.
    :param known: as the same takes it.
    """
    digest = HOLD if policy is None else policy.digest.hex()
    settings = fitted_with(plan, lead_in, known)
    model = files.load_model(digest, None, settings)
    if model is None:
        data = elsewhere(find_model, (policy, plan, lead_in, known), stopped)
        model = ValueModel.from_bytes(data, digest)
        files.save_model(digest, data, settings)
    return model


def find_report(policy: Policy, plan: Plan, folder: Path) -> SafetyReport:
    """
    Test a policy, in the other process.

    :raises LastingError: as :func:`tested`.
    """
    try:
        return safety_report(policy, plan, frozen_set(plan, folder))
    except LASTING as error:
        raise LastingError(f'{type(error).__name__}: {error}') from error


def find_model(
    policy: Policy | None, plan: Plan, lead_in: Policy, known: Sequence[Policy]
) -> bytes:
    """
    Value a policy, in the other process.

    :raises LastingError: as :func:`valued`.
    """
    try:
        return kept_valuation(plan, lead_in, known).value_model(policy).to_bytes()
    except LASTING as error:
        raise LastingError(f'{type(error).__name__}: {error}') from error
