# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What `fdrl audit` claims bounds what `fdrl attack` finds in policies, aggregates and updates."""

from fdrl_ros.audit.privacy_audit import Audit, AuditSettings
from fdrl_ros.experiments.studies.leakage.settings import DELTA, Regime
from fdrl_ros.experiments.studies.leakage.simulation import SHAPE, Simulation
from fdrl_ros.experiments.studies.leakage.study import attacks, FPR
from fdrl_ros.privacy.accountant.leakage_bounds import bounds_of_guarantee, leakage_bounds
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
import pytest

REGIME = Regime(
    'four steps of everyone at epsilon 8, so that little noise hides them',
    records=10,
    batch=10,
    rounds=4,
    epochs=1,
    central_epochs=4,
    epsilon=8.0,
    proximal=0.0,
)


def test_at_epsilon_8_no_attack_is_above_the_bounds_of_what_the_audit_claims(tmp_path) -> None:
    """Of each seat and attack, with 99.9 % confidence; the strongest is surely above chance."""
    world = Simulation(REGIME, 1, 3, 0.5, REGIME.rounds)
    records = world.homes[0].records(REGIME.records, 1)
    learner, privacy = REGIME.learner(False), REGIME.privacy(False, 3)
    audit = Audit(records, SHAPE, learner, privacy, REGIME.rounds, AuditSettings(canaries=400))
    audited = audit.run(tmp_path, NoiseSource.seeded(1), np.random.default_rng(1))
    charge = audited.evidence.charge
    assert charge == REGIME.charge(False, 3)
    assert not audited.faults and audited.bounds['estimated'] < audited.claimed
    assert audited.claimed == pytest.approx(8.0, rel=0.01)

    models = [world.model(each) for each in range(24)]
    seen = {key: np.array([each.seen[key] for each in models]) for key in sorted(models[0].seen)}
    members = np.array([each.members for each in models])
    found = attacks(seen, members, np.random.default_rng(2), 50)
    pair = leakage_bounds([charge], FPR)
    whole = bounds_of_guarantee(audited.claimed, DELTA, FPR)
    assert pair.auc < whole.auc < 1.0 and pair.tpr < whole.tpr < 1.0
    assert {'released', 'central', 'aggregate', 'own', 'aggregator', 'coalition'} == found.keys()
    for rows in found.values():
        for row in rows.values():
            assert row['auc']['surely_above'] < pair.auc
            assert row['tpr']['surely_above'] < pair.tpr
    assert found['own']['calibrated alignment']['auc']['surely_above'] > 0.55
