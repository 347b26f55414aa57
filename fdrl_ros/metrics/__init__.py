# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is measured: episodes, task accuracy, risk, adaptation, divergence. Needs numpy alone."""

from fdrl_ros.metrics.adaptation import (
    Adaptation,
    AdaptationMeter,
    alpha_adapt,
    Rates,
    state_change,
    variation_rate,
)
from fdrl_ros.metrics.divergence import central_divergence, federated_divergence, kl_divergence
from fdrl_ros.metrics.episode import EpisodeMetrics, measure_episode
from fdrl_ros.metrics.risk import (
    Mitigation,
    r_mit,
    Risk,
    risk_terms,
    RiskMeter,
    RiskTerms,
    RiskWeights,
)
from fdrl_ros.metrics.task import StateSet, task_accuracy, TaskAccuracy

__all__ = [
    'Adaptation',
    'AdaptationMeter',
    'EpisodeMetrics',
    'Mitigation',
    'Rates',
    'Risk',
    'RiskMeter',
    'RiskTerms',
    'RiskWeights',
    'StateSet',
    'TaskAccuracy',
    'alpha_adapt',
    'central_divergence',
    'federated_divergence',
    'kl_divergence',
    'measure_episode',
    'r_mit',
    'risk_terms',
    'state_change',
    'task_accuracy',
    'variation_rate',
]
