# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Rounds of models of 1 to 5 million weights, in one process and over ROS 2.

Takes about four minutes: `make nightly ARGS='-k million --save docs/results/large_models.json'`.
"""

import shutil

from fdrl_ros.crypto.he.schemes import choose_scheme
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.experiments.ros_federation import missing_ros, RosFederation
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.training import prepare_run, train_federation
from fdrl_ros.policy import decode_weights, digest_of, NetworkShape
from fdrl_ros.runtime.progress import NOBODY
import numpy as np
import pytest
from support.federation_bench import Bench
from support.small_run import TINY_PLAN

SETTINGS = {'seed': 0, 'hospitals': 3, 'rounds': 2}

pytestmark = pytest.mark.slow

LARGE = NetworkShape(states=300, actions=15, hidden=(1800, 1800, 512))


def test_a_round_of_five_million_weights_ends_with_fedavg(tmp_path):
    assert 4.5e6 < LARGE.n_parameters < 5.5e6
    bench = Bench(tmp_path, rounds=1, shape=LARGE, release=False)
    assert bench.scheme.ciphertexts > 500
    assert bench.run() and not bench.driver.refused
    policy = bench.policy
    assert not policy.rolled_back and policy.contributors == tuple(bench.names)
    weights = decode_weights(policy.weights, LARGE.n_parameters)
    np.testing.assert_allclose(weights, bench.expected(1), atol=2e-3)
    assert {learner.trained[-1] for learner in bench.learners.values()} == {1}


@pytest.mark.skipif(bool(missing_ros()), reason=missing_ros() or 'ROS 2')
@pytest.mark.parametrize('hidden, bits', [(980, 16), (2200, 16), (2200, 8)])
def test_millions_of_weights_over_ros_end_with_the_policy_of_one_process(
    tmp_path, figures, hidden, bits
):
    plan = Plan().changed(
        {
            **TINY_PLAN,
            'learner': {'hidden': hidden, 'epochs': 1, 'transitions_per_patient': 2},
            'privacy': {'batch': 2, 'delta': 1e-3, 'budget': 1e6},
            'pretraining': {'patients': 4, 'steps': 1, 'batch': 4},
            'encryption': {'bits': bits},
        }
    )
    run = RunDirectory.create(tmp_path, 'run')
    layout = prepare_run(run.path, plan)
    played = Layout(tmp_path / 'played')
    shutil.copytree(layout.directory, played.directory)
    (tmp_path / 'policies').mkdir()
    train_federation(played, plan, tmp_path / 'policies')
    said = []
    notes, _ = RosFederation(run, plan, NOBODY, said.append).operate(0, *2 * [lambda caller: None])
    assert [(each.round, len(each.contributors)) for each in notes] == [(1, 3), (2, 3)], said
    ours, theirs = (
        digest_of(load_policy(policies / 'global_2.npz').weights)
        for policies in (run.policies, tmp_path / 'policies')
    )
    assert ours == theirs
    scheme = choose_scheme(plan.network.layout.n_parameters, 3, bits)
    stated = scheme.ciphertexts * scheme.ciphertext_bytes
    assert {each.update_bytes for each in notes} == {stated}
    assert 50 < notes[-1].peak_memory < 300 * plan.network.layout.n_parameters / 1e6 + 400
    figures.append(
        {
            'n_parameters': plan.network.layout.n_parameters,
            'bits': bits,
            'update_bytes': stated,
            'round_seconds': notes[-1].seconds,
            'encrypt_seconds': notes[-1].encrypt_seconds / 3,
            'sum_seconds': notes[-1].sum_seconds,
            'decrypt_seconds': notes[-1].decrypt_seconds,
            'peak_memory': notes[-1].peak_memory,
        }
    )
