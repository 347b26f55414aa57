# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tissue: Hertz at rest, published table, dissipation, breathing."""

from dataclasses import dataclass, replace
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.surgery.arm.placement import KinematicArm
from fdrl_ros.surgery.arm.simulated_arm import DynamicArm
from fdrl_ros.surgery.gym.actions import SUBSTEP
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.procedures import procedure_named, PROCEDURES
from fdrl_ros.surgery.tissue.contact import contact_stiffness, tissue_of
from hypothesis import given, strategies
import numpy as np
import pybullet
import pytest
from support.thoroughness import sampled

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


@dataclass
class Press:
    """What happened at each sub-step: depth m, force on the tip N, tip m; and the arm."""

    depths: np.ndarray
    forces: np.ndarray
    tips: np.ndarray
    efforts: np.ndarray


def press(kind, patient, way, substep=SUBSTEP):
    """Follow set-points with an arm on tissue as an operation does: the force acts next."""
    arm, tissue = kind(substep), tissue_of(patient)
    x, y, _ = patient.goal
    arm.place((x, y, tissue.rest + 0.002), patient.servo_lag)
    force, depths, forces, tips = (0.0, 0.0, 0.0), [], [], []
    for index, setpoint in enumerate(way):
        arm.step(setpoint, force)
        height, rise = tissue.surface((index + 1) * substep)
        depth = height - arm.position[2]
        normal = tissue.normal_force(depth, rise - arm.velocity[2])
        force = (*tissue.friction_force(normal, *arm.velocity[:2]), normal)
        depths.append(depth)
        forces.append(force)
        tips.append(arm.position)
    efforts = arm.efforts() if isinstance(arm, DynamicArm) else np.zeros(3)
    arm.close()
    return Press(np.array(depths), np.array(forces), np.array(tips), efforts)


def down_and_hold(patient, depth, substep=SUBSTEP, seconds=1.0):
    """Yield one set-point below the surface for some time."""
    x, y, _ = patient.goal
    point = (x, y, tissue_of(patient).rest - depth)
    return [point] * round(seconds / substep)


@pytest.mark.parametrize('kind', [DynamicArm, KinematicArm])
@pytest.mark.parametrize('depth', [0.002, 0.005, 0.010])
@pytest.mark.parametrize('modulus', [2.7e3, 26.4e3])
def test_force_at_rest_is_that_of_hertz(kind, depth, modulus):
    patient = replace(STILL, young_modulus=modulus)
    done = press(kind, patient, down_and_hold(patient, depth))
    expected = (
        contact_stiffness(modulus, patient.procedure.contact_radius) * done.depths[-1] ** 1.5
    )
    assert done.depths[-1] == pytest.approx(depth, rel=1e-3)
    assert done.forces[-1, 2] == pytest.approx(expected, rel=0.01)
    if kind is DynamicArm:  # the motors carry just this: insertion along the shaft
        shaft = done.tips[-1] / np.linalg.norm(done.tips[-1])
        assert done.efforts[2] == pytest.approx(-shaft @ done.forces[-1], rel=0.01)


@pytest.mark.parametrize('kind', [DynamicArm, KinematicArm])
def test_ten_times_finer_substeps_change_the_steady_force_by_less_than_a_percent(kind):
    patient = replace(STILL, young_modulus=20e3)
    steady = [
        press(kind, patient, down_and_hold(patient, 0.006, each), each).forces[-1, 2]
        for each in (SUBSTEP, SUBSTEP / 10)
    ]
    assert steady[1] == pytest.approx(steady[0], rel=0.01)
    assert steady[0] > 0.3


def work_on_tissue(forces, tips):
    """Return the work done on the tissue, J, by the trapezoidal rule over sub-steps."""
    means = (forces[1:] + forces[:-1]) / 2
    return -float(np.sum(means * np.diff(tips, axis=0)))


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


@pytest.mark.parametrize(
    ('mode', 'cycles'), [('kinematic', sampled(1000, 100)), ('dynamic', sampled(100, 20))]
)
def test_an_operation_that_presses_rubs_and_lifts_takes_no_energy_from_tissue(mode, cycles):
    """Work by the trapezoidal rule over sub-steps, which may be wrong by 1e-3 of F times depth."""
    rng, operation = np.random.default_rng(1), Operation(WorldSettings(mode=mode))
    pressed = 0
    for _ in range(cycles):
        x, y, z = PATIENT.goal
        patient = replace(
            STILL,
            young_modulus=rng.uniform(2.7e3, 26e3),
            damping=rng.uniform(1.0, 5.0),
            friction=rng.uniform(0.1, 0.3),
            servo_lag=rng.uniform(0.02, 0.12),
            start=(x, y, z + STILL.registration_error + 0.002),
        )
        operation.reset(patient)
        depth, aside = rng.uniform(0.001, 0.012), rng.uniform(-0.005, 0.005, 2).tolist()
        below = x + aside[0], y + aside[1], operation.tissue.rest - depth
        forces, tips = [operation.force], [operation.arm.position]
        for target, most in ((below, rng.integers(20, 120)), (patient.start, 400)):
            operation.set_target(target)
            for _ in range(int(most)):
                operation.advance(1)
                forces.append(operation.force)
                tips.append(operation.arm.position)
                if target is patient.start and tips[-1][2] > operation.tissue.rest:
                    break
        assert tips[-1][2] > operation.tissue.rest and operation.load == 0.0
        pushes = np.array(forces)
        stored = pushes[:, 2].max() * depth
        assert work_on_tissue(pushes, np.array(tips)) >= -1e-3 * stored
        pressed += stored > 0.0
    assert pressed > 0.8 * cycles
    operation.close()


def test_tissue_feels_no_contact_of_the_physics_engine():
    arm = DynamicArm()
    assert pybullet.getNumBodies(arm.client) == 1
    assert pybullet.getCollisionShapeData(0, -1, arm.client) == ()
    for index in range(pybullet.getNumJoints(0, arm.client)):
        assert pybullet.getCollisionShapeData(0, index, arm.client) == ()
    arm.close()


@given(strategies.floats(-0.1, 0.1), strategies.floats(-0.1, 0.1))
def test_friction_opposes_sliding_and_stays_below_coulomb(x, y):
    tissue = tissue_of(PATIENT)
    force = tissue.friction_force(2.0, x, y)
    assert force[0] * x + force[1] * y <= 0.0
    assert math.hypot(*force) <= 2.0 * tissue.friction + 1e-12


def test_the_surface_breathes_about_its_true_height():
    tissue = tissue_of(PATIENT)
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
