# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The federation that is attacked is the encrypted one, but for the rounding of updates."""

from pathlib import Path

from fdrl_ros.deployment.parties.hospital import noise_source
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.experiments.studies.experiment import run_training
from fdrl_ros.leakage.shadow import Draws, ShadowTrainer
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.transitions import Transitions
from fdrl_ros.policy import NetworkShape
from fdrl_ros.resources import resource
import numpy as np

RECORDS = 12
CHANGES = {
    'federation': {'noise': 'seeded'},
    'collection': {'patients': RECORDS},
    'privacy': {'batch': 4},
    'learner': {'epochs': 1},
    'rounds': {'rounds': 2},
    'evaluation': {'workers': 1},
}


def test_two_rounds_of_paper_world_are_the_mean_of_shadows(tmp_path: Path) -> None:
    plan = Plan.read(resource('config/paper/paper_world.yaml')).changed(CHANGES)
    layout, _ = run_training(tmp_path, plan)
    released = [
        load_policy(tmp_path / f'policies/global_{round}.npz').weights for round in range(3)
    ]
    trainer = ShadowTrainer(NetworkShape(5, 3, (64, 64)), plan.learner, plan.privacy)
    rate, steps = trainer.rate(RECORDS), trainer.round_steps(RECORDS)
    for round, (before, after) in enumerate(zip(released[:-1], released[1:], strict=True), 1):
        changes = []
        for name in plan.hospitals:
            records = Records.load(layout.records(name))
            table = Transitions.from_records(records, discount=plan.learner.discount).table
            assert table is not None and len(table) == RECORDS
            source = noise_source(layout.party(name), name, plan)
            draws = Draws.of_trainer(source, round, steps, RECORDS, rate, trainer.noise_size)
            trained = trainer.train(before, table, np.arange(RECORDS), draws)
            changes.append(trained.astype(np.float32).astype(np.float64) - before)
        step = np.abs(after - before).max()
        assert step > 1e-3
        assert np.abs(before + np.mean(changes, axis=0) - after).max() < 1e-4 * step
