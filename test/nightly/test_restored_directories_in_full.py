# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
200 times, an older copy of some party's whole directory is put back at some moment.

Takes about a minute of one core; run by `make nightly ARGS='-k restored_directories'`.
"""

from collections import Counter

import pytest
from support.restored_directories import check_restore

SETTINGS = {'restores': 200, 'events': 475}

pytestmark = pytest.mark.slow


def test_200_random_restores_understate_no_epsilon_and_delay_nobody(tmp_path, figures):
    found, longest = Counter(), 0.0
    for seed in range(SETTINGS['restores']):
        directory = tmp_path / str(seed)
        directory.mkdir()
        bench = check_restore(directory, seed, SETTINGS['events'])
        party = bench.restore.party
        server = party in ('aggregator', 'key_authority')
        found[party if server else 'hospital'] += 1
        found['newest asked for'] += bench.asked
        found['hospital stopped'] += not server and bench.parties[party].restored
        longest = max(longest, bench.driver.now)
    figures.append({'restores': dict(found), 'longest_s': longest})
