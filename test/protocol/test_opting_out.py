# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Policies that other hospitals release do not uncover the update of one that releases none."""

from fdrl_ros.federation.protocol.message import HospitalPolicy
from fdrl_ros.policy import decode_weights
import numpy as np
from support.federation_bench import Bench, ENCRYPTION, SHAPE
from support.interception import Interception

OUT = 'hospital_2'
QUANTUM = 2.0 * ENCRYPTION.limit / (2**ENCRYPTION.bits - 1)


class OneOptsOut(Bench):
    """A federation in which all hospitals but one release their policies."""

    def make(self, name):
        self.release = name != OUT
        return super().make(name)


def others_taken_off(bench, policies):
    """
    Attack: take released policies of a round off its sum, of which one hospital is left.

    Whoever hears what is public can do that: global policies, policies of hospitals and roster.
    """
    sizes = {name: bench.roster.member(name).size for name in bench.names}
    left = sum(sizes.values()) * (bench.weights.astype(float) - bench.start)
    for each in policies:
        weights = decode_weights(each.weights, SHAPE.n_parameters).astype(float)
        left -= sizes[each.sender] * (weights - bench.start)
    return left / sizes[OUT]


def test_the_policies_of_all_others_give_the_update_of_one_that_opted_out(tmp_path):
    bench = OneOptsOut(tmp_path, hospitals=4, rounds=1)
    released = Interception(bench, HospitalPolicy).messages
    assert bench.run()
    assert {each.sender for each in released} == set(bench.names) - {OUT}
    error = np.abs(others_taken_off(bench, released) - bench.learners[OUT].delta(1)).max()
    assert error < len(bench.names) * QUANTUM * bench.roster.n_max / bench.roster.member(OUT).size
