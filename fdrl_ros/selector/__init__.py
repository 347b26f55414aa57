# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The selector: values policies in this state, chooses one cautiously, moves the tip slowly."""

from fdrl_ros.selector.candidates.candidate import Candidate, HOLD, Selection
from fdrl_ros.selector.candidates.safety_limits import SafetySettings
from fdrl_ros.selector.control.limiter import Limiter, LimiterSettings
from fdrl_ros.selector.control.monitor import GateSettings, PauseCommands, RiskGate
from fdrl_ros.selector.control.observation import Observation, Reason
from fdrl_ros.selector.control.selector import Selector
from fdrl_ros.selector.settings import SelectorSettings
from fdrl_ros.selector.value.bank import ValueBank
from fdrl_ros.selector.value.fitting import (
    Experience,
    fit_value,
    measured_conformal_error,
    returns_to_go,
    ValueSettings,
)
from fdrl_ros.selector.value.model import StateValue, ValueModel
from fdrl_ros.selector.value.monte_carlo_reference import reference
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.shield.shield import Shield, Veto

__all__ = [
    'HOLD',
    'Candidate',
    'GateSettings',
    'Experience',
    'Limiter',
    'LimiterSettings',
    'Observation',
    'PauseCommands',
    'Reason',
    'RiskGate',
    'SafetySettings',
    'Selection',
    'Selector',
    'SelectorSettings',
    'Shield',
    'ShieldSettings',
    'StateValue',
    'ValueBank',
    'ValueModel',
    'ValueSettings',
    'Veto',
    'fit_value',
    'measured_conformal_error',
    'reference',
    'returns_to_go',
]
