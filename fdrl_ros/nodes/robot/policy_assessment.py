# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a selector finds out of a policy: from the robot's disk, or in a process of its own."""

from collections.abc import Callable, Sequence
from pathlib import Path

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.public_value import fitted_with, PublicValuation
from fdrl_ros.deployment.robot.safety_test import basis, frozen_set, safety_report
from fdrl_ros.errors import LastingError, PolicyError, RecordsError, SettingError, StateError
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.subprocess_runner import run_elsewhere
from fdrl_ros.selector import HOLD, ValueModel
from fdrl_ros.selector.candidates.policy_files import PolicyFiles
from fdrl_ros.selector.candidates.safety_limits import SafetyReport

LASTING = (PolicyError, RecordsError, SettingError, StateError)
"""What is raised because of the policy or the plan: the same ones raise it again."""


def assess(
    policy: Policy | None,
    plan: Plan,
    lead_in: Policy,
    known: Sequence[Policy],
    files: PolicyFiles,
    stopped: Callable[[], bool],
) -> tuple[SafetyReport | None, ValueModel | None]:
    """
    Return what the test of a policy found, and the estimate of its return if it passed.

    Both are on the disk then. A second process computes, so that the control loop keeps its
    100 Hz.

    :param policy: None holds, which needs no test.
    :param lead_in: the public start, as
        :class:`fdrl_ros.deployment.robot.public_value.PublicValuation` takes it.
    :param known: as the same takes it.
    :raises TrainingStopped: as soon as `stopped` says so.
    :raises LastingError: if it cannot be found out with this plan, now or later.
    :raises StoreError: if a file cannot be written.
    :raises FdrlError: if the process ends without a result.
    """
    digest = HOLD if policy is None else policy.digest.hex()
    settings = fitted_with(plan, lead_in, known)
    report, model = files.load_report(digest), files.load_model(digest, None, settings)
    if report is not None and report.basis != basis(plan):
        report = None
    tested = policy is None or report is not None
    if not tested or (model is None and not _is_refused(report, plan)):
        arguments = (policy, plan, lead_in, known, files.folder, report, model is None)
        report, data = run_elsewhere(find_out, arguments, stopped)
        if data:
            model = ValueModel.from_bytes(data, digest)
            files.save_model(digest, data, settings)
        if report is not None:
            files.save_report(report)
    return report, None if _is_refused(report, plan) else model


def _is_refused(report: SafetyReport | None, plan: Plan) -> bool:
    return report is not None and bool(report.refusal(plan.safety))


def find_out(
    policy: Policy | None,
    plan: Plan,
    lead_in: Policy,
    known: Sequence[Policy],
    folder: Path,
    report: SafetyReport | None,
    wanted: bool,
) -> tuple[SafetyReport | None, bytes]:
    """
    Run in the other process.

    :param report: of its test, if it is known.
    :param wanted: whether there is no value model yet.
    :raises LastingError: as :func:`assess`.
    """
    try:
        if policy is not None and report is None:
            report = safety_report(policy, plan, frozen_set(plan, folder))
        if not wanted or _is_refused(report, plan):
            return report, b''
        return report, PublicValuation(plan, lead_in, known=known).value_model(policy).to_bytes()
    except LASTING as error:
        raise LastingError(f'{type(error).__name__}: {error}') from error
