# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Whatever is done to a ledger is found: mutations, truncations and roll-backs.

`make nightly` makes 1,000, and one in every byte of the file.
"""

from fdrl_ros.deployment.ledger_inspection import inspect_file
import numpy as np
import pytest
from support.ledger_forger import attack_and_inspect, ATTACKS, make_victim, OWNER


@pytest.fixture(scope='module')
def victim(tmp_path_factory):
    return make_victim(tmp_path_factory.mktemp('victim') / 'ledger')


def test_nothing_is_found_where_nothing_was_done(victim, tmp_path):
    path = tmp_path / 'ledger'
    path.touch(0o600)
    for content in victim.copies:
        path.write_bytes(content)
        assert inspect_file(path, {}, OWNER).problems == ()
    assert inspect_file(path, {'the aggregator': victim.head}, OWNER).problems == ()


@pytest.mark.parametrize('attack', ATTACKS, ids=lambda attack: attack.__name__)
def test_whatever_is_done_to_a_ledger_is_found(attack, victim, tmp_path):
    rng = np.random.default_rng(len(attack.__name__))
    for number in range(ATTACKS[attack] // 10):
        attack_and_inspect(attack, victim, rng, tmp_path / str(number))
