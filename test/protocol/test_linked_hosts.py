# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Three hospitals in network namespaces with no route to each other, only to a router.

Each host has what `fdrl export` made for it and runs `fdrl link join`, as docs/links.md has it.
"""

from collections.abc import Iterator
from pathlib import Path
import signal

from fdrl_ros.deployment.layout import Layout
import pytest
from support.linked_hosts import cut_at_random, HOSPITALS, LinkedHosts, plan_of, prepared

pytest.importorskip('zenoh', reason='eclipse-zenoh is not installed (requirements/zenoh.txt)')


@pytest.fixture(scope='module')
def twelve_rounds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Layout, str]:
    return prepared(plan_of(12), tmp_path_factory.mktemp('linked'))


@pytest.fixture
def hosts(twelve_rounds: tuple[Layout, str], tmp_path: Path) -> Iterator[LinkedHosts]:
    with LinkedHosts(twelve_rounds[0], HOSPITALS, tmp_path) as made:
        yield made


def test_links_cut_at_random_change_nothing(hosts, twelve_rounds):
    assert not hosts.can_connect(1, 2) and not hosts.can_connect(1, 0)
    cut_at_random(hosts, twelve_rounds[1], rounds=12, cuts=3, seed=1)
    assert set(hosts.stop()) == {0}  # after Ctrl-C


def test_a_router_that_is_killed_and_starts_again_changes_nothing(hosts, twelve_rounds):
    hosts.start()
    hosts.wait(lambda: hosts.said(0, 'round 1 attempt 1: TRAIN'), 90.0)
    router = hosts.running.pop(0)
    router.send_signal(signal.SIGKILL)
    router.wait(10)
    hosts.wait(lambda: hosts.said(0, 'the link to the router is cut') == 2, 30.0)
    hosts.start_router()
    hosts.wait(lambda: len(hosts.all_policies(12)) == len(HOSPITALS), 120.0)
    assert set(hosts.all_policies(12)) == {(twelve_rounds[1], True)}
