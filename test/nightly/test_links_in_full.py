# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The links of four hosts, cut at random thirty times: the policy is that of one process."""

from pathlib import Path

import pytest
from support.linked_hosts import cut_at_random, HOSPITALS, LinkedHosts, plan_of, prepared

pytest.importorskip('zenoh', reason='eclipse-zenoh is not installed (requirements/zenoh.txt)')

ROUNDS = 60


def test_thirty_cuts_change_nothing(tmp_path: Path) -> None:
    layout, digest = prepared(plan_of(ROUNDS), tmp_path)
    with LinkedHosts(layout, HOSPITALS, tmp_path / 'hosts') as hosts:
        cut_at_random(hosts, digest, ROUNDS, cuts=30, seed=30)
