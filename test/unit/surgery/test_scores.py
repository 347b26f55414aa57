# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""NEWS2 and SOFA against their printed tables, and labs that are possible."""

import dataclasses
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.surgery.patient.labs import draw_labs, Labs, VitalsError
from fdrl_ros.surgery.patient.scores import (
    cardiovascular,
    news2,
    respiration,
    sofa,
)
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

WELL = {
    'respiratory_rate': 16.0,
    'oxygen_saturation': 98.0,
    'systolic_pressure': 120.0,
    'pulse': 70.0,
}
# NEWS2 chart 1 (Royal College of Physicians 2017): last value of each band, and its points.
CHART = {
    'respiratory_rate': ([(8, 3), (11, 1), (20, 0), (24, 2), (60, 3)], 1),
    'oxygen_saturation': ([(91, 3), (93, 2), (95, 1), (100, 0)], 1),
    'systolic_pressure': ([(90, 3), (100, 2), (110, 1), (219, 0), (300, 3)], 1),
    'pulse': ([(40, 3), (50, 1), (90, 0), (110, 1), (130, 2), (250, 3)], 1),
    'temperature': ([(35.0, 3), (36.0, 1), (38.0, 0), (39.0, 1), (43.0, 2)], 10),
}


def news2_with(temperature=37.0, supplemental_oxygen=False, alert=True, **signs):
    """Return NEWS2 of somebody who is well but for these signs."""
    oxygen, scale = (0.3 if supplemental_oxygen else 0.21), (15 if alert else 14)
    labs = Labs(temperature=temperature, inspired_oxygen=oxygen, glasgow_coma_scale=scale)
    return news2(labs, **{**WELL, **signs})


def sofa_with(**labs):
    """Return SOFA of somebody who is fit but for these labs."""
    return sofa(Labs(inspired_oxygen=0.3, **labs), 80.0, 100.0)


@pytest.mark.parametrize('sign', CHART)
def test_news2_follows_the_chart_at_every_value_it_can_show(sign):
    bands, tenths = CHART[sign]
    first = 300 if sign == 'temperature' else 0
    for count in range(first, round(bands[-1][0] * tenths) + 1):
        value = count / tenths
        points = next(points for last, points in bands if value <= last)
        score = news2_with(**{sign: value})
        assert getattr(score, sign) == points, (sign, value)
        assert score.total == points
        # Between two values of the chart, the nearer one counts; half way, the upper.
        half = 0.5 / tenths
        assert news2_with(**{sign: max(0.0, value - 0.99 * half)}) == score
        if value + half <= bands[-1][0]:
            assert news2_with(**{sign: value + 0.99 * half}) == score


def test_news2_of_oxygen_and_consciousness():
    assert news2_with(supplemental_oxygen=True) == (0, 0, 2, 0, 0, 0, 0)
    assert news2_with(alert=False) == (0, 0, 0, 0, 0, 3, 0)


def test_news2_spans_0_to_20():
    assert news2_with().total == 0
    worst = Labs(temperature=34.0, inspired_oxygen=0.3, glasgow_coma_scale=14)
    assert news2(worst, 30.0, 80.0, 80.0, 140.0).total == 20


def test_sofa_scores_too_few_platelets_below_each_limit():
    for limit, points in ((20.0, 4), (50.0, 3), (100.0, 2), (150.0, 1)):
        below = sofa_with(**{'platelets': math.nextafter(limit, 0.0)})
        at = sofa_with(**{'platelets': limit})
        assert (below.total, at.total, below.coagulation) == (points, points - 1, points)


@pytest.mark.parametrize(
    ('name', 'organ', 'limits'),
    [('bilirubin', 'liver', (1.2, 2.0, 6.0, 12.0)), ('creatinine', 'renal', (1.2, 2.0, 3.5, 5.0))],
)
def test_sofa_scores_too_much_from_each_limit_on(name, organ, limits):
    for points, limit in enumerate(limits, 1):
        below = sofa_with(**{name: math.nextafter(limit, 0.0)})
        at = sofa_with(**{name: limit})
        assert (below.total, at.total, getattr(at, organ)) == (points - 1, points, points)


def test_sofa_of_breathing_by_saturation():
    for limit, points in ((67, 4), (142, 3), (221, 2), (302, 1)):
        for ratio, expected in ((limit, points), (math.nextafter(limit, 999.0), points - 1)):
            assert respiration(ratio) == expected


def test_sofa_of_the_coma_scale():
    expected = [4, 4, 4, 3, 3, 3, 3, 2, 2, 2, 1, 1, 0]
    for scale, points in zip(range(3, 16), expected, strict=True):
        assert sofa_with(**{'glasgow_coma_scale': scale}).total == points


