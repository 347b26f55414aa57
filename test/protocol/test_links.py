# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The links' end to end promise, over a router in this process that does what it likes."""

import pytest
from support.federation_bench import Bench
from support.relayed_federation import RelayedFederation


def digest_in_process(rounds: int = 2) -> bytes:
    bench = Bench(rounds=rounds)
    assert bench.run()
    return bench.policy.digest


@pytest.mark.parametrize(
    'lies',
    [
        {},
        {'lost': 0.3},
        {'repeated': 0.5},
        {'mixed': 0.5},
        {'lost': 0.15, 'repeated': 0.3, 'mixed': 0.3},
    ],
    ids=str,
)
@pytest.mark.parametrize('seed', range(3))
def test_a_router_that_lies_changes_nothing(seed, lies):
    bench = Bench(driver=RelayedFederation(seed, **lies))
    assert bench.run()
    assert bench.policy.digest == digest_in_process()
    assert not bench.policy.rolled_back
