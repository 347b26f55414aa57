# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What vital signs do within operations, at the pace of life and faster, with 300 patients at H = 1.

Takes about half a minute: `make nightly ARGS='-k pace --save docs/results/pace.json'`.
"""

from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.cohort import mixture
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import vector_expert_costs
from fdrl_ros.surgery.tasks.outcome import FAILURES
import numpy as np
import pytest

SETTINGS = {'seed': 2026, 'hospitals': 3, 'patients': 300, 'heterogeneity': 1.0}
STAY = 12

pytestmark = pytest.mark.slow


def operated(pace, hands):
    """Return how often NEWS2 changed, how far MAP went, and what 300 operations came to."""
    count = SETTINGS['patients']
    people = mixture(SETTINGS['hospitals'], SETTINGS['heterogeneity'], SETTINGS['seed'], 'all')
    batch = VectorOperation(
        [people.patient(each) for each in range(count)], WorldSettings(mode='kinematic', pace=pace)
    )
    batch.reset()
    info, who = batch.info(), np.arange(count)
    news2, pressure = info['news2'], info['mean_arterial_pressure']
    changed, moved = np.zeros(count, bool), np.zeros(count)
    failures, won = np.zeros(count, int), np.zeros(count, bool)
    while len(who):
        expert = hands == 'expert'
        actions = vector_expert_costs(batch).argmin(axis=1) if expert else np.full(len(who), STAY)
        *_, info = batch.step(actions)
        changed[who] |= info['news2'] != news2[who]
        way = abs(info['mean_arterial_pressure'] - pressure[who])
        moved[who] = np.maximum(moved[who], way)
        failures[who], won[who] = info['failure'], info['success']
        going = np.flatnonzero(~batch.over)
        who = who[going]
        if len(going):
            batch.select(going)
    return {
        'pace': pace,
        'hands': hands,
        'news2_changed': int(changed.sum()),
        'pressure_moved_90': round(float(np.quantile(moved, 0.9)), 2),
        'pressure_moved_99': round(float(np.quantile(moved, 0.99)), 2),
        'vitals': int((failures == FAILURES.index('vitals')).sum()),
        'successes': int(won.sum()),
    }


@pytest.mark.parametrize('hands', ['expert', 'stay'])
def test_at_a_faster_pace_more_happens_to_patients_within_operations(hands, figures):
    found = [operated(pace, hands) for pace in (1.0, 20.0, 60.0)]
    for figure in found:
        figures.append(figure)
    for name in ('news2_changed', 'pressure_moved_90', 'pressure_moved_99', 'vitals'):
        values = [each[name] for each in found]
        assert values == sorted(values) and values[-1] > values[0]
    assert found[0]['vitals'] == 0
