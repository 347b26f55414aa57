# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is measured of an episode is what its operation says, tick by tick."""

from dataclasses import replace
import math

from fdrl_ros.errors import StateError
from fdrl_ros.metrics.task import task_accuracy
from fdrl_ros.surgery.gym.actions import action_numbered, SUBSTEP, SUBSTEPS
from fdrl_ros.surgery.gym.episode import run_episode
from fdrl_ros.surgery.gym.episode_metrics import episode_metrics, states_met
from fdrl_ros.surgery.gym.operation import FORCE_LEVELS, Operation
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import mixture
from fdrl_ros.surgery.patient.events import Event
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
import pytest

WORLD = WorldSettings(mode='kinematic')


def bleeding_patient():
    """Return who falls below 65 mmHg in the middle of a retraction, and gets worse."""
    patient = mixture(3, 1.0, 5, ('retraction',)).patient(2)
    events = (Event('bleed', 0.2, 2.0, 600.0), Event('desaturation', 0.3, 2.0, 90.0))
    return replace(patient, mean_arterial_pressure=45.0, events=events)


def test_metrics_of_an_episode_are_what_an_operation_beside_it_says():
    patient, rng = bleeding_patient(), np.random.default_rng(1)
    env = SurgeryEnv(settings=WORLD)
    episode = run_episode(env, lambda state: 4 if rng.random() < 0.45 else 12, patient)
    env.close()
    operation = Operation(WORLD)
    operation.reset(patient)
    tips, loads, pressures = [operation.arm.position], [], []
    scores = [operation.physiology.scores()]
    for number in episode.actions.tolist():
        operation.act(action_numbered(number))
        for _ in range(SUBSTEPS):
            operation.advance(1)
            loads.append(operation.load)
        outcome = operation.tick()
        tips.append(operation.arm.position)
        pressures.append(operation.physiology.pressure)
        scores.append(operation.physiology.scores())
    news2, sofa = zip(*scores, strict=True)
    above = {level: sum(load > level for load in loads) * SUBSTEP for level in FORCE_LEVELS}
    expected = {
        'patient': patient.name,
        'procedure': 'retraction',
        'success': outcome.success,
        'failure': outcome.failure,
        'time': operation.time,
        'path_length': sum(map(math.dist, tips, tips[1:])),
        'peak_force': max(loads),
        'mean_force': sum(loads) / len(loads),
        'time_above_gentle': above[0.8],
        'time_above_firm': above[3.4],
        'time_above_severe': above[6.5],
        'force_time': sum(loads) * SUBSTEP,
        'damage': operation.damage,
        'low_pressure_time': operation.physiology.low_time,
        'worst_news2': max(news2),
        'worst_sofa': max(sofa),
    }
    # Nothing of it is the same by being nothing, or by never changing.
    assert operation.done and outcome.failure == 'force'
    assert 0.0 < above[3.4] < above[0.8] < operation.time and operation.damage > 0.0
    assert max(pressures) > 65.0 > min(pressures) and 0.0 < operation.physiology.low_time
    assert news2[0] < news2[-1] == max(news2)
    measured = episode_metrics(episode)
    for name, value in expected.items():
        found = getattr(measured, name)
        assert found == (pytest.approx(value, rel=1e-9) if type(value) is float else value), name
    met = states_met(episode, WORLD)
    accuracy, judged = (
        task_accuracy(met, episode.actions),
        episode_metrics(episode, met, episode.actions),
    )
    assert (judged.task_exact, judged.ceiling_exact) == (accuracy.exact, accuracy.ceiling_exact)
    assert judged.states == met.digest and math.isnan(measured.task_exact)
    # Here every declared metric has a value: one that nobody fills would keep its default.
    assert not [name for name, value in vars(judged).items() if value == '' or value != value]
    with pytest.raises(StateError, match='both'):
        episode_metrics(episode, met)
