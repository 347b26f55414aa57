# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The audit over five seeds: how near its bounds come to the claim, and that it finds no fault.

Takes some minutes on one core, so it is not part of `make test`: run `make nightly
NIGHTLY=test/nightly/test_audit.py ARGS='--save docs/results/audit.json'` to keep the figures.
"""

from fdrl_ros.audit.privacy_audit import AuditSettings, BOUNDS
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.studies.audit import run_audit
import numpy as np
import pytest

SEEDS = range(1, 6)
AUDIT = AuditSettings()
SETTINGS = {'failure': AUDIT.failure, 'canaries': AUDIT.canaries, 'seeds': [*SEEDS]}
ALONE = {
    'federation': {'noise': 'seeded'},
    'evaluation': {'workers': 1},
    'collection': {'guide': 'expert'},
    'world': {'mode': 'kinematic', 'horizon': 20},
}
"""500 patients whose records are made quickly: they are known to the adversary anyway."""
FREE = {'budget': 1000.0, 'delta': 1e-5}

DP_DQN = 'sigma 2.6, q 0.256, 288 steps'
CASES = {
    'sigma 1, q 1, 1 step': {
        'privacy': {**FREE, 'noise_multiplier': 1.0, 'batch': 500},
        'rounds': {'rounds': 1},
        'learner': {'epochs': 1},
    },
    'sigma 1, q 0.1, 100 steps': {
        'privacy': {**FREE, 'noise_multiplier': 1.0, 'batch': 50},
        'rounds': {'rounds': 2},
        'learner': {'epochs': 5},
    },
    'sigma 4, q 0.25, 200 steps': {
        'privacy': {**FREE, 'noise_multiplier': 4.0, 'batch': 125},
        'rounds': {'rounds': 5},
        'learner': {'epochs': 10},
    },
    DP_DQN: {
        'privacy': {**FREE, 'noise_multiplier': 2.6, 'batch': 128},
        'rounds': {'rounds': 6},
        'learner': {'epochs': 12},
    },
}
LEAST = {'estimated': 0.9, 'bound': 0.05, 'by_errors': 0.5}
"""Share of the claim that the mean over seeds must reach, where a history has many steps."""
TOGETHER = {
    '0.95': {'estimated': 0.95, 'bound': 0.4, 'by_errors': 0.85},
    '0.999': {'estimated': 0.95, 'bound': 0.35, 'by_errors': 0.8},
}
"""Share that all seeds together must reach, at each confidence."""

pytestmark = pytest.mark.slow


def figure_of(name, summary):
    """Sum up the audits of one case."""
    parts = summary['parts']
    return {
        'case': name,
        'patients': parts[0]['patients'],
        'charge': parts[0]['charge'],
        'delta': parts[0]['delta'],
        'claimed': parts[0]['claimed'],
        **{bound: [each[bound] for each in parts] for bound in BOUNDS},
        'attainable': float(np.mean([each['attainable'] for each in parts])),
        'together': summary['together'],
        'least_p': [each['least_p'] for each in parts],
        'median_seconds': float(np.median([each['seconds'] for each in parts])),
    }


@pytest.mark.parametrize('name', CASES)
def test_no_fault_is_found_and_bounds_are_close_below_the_claim(tmp_path, name, figures):
    """A false alarm in one of the 20 runs: at most 20 * 0.0002."""
    plan = Plan().changed(ALONE).changed(CASES[name])
    summary = run_audit(tmp_path, plan, AUDIT, SEEDS)
    figures.append(figure_of(name, summary))
    assert not summary['faults']
    claimed = summary['parts'][0]['claimed']
    means = {bound: np.mean([each[bound] for each in summary['parts']]) for bound in BOUNDS}
    for bounds in summary['together'].values():
        assert max(bounds.values()) < claimed
    if summary['parts'][0]['charge']['steps'] > 1:
        for bound, share in LEAST.items():
            assert means[bound] > share * claimed, bound
        for confidence, shares in TOGETHER.items():
            for bound, share in shares.items():
                assert summary['together'][confidence][bound] > share * claimed, bound
    if name == DP_DQN:
        assert means['estimated'] > 0.95 * claimed