def test_sofa_of_pressure_and_vasopressors():
    assert [cardiovascular(each) for each in (0.0, 69.999, 70.0, 120.0)] == [1, 1, 0, 0]
    for pressure in (50.0, 90.0):
        for dose, points in ((1e-6, 3), (0.1, 3), (math.nextafter(0.1, 1.0), 4), (2.0, 4)):
            assert cardiovascular(pressure, dose) == points


IMPOSSIBLE = [math.nan, math.inf, -math.inf, -1.0]


@pytest.mark.parametrize('value', IMPOSSIBLE)
def test_scores_refuse_what_no_patient_has(value):
    for sign in WELL:
        with pytest.raises(VitalsError, match=sign):
            news2_with(**{sign: value})
    for refused in (
        lambda: respiration(value),
        lambda: cardiovascular(value),
        lambda: cardiovascular(80.0, value),
        lambda: sofa(Labs(), value, 97.0),
    ):
        with pytest.raises(VitalsError):
            refused()
    with pytest.raises(VitalsError):
        sofa(Labs(), 80.0, value)
    for each in dataclasses.fields(Labs):
        with pytest.raises(VitalsError, match=each.name):
            Labs(**{each.name: value})


@pytest.mark.parametrize(
    'wrong',
    [
        {'glasgow_coma_scale': 2},
        {'glasgow_coma_scale': 16},
        {'glasgow_coma_scale': 9.5},
        {'inspired_oxygen': 0.2},
        {'inspired_oxygen': 1.01},
        {'temperature': 5.0},
        {'temperature': 60.0},
        {'platelets': 'few'},
        {'norepinephrine': None},
        {'glasgow_coma_scale': True},
    ],
)
def test_labs_refuse_what_no_patient_has(wrong):
    with pytest.raises(VitalsError, match=next(iter(wrong))):
        Labs(**wrong)


def test_saturations_above_100_are_refused():
    with pytest.raises(VitalsError):
        news2_with(oxygen_saturation=100.1)
    with pytest.raises(VitalsError):
        sofa(Labs(), 80.0, 100.1)


@given(st.integers(0, 10**6), st.floats(0.0, 1.0), st.floats(0.0, 100.0), st.floats(0.0, 200.0))
def test_sofa_of_drawn_labs_moves_with_pressure_and_saturation_alone(seed, severity, oxygen, mean):
    labs = draw_labs(np.random.default_rng(seed), severity)
    score, calm = sofa(labs, mean, oxygen), sofa(labs, 90.0, 100.0)
    assert 0 <= score.total <= 24
    for organ in ('coagulation', 'liver', 'nervous', 'renal'):
        assert getattr(score, organ) == getattr(calm, organ)
    assert score.respiration >= calm.respiration
    assert score.cardiovascular >= calm.cardiovascular


def test_labs_run_from_healthy_to_septic_shock():
    """Sick ends: PMC4966698 Table 1. False alarm: below 1 in 1000; the seeds are fixed."""
    draws = {
        level: [draw_labs(np.random.default_rng([7, each]), level) for each in range(600)]
        for level in (0.0, 0.25, 0.5, 0.75, 1.0)
    }
    totals = {
        level: np.array([sofa(each, 90.0 - 20.0 * level, 97.0).total for each in labs])
        for level, labs in draws.items()
    }
    assert totals[0.0].mean() < 0.5 and totals[0.0].max() <= 3
    assert np.all(np.diff([each.mean() for each in totals.values()]) > 0.5)
    assert 11.42 - 3.74 < totals[1.0].mean() < 11.42 + 3.74
    sick = {
        name: [getattr(each, name) for each in draws[1.0]] for name in ('platelets', 'lactate')
    }
    assert np.mean(sick['platelets']) == pytest.approx(127.6, rel=0.1)
    assert np.mean(sick['lactate']) == pytest.approx(6.03, rel=0.15)
    assert all(each.norepinephrine == 0.0 for each in draws[0.5])
    doses = [each.norepinephrine for each in draws[1.0]]
    assert np.quantile(doses, [0.25, 0.5, 0.75]) == pytest.approx([0.147, 0.24, 0.393], rel=0.15)


def test_labs_are_drawn_alike_and_move_smoothly_with_severity():
    one, two = np.random.default_rng(3), np.random.default_rng(3)
    mild, close = draw_labs(one, 0.4), draw_labs(two, 0.4001)
    assert draw_labs(np.random.default_rng(3), 0.4) == mild
    assert one.random() == two.random()
    for name in ('platelets', 'bilirubin', 'creatinine', 'lactate', 'temperature'):
        assert getattr(mild, name) == pytest.approx(getattr(close, name), rel=1e-3)


@pytest.mark.parametrize('severity', [-0.1, 1.1, math.nan])
def test_a_severity_beyond_0_to_1_is_refused(severity):
    with pytest.raises(SettingError, match='severity'):
        draw_labs(np.random.default_rng(0), severity)
