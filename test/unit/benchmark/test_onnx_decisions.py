# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`benchmark/onnx_decisions.py`: what is timed are valued policies of 100,000 weights each."""


def test_policies_have_100_000_weights_of_their_own_and_a_value(module):
    work = module('onnx_decisions')
    played = work.episodes(6)
    for make, kind in ((work.traced, 'OnnxPolicy'), (work.compiled, 'DuelingPolicy')):
        made = list(work.large_candidates(played, make(), 2))
        assert {type(each.policy).__name__ for each in made} == {kind}
        assert all(abs(each.policy.n_parameters - 100_000) < 1000 for each in made)
        assert all(each.value.policy == each.digest.hex() for each in made)
        assert made[0].digest != made[1].digest
        assert len(work.Decisions(played, made).take(5)) == 5
