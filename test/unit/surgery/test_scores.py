# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""NEWS2 and SOFA against their printed tables, and labs that are possible."""

import dataclasses
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.surgery.patient.labs import draw_labs, Labs, VitalsError
from fdrl_ros.surgery.patient.scores import fixed_points, news2, sofa
import numpy as np
import pytest

WELL = {'breathing': 16.0, 'saturation': 98.0, 'systolic': 120.0, 'pulse': 70.0}
# NEWS2 chart 1 (Royal College of Physicians 2017): last value of each band, and its points.
CHART = {
    'breathing': ([(8, 3), (11, 1), (20, 0), (24, 2), (60, 3)], 1),
    'saturation': ([(91, 3), (93, 2), (95, 1), (100, 0)], 1),
    'systolic': ([(90, 3), (100, 2), (110, 1), (219, 0), (300, 3)], 1),
    'pulse': ([(40, 3), (50, 1), (90, 0), (110, 1), (130, 2), (250, 3)], 1),
    'temperature': ([(35.0, 3), (36.0, 1), (38.0, 0), (39.0, 1), (43.0, 2)], 10),
}
SOFA = {
    'platelets': [(20.0, 4), (50.0, 3), (100.0, 2), (150.0, 1)],
    'bilirubin': [(1.2, 1), (2.0, 2), (6.0, 3), (12.0, 4)],
    'creatinine': [(1.2, 1), (2.0, 2), (3.5, 3), (5.0, 4)],
}


def news2_with(temperature=37.0, inspired_oxygen=0.21, glasgow_coma_scale=15, **signs):
    """Return NEWS2 of somebody who is well but for these signs."""
    labs = Labs(
        temperature=temperature,
        inspired_oxygen=inspired_oxygen,
        glasgow_coma_scale=glasgow_coma_scale,
    )
    return news2(fixed_points(labs)[0], **{**WELL, **signs})


def sofa_of(labs, pressure=80.0, saturation=100.0):
    unsupported = labs.norepinephrine == 0.0
    return sofa(fixed_points(labs)[1], pressure, unsupported, saturation / labs.inspired_oxygen)


@pytest.mark.parametrize('sign', CHART)
def test_news2_follows_the_chart_at_every_value_it_can_show(sign):
    bands, tenths = CHART[sign]
    first = 300 if sign == 'temperature' else 0
    for count in range(first, round(bands[-1][0] * tenths) + 1):
        value = count / tenths
        points = next(points for last, points in bands if value <= last)
        assert news2_with(**{sign: value}) == points, (sign, value)
        # Between two values of the chart, the nearer one counts; half way, the upper.
        half = 0.5 / tenths
        assert news2_with(**{sign: max(0.0, value - 0.99 * half)}) == points
        if value + half <= bands[-1][0]:
            assert news2_with(**{sign: value + 0.99 * half}) == points


def test_news2_of_oxygen_and_consciousness_and_its_greatest_value():
    assert (news2_with(), news2_with(inspired_oxygen=0.3)) == (0, 2)
    assert news2_with(glasgow_coma_scale=14) == 3
    assert news2_with(34.0, 0.3, 14, **dict(zip(WELL, (30, 80, 80, 140), strict=True))) == 20


@pytest.mark.parametrize('name', SOFA)
def test_sofa_follows_the_table_at_every_limit(name):
    few = name == 'platelets'
    for limit, points in SOFA[name]:
        below = sofa_of(Labs(**{name: math.nextafter(limit, 0.0)}))
        at = sofa_of(Labs(**{name: limit}))
        assert (below, at) == ((points, points - 1) if few else (points - 1, points))


def test_sofa_of_breathing_consciousness_pressure_and_vasopressors():
    for limit, points in ((67, 4), (142, 3), (221, 2), (302, 1)):
        for ratio, expected in ((limit, points), (math.nextafter(limit, 999.0), points - 1)):
            assert sofa(0, 80.0, 1, ratio) == expected
    scales = [sofa_of(Labs(glasgow_coma_scale=scale)) for scale in range(3, 16)]
    assert scales == [4, 4, 4, 3, 3, 3, 3, 2, 2, 2, 1, 1, 0]
    assert [sofa_of(Labs(), each) for each in (0.0, 69.999, 70.0, 120.0)] == [1, 1, 0, 0]
    for pressure in (50.0, 90.0):
        for dose, points in ((1e-6, 3), (0.1, 3), (math.nextafter(0.1, 1.0), 4), (2.0, 4)):
            assert sofa_of(Labs(norepinephrine=dose), pressure) == points


@pytest.mark.parametrize(
    'wrong',
    [
        *({each.name: bad} for each in dataclasses.fields(Labs) for bad in (math.nan, -1.0)),
        *({'glasgow_coma_scale': bad} for bad in (2, 16, 9.5, True)),
        {'inspired_oxygen': 0.2},
        {'inspired_oxygen': 1.01},
        {'temperature': 60.0},
        {'platelets': 'few'},
        {'norepinephrine': None},
    ],
)
def test_labs_refuse_what_no_patient_has(wrong):
    with pytest.raises(VitalsError, match=next(iter(wrong))):
        Labs(**wrong)


def test_labs_run_from_healthy_to_septic_shock():
    """Sick ends: PMC4966698 Table 1. False alarm: below 1 in 1000; the seeds are fixed."""
    draws = {
        level: [draw_labs(np.random.default_rng([7, each]), level) for each in range(600)]
        for level in (0.0, 0.25, 0.5, 0.75, 1.0)
    }
    totals = {
        level: np.array([sofa_of(each, 90.0 - 20.0 * level, 97.0) for each in labs])
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
