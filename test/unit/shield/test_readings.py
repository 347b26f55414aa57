# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One wrong reading of the force neither lets force pass the hard stop nor stops the robot."""

from fdrl_ros.selector import ShieldSettings
from fdrl_ros.shield.prediction import compiled_prediction
from fdrl_ros.shield.shield import BatchShield, COARSE_UP
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.state import INDEX
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.tasks.expert import vector_expert_costs
from fdrl_ros.surgery.tasks.outcome import HARD_STOP
from fdrl_ros.surgery.tasks.procedures import procedure_named
from fdrl_ros.surgery.tissue.contact import contact_stiffness
import numpy as np
import pytest

DOWN, ROWS, SETTINGS = 4, 20, ShieldSettings()
FORCE, TOUCHED = INDEX['force'], INDEX['contact']
READINGS = (0.0, 0.5, 9.9)
"""What the sensor says once, N; of the second, times the force that there is."""


def said(true, reading):
    """Return a wrong reading for forces, N."""
    return reading * true if reading == 0.5 else np.full_like(true, reading)


def operate(reading, choose, ticks, procedure='retraction', seed=5):
    """
    Operate with one wrong reading for each robot, in one of its first ticks in contact.

    Yield the shields, the patients left, and what the tick brought.
    """
    cohort = public_cohort(seed, 1.0, (procedure,))
    patients = np.array([cohort.patient(each, 'test') for each in range(ROWS)])
    batch = VectorOperation(patients.tolist())
    batch.reset()
    shield = BatchShield(SETTINGS, procedure, ROWS)
    wrong = np.random.default_rng(0).integers(1, 8, ROWS)
    felt = np.zeros(ROWS)
    for tick in range(ticks):
        values = batch.values()
        felt += values[:, TOUCHED] > 0.0
        now = (felt == wrong) & (values[:, TOUCHED] > 0.0)
        values[now, FORCE] = said(values[now, FORCE], reading)
        decisions = shield.review(values, choose(batch, tick))
        brought = batch.step(np.array([each.action for each in decisions]))[4]
        yield shield.shields, patients, brought, batch.over
        rows = np.flatnonzero(~batch.over)
        if not len(rows):
            return
        batch.select(rows)
        shield.select(rows)
        patients, wrong, felt = patients[rows], wrong[rows], felt[rows]


def down(batch, tick):
    return np.full(len(batch.over), DOWN)


def down_and_up(batch, tick):
    """Press and let go, so that there is much to be learned of the tissue."""
    return np.full(len(batch.over), DOWN if tick % 6 < 4 else COARSE_UP)


def expert(batch, tick):
    return vector_expert_costs(batch).argmin(axis=1)


@pytest.mark.parametrize('reading', READINGS)
@pytest.mark.parametrize('choose', [down, down_and_up])
def test_one_wrong_reading_leaves_out_no_tissue_that_is_true(reading, choose):
    radius, left_out = procedure_named('retraction').contact_radius, 0
    spans = compiled_prediction(SETTINGS.wide(), radius).spans
    for shields, patients, _, _ in operate(reading, choose, 60):
        for shield, patient in zip(shields, patients, strict=True):
            kappa = contact_stiffness(patient.young_modulus, radius) ** (2 / 3)
            kinds = shield.bounds.estimator.kinds[0].kinds
            alive = [kind.slow <= kind.fast for kind in kinds]
            left_out += alive.count(False)
            assert any(
                possible and soft * (1 - 1e-12) <= kappa <= stiff * (1 + 1e-12)
                for possible, (soft, stiff) in zip(alive, spans, strict=True)
            )
    assert left_out > 0


@pytest.mark.parametrize('reading', READINGS)
def test_one_wrong_reading_lets_no_force_pass_the_hard_stop(reading):
    peaks = [brought['peak_force'].max() for _, _, brought, _ in operate(reading, down, 60)]
    assert max(peaks) < HARD_STOP


@pytest.mark.parametrize('reading', READINGS)
def test_an_expert_succeeds_though_a_reading_was_wrong(reading):
    succeeded = sum(
        int(brought['success'][over].sum())
        for _, _, brought, over in operate(reading, expert, round(60.0 / TICK))
    )
    assert succeeded == ROWS
