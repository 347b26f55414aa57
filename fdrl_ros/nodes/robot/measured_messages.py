# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Risk and adaptation of a step as ROS messages (FDRL Eq. 4, 9-11)."""

from fdrl_ros.metrics import Adaptation, Risk
import fdrl_ros.msg as ros


def risk_message(patient: str, risk: Risk) -> ros.Risk:
    """Tell the risk of a step, and R_mit over all cases, this one and the window."""
    return ros.Risk(
        patient=patient,
        risk=risk.total,
        force=risk.force,
        damage=risk.damage,
        critical=risk.critical,
        mitigation=risk.mitigation,
        cases=risk.cases,
        steps=risk.steps,
        case_mitigation=risk.case.value,
        case_steps=risk.case.steps,
        window_mitigation=risk.window.value,
        window_cases=risk.window.cases,
        window_steps=risk.window.steps,
    )


def adaptation_message(patient: str, adaptation: Adaptation, threshold: float) -> ros.Adaptation:
    """
    Tell both rates over all cases, this one and the window.

    :param threshold: of the change that counts, in scales.
    """
    case, window = adaptation.case, adaptation.window
    return ros.Adaptation(
        patient=patient,
        change=adaptation.change,
        threshold=threshold,
        variation_rate=adaptation.variation_rate,
        adaptation=adaptation.alpha_adapt,
        cases=adaptation.cases,
        steps=adaptation.steps,
        varied=adaptation.changes,
        answered=adaptation.answers,
        case_variation_rate=case.variation_rate,
        case_adaptation=case.alpha_adapt,
        case_steps=case.steps,
        case_varied=case.changes,
        case_answered=case.answers,
        window_variation_rate=window.variation_rate,
        window_adaptation=window.alpha_adapt,
        window_cases=window.cases,
        window_steps=window.steps,
        window_varied=window.changes,
        window_answered=window.answers,
    )
