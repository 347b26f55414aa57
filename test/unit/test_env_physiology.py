# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Vitals: published bands and what pushes them."""

import dataclasses

from fdrl_ros.env.patient import public_cohort
from fdrl_ros.env.physiology import Physiology
import pytest

PATIENT = dataclasses.replace(
    public_cohort(0).patient(0),
    mean_arterial_pressure=88.0,
    heart_rate=74.0,
    oxygen_saturation=98.0,
    respiratory_rate=16.0,
)


def settled(loss, **given):
    body = Physiology(PATIENT, insufflated=False)
    body.bleed(loss * 5000.0)
    for _ in range(4000):
        body.advance(0.05, **given)
    return body.vitals


def test_a_healthy_patient_stays_as_measured():
    assert dataclasses.astuple(settled(0.0)) == pytest.approx((88.0, 74.0, 98.0, 16.0))


def test_gas_raises_pressure_as_published():
    body = Physiology(PATIENT)
    before = body.values()
    for _ in range(2000):
        body.advance(0.05)
    assert body.values() == pytest.approx(before)
    assert before[0] - 88.0 == pytest.approx(20.8)
    assert before[1] == pytest.approx(78.6)


@pytest.mark.parametrize(
    ('loss', 'low', 'high'),
    [(0.10, 60, 100), (0.25, 100, 120), (0.36, 120, 145), (0.43, 135, 181)],
)
def test_heart_rate_follows_the_classes_of_blood_loss(loss, low, high):
    assert low <= settled(loss).heart_rate <= high


def test_pressure_holds_in_class_two_and_falls_in_class_four():
    assert settled(0.15).mean_arterial_pressure > 80
    assert settled(0.45).mean_arterial_pressure < 75


def test_force_hurts_and_damage_bleeds():
    calm, hurt = settled(0.0), settled(0.0, force=5.0)
    assert hurt.heart_rate > calm.heart_rate
    assert hurt.mean_arterial_pressure > calm.mean_arterial_pressure
    wounded = Physiology(PATIENT)
    for _ in range(1200):
        wounded.advance(0.05, damage=0.1)
    assert wounded.blood_loss > 10.0


def test_a_minute_of_low_pressure_is_hypotension():
    body = Physiology(PATIENT, insufflated=False)
    body.bleed(0.52 * 5000)
    seconds = 0.0
    while not body.hypotensive:
        body.advance(0.05)
        seconds += 0.05
        assert seconds < 300
    assert seconds >= 60.0
    assert body.vitals.mean_arterial_pressure < 65
    assert body.vitals.oxygen_saturation < 98
