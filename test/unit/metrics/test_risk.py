# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Risk and its mitigation score: closed forms, bounds, and online against batch."""

import math

from fdrl_ros.errors import StateError
from fdrl_ros.metrics.risk import risk_terms, RiskMeter
import numpy as np
import pytest
from support.sample_size import sampled


def test_terms_match_the_formula_by_hand():
    terms = risk_terms([1.7, 5.0], [30.0, 600.0], [False, True], 3.4)
    np.testing.assert_allclose(terms.force, [0.5, 1.0])
    np.testing.assert_allclose(terms.damage, [0.1, 1.0])
    np.testing.assert_allclose(terms.critical, [0.0, 1.0])
    np.testing.assert_allclose(terms.total, [0.4 * 0.5 + 0.4 * 0.1, 1.0])


def test_online_does_not_drift_over_a_long_operation():
    meter = RiskMeter()
    for _ in range(sampled(200_000, 30_000)):
        risk = meter.add(0.1, 0.0, False, 3.4)
    assert abs(risk.mitigation - (1.0 - 0.4 * 0.1 / 3.4)) < 1e-14


@pytest.mark.parametrize(
    'bad', [(math.nan, 0, 1), (-1, 0, 1), (1, math.inf, 1), (1, 0, 0), (1, 0, math.nan)]
)
def test_impossible_numbers_are_refused_in_both_forms(bad):
    force, damage, limit = bad
    for refuse in (risk_terms, RiskMeter().add):
        with pytest.raises(StateError):
            refuse(force, damage, False, limit)
