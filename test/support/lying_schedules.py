# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Random schedules of hospitals that lie, and of others that drop out, and what comes of each."""

from collections import Counter
from typing import Unpack

from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.protocol.message import Blame, Phase, Reveal, RoundStatus
from fdrl_ros.federation.virtual import VirtualOptions
from fdrl_ros.policy import decode_weights
import numpy as np
from support.dropouts import (
    contributors,
    draw_schedule,
    DroppingBench,
    DroppingFederation,
    HURRIED,
)
from support.lying_hospitals import LIES


def run_lying(seed: int, hospitals: int, **options: Unpack[VirtualOptions]) -> Counter[str]:
    """
    Run a round in which up to a third of the hospitals lie, each in its way, and others are lost.

    It ends with the exact sum of its contributors, or names who is guilty; never an honest one.

    :param options: of the federation, such as how many neighbours each hospital has.
    :returns: what happened, in numbers to be summed.
    """
    rng = np.random.default_rng([hospitals, seed, 1])
    names = [f'hospital_{i}' for i in range(1, hospitals + 1)]
    count = rng.integers(1, hospitals // 3 + 1)
    liars = {str(name): str(rng.choice([*LIES])) for name in rng.permutation(names)[:count]}
    schedule = draw_schedule(seed, hospitals) if rng.random() < 0.5 else {}
    schedule = {name: stage for name, stage in schedule.items() if name not in liars}
    driver = DroppingFederation(seed, schedule)
    bench = DroppingBench(hospitals, driver, **options)
    for name, lie in liars.items():
        LIES[lie](bench, name)

    def over() -> bool:
        if bench.aggregator.phase is not Phase.FINISHED:
            return False
        return bool(bench.aggregator.exhausted) or bench.is_over()

    bench.run(over, ticks=100)
    driver.schedule.clear()
    for name in driver.lost:
        bench.join(name)
    ended = bench.run(over, ticks=HURRIED)
    guilty = {each.guilty for each in driver.messages if isinstance(each, Blame)}
    assert ended, (liars, guilty, bench.aggregator.phase, driver.notes)
    assert guilty <= liars.keys(), (liars, guilty)
    assert all(learner.trained in ([], [1]) for learner in bench.learners.values())
    check_sets(bench, liars.keys(), guilty)
    found = Counter({'lying': 1, 'liars': len(liars), 'guilty': len(guilty)})
    found.update({f'{lie} named': name in guilty for name, lie in liars.items()})
    if bench.aggregator.exhausted:
        assert guilty and not bench.decrypted
        return found + Counter({'ended the federation': 1})
    policy = next(p.policy for p in driver.parties.values() if isinstance(p, Hospital))
    assert policy is not None and policy.envelope.round == 1
    if policy.rolled_back:  # too few are left of a set, or survivors did not reveal for long
        assert guilty or driver.lost
        return found + Counter({'ended with the older policy': 1})
    assert len(bench.decrypted) == bench.scheme.ciphertexts
    weights = decode_weights(policy.weights, bench.layout.n_parameters)
    np.testing.assert_array_equal(weights, bench.exact(contributors(bench)))
    return found + Counter({'exact sums': 1})


def check_sets(bench: DroppingBench, liars: set[str], guilty: set[str]) -> None:
    """Check that two sets for which an honest hospital revealed differ by guilty ones alone."""
    survivors, sets = {}, {}
    for message in bench.driver.messages:
        if isinstance(message, RoundStatus) and message.survivors:
            graph = bench.roster.neighbourhoods
            survivors[message.id] = set(graph.named(message.survivors))
        if isinstance(message, Reveal) and message.sender not in liars:
            sets.setdefault(message.sender, []).append(survivors[message.id])
    for revealed in sets.values():
        for one in revealed:
            assert all(one ^ other <= guilty for other in revealed)
