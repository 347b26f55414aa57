# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The selector: values policies in this state, chooses one cautiously, moves the tip slowly."""

from fdrl_ros.selector.bank import ValueBank
from fdrl_ros.selector.candidate import Candidate, HOLD, Selection
from fdrl_ros.selector.fitting import Experience, fit_value, returns_to_go, ValueSettings
from fdrl_ros.selector.gate import GateSettings, PauseOrders, RiskGate
from fdrl_ros.selector.limiter import Limiter, LimiterSettings, SetPoint
from fdrl_ros.selector.matching import reference
from fdrl_ros.selector.misfit import measured_misfit
from fdrl_ros.selector.observation import Observation, Reason
from fdrl_ros.selector.safety import SafetySettings
from fdrl_ros.selector.selector import Selector
from fdrl_ros.selector.settings import SelectorSettings
from fdrl_ros.selector.shield import Shield, Verdict, Veto
from fdrl_ros.selector.shield_settings import ShieldSettings
from fdrl_ros.selector.value import StateValue, ValueModel

__all__ = [
    'HOLD',
    'Candidate',
    'GateSettings',
    'Experience',
    'Limiter',
    'LimiterSettings',
    'Observation',
    'PauseOrders',
    'Reason',
    'RiskGate',
    'SafetySettings',
    'Selection',
    'Selector',
    'SelectorSettings',
    'SetPoint',
    'Shield',
    'ShieldSettings',
    'StateValue',
    'ValueBank',
    'ValueModel',
    'ValueSettings',
    'Verdict',
    'Veto',
    'fit_value',
    'measured_misfit',
    'reference',
    'returns_to_go',
]
