# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Of 1,000 mutations, truncations and roll-backs of a ledger every one is found.

Takes about two minutes; run by `make nightly`. What is counted as inert is a byte that no SQLite
reads (see `INERT` in ledger_forger.py): the ledger is the same whatever it holds.
"""

from fdrl_ros.deployment.ledger_inspection import inspect_file
import numpy as np
import pytest
from support.ledger_forger import attack_and_inspect, ATTACKS, INERT, make_victim, OWNER

SETTINGS = {'seed': 2026, 'attacks': {each.__name__: count for each, count in ATTACKS.items()}}

pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def victim(tmp_path_factory):
    return make_victim(tmp_path_factory.mktemp('victim') / 'ledger')


def test_of_a_thousand_attacks_every_one_is_found(victim, tmp_path, figures):
    rng = np.random.default_rng(SETTINGS['seed'])
    assert sum(ATTACKS.values()) == 1000
    for attack, count in ATTACKS.items():
        made = [
            attack_and_inspect(attack, victim, rng, tmp_path / f'{attack.__name__}{number}')
            for number in range(count)
        ]
        figures.append(
            {
                'attack': attack.__name__,
                'made': count,
                'found': sum(each.found for each in made),
                'found_by_a_head_alone': sum(each.found and each.by_head for each in made),
                'inert': sum(not each.found for each in made),
            }
        )
    assert sum(each['found'] + each['inert'] for each in figures) == 1000


def test_a_changed_bit_in_any_byte_is_found_in_the_file_alone(victim, tmp_path, figures):
    rng = np.random.default_rng(SETTINGS['seed'])
    path = tmp_path / 'ledger'
    path.touch(0o600)
    unseen = []
    for at in range(len(victim.copies[-1])):
        content = bytearray(victim.copies[-1])
        content[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        if not inspect_file(path, {}, OWNER).problems:
            unseen.append(at)
    assert set(unseen) <= set(INERT)
    figures.append({'attack': 'each byte', 'made': len(victim.copies[-1]), 'inert': len(unseen)})
