# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A round of models of 5 million weights: 20 MB each, updates of some 600 chunks."""

from fdrl_ros.policy import decode_weights, NetworkShape
import numpy as np
from support.federation_bench import Bench

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
