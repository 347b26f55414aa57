# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tissue: Hertz at rest, published table, dissipation, breathing."""

from dataclasses import replace
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.surgery.arm.kinematic_arm import KinematicArm
from fdrl_ros.surgery.arm.simulated_arm import DynamicArm
from fdrl_ros.surgery.gym.actions import SUBSTEP
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.tasks.procedures import procedure_named, PROCEDURES
from fdrl_ros.surgery.tissue.contact import contact_stiffness, tissue_of
from hypothesis import given, strategies
import numpy as np
import pybullet
import pytest
from support.sample_size import sampled

PATIENT = replace(public_cohort(0).patient(0), procedure=procedure_named('palpation'))
STILL = replace(PATIENT, breathing_amplitude=0.0, events=())


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
    tissue = tissue_of(PATIENT)
    force = tissue.normal_force(depth)
    assert force == pytest.approx(tissue.stiffness * depth**1.5, rel=1e-12)
    assert tissue.depth_for(force) == pytest.approx(depth, rel=1e-9)


def test_the_surface_never_pulls_and_air_has_no_force():
    tissue = tissue_of(PATIENT)
    assert tissue.normal_force(0.0) == tissue.normal_force(-0.01, 1.0) == 0.0
    assert tissue.normal_force(0.001, -10.0) == 0.0


def steady_force(kind, patient, depth, substep):
    """Press with an arm on tissue as an operation does, the force acts next, and hold for 1 s."""
    arm, tissue = kind(substep), tissue_of(patient)
    x, y, _ = patient.goal
    arm.place((x, y, tissue.rest + 0.002), patient.servo_lag)
    goal, force = (x, y, tissue.rest - depth), (0.0, 0.0, 0.0)
    for index in range(1, round(1.0 / substep)):
        arm.step(goal, force)
        height, rise = tissue.surface(index * substep)
        normal = tissue.normal_force(height - arm.position[2], rise - arm.velocity[2])
        force = (*tissue.friction_force(normal, *arm.velocity[:2]), normal)
    arm.close()
    return force[2]


@pytest.mark.parametrize('kind', [DynamicArm, KinematicArm])
def test_ten_times_finer_substeps_change_the_steady_force_by_less_than_a_percent(kind):
    patient = replace(STILL, young_modulus=20e3)
    steady = [steady_force(kind, patient, 0.006, each) for each in (SUBSTEP, SUBSTEP / 10)]
    assert steady[1] == pytest.approx(steady[0], rel=0.01)
    assert steady[0] > 0.3


def test_a_thousand_cycles_of_pressing_and_releasing_never_give_energy_back():
    rng, tissue = np.random.default_rng(0), tissue_of(PATIENT)
    angles = np.linspace(0.0, 2 * math.pi, 401)
    for _ in range(sampled(1000, 200)):
        peak, period, sharp = rng.uniform((0.0005, 0.02, 1), (0.02, 2.0, 4))
        depths = peak * ((1 - np.cos(angles)) / 2) ** sharp
        speeds = np.gradient(depths, angles) * 2 * math.pi / period
        forces = [
            tissue.normal_force(*each)
            for each in zip(depths.tolist(), speeds.tolist(), strict=True)
        ]
        work = np.trapezoid(forces, depths)
        stored = tissue.normal_force(peak) * peak
        assert work > -1e-6 * stored  # what the rule itself may be wrong by


def test_tissue_feels_no_contact_of_the_physics_engine():
    arm = DynamicArm()
    assert pybullet.getNumBodies(arm.client) == 1
    assert pybullet.getCollisionShapeData(0, -1, arm.client) == ()
    for index in range(pybullet.getNumJoints(0, arm.client)):
        assert pybullet.getCollisionShapeData(0, index, arm.client) == ()
    arm.close()


def test_procedures_have_a_band_below_their_limit():
    for each in PROCEDURES:
        assert each.target_force + each.tolerance < each.force_limit
        if each.target_force > 0:
            assert 0 < each.tolerance < each.target_force
        assert procedure_named(each.name) is each
    with pytest.raises(SettingError, match='suturing'):
        procedure_named('suturing')
