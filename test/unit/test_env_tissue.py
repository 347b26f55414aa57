# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tissue: Hertz at rest, published table, dissipation, breathing."""

import math

from fdrl_ros.env.patient import public_cohort
from fdrl_ros.env.procedures import procedure_named, PROCEDURES
from fdrl_ros.env.tissue import contact_stiffness, Tissue
from fdrl_ros.errors import SettingError
from hypothesis import given, settings, strategies
import numpy as np
import pytest

PATIENT = public_cohort(0).patient(0)


@pytest.mark.parametrize(
    ('kilopascal', 'stiffness', 'at_2', 'at_5', 'at_10'),
    [(4.7, 452, 0.04, 0.16, 0.45), (13, 1249, 0.11, 0.44, 1.25), (26.4, 2537, 0.23, 0.90, 2.54)],
)
def test_hertz_gives_the_table_of_our_sources(kilopascal, stiffness, at_2, at_5, at_10):
    value = contact_stiffness(kilopascal * 1e3, 0.003)
    assert value == pytest.approx(stiffness, rel=2e-3)
    for depth, force in ((0.002, at_2), (0.005, at_5), (0.010, at_10)):
        assert value * depth**1.5 == pytest.approx(force, abs=0.006)


@given(strategies.floats(1e-5, 0.04))
def test_the_depth_for_a_force_is_where_that_force_is(depth):
    tissue = Tissue(PATIENT)
    force = tissue.normal_force(depth)
    assert force == pytest.approx(tissue.stiffness * depth**1.5, rel=1e-12)
    assert tissue.depth_for(force) == pytest.approx(depth, rel=1e-9)


def test_the_surface_never_pulls_and_air_has_no_force():
    tissue = Tissue(PATIENT)
    assert tissue.normal_force(0.0) == tissue.normal_force(-0.01, 1.0) == 0.0
    assert tissue.normal_force(0.001, -10.0) == 0.0


@given(strategies.lists(strategies.floats(0.0005, 0.02), min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_pressing_and_releasing_never_gives_energy_back(depths):
    tissue, period, work, last = Tissue(PATIENT), 1e-4, 0.0, 0.0
    for peak in depths:
        for angle in np.arange(0.0, 2 * math.pi, 0.02):
            depth = peak * (1 - math.cos(angle)) / 2
            middle = (depth + last) / 2
            work += tissue.normal_force(middle, (depth - last) / period) * (depth - last)
            last = depth
    assert work >= 0.0


@given(strategies.floats(-0.1, 0.1), strategies.floats(-0.1, 0.1))
def test_friction_opposes_sliding_and_stays_below_coulomb(x, y):
    tissue = Tissue(PATIENT)
    force = tissue.friction_force(2.0, x, y)
    assert force[0] * x + force[1] * y <= 0.0
    assert math.hypot(*force) <= 2.0 * tissue.friction + 1e-12


def test_the_surface_breathes_about_its_true_height():
    tissue = Tissue(PATIENT)
    period = 60.0 / PATIENT.respiratory_rate
    heights = [tissue.surface(each)[0] for each in np.linspace(0, period, 1001)[:-1]]
    true = PATIENT.goal[2] + PATIENT.registration_error
    assert np.mean(heights) == pytest.approx(true, abs=1e-9)
    assert max(heights) - true == pytest.approx(PATIENT.breathing_amplitude, rel=1e-3)
    slope = (tissue.surface(1.0001)[0] - tissue.surface(0.9999)[0]) / 0.0002
    assert tissue.surface(1.0)[1] == pytest.approx(slope, rel=1e-4)


def test_procedures_have_a_band_below_their_limit():
    for each in PROCEDURES:
        assert each.target_force + each.tolerance < each.force_limit
        if each.target_force > 0:
            assert 0 < each.tolerance < each.target_force
        assert procedure_named(each.name) is each
    with pytest.raises(SettingError, match='suturing'):
        procedure_named('suturing')
