# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""ROS nodes whose messages go over links: they meet in no DDS domain, and end as in process."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, UTC
from pathlib import Path

from fdrl_ros.deployment.bringup import BringupSettings, hospital_graph, server_graph
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.link.credentials import LinkFiles, make_links, ROUTER
from fdrl_ros.deployment.link.transport import free_port, open_router
from node.conftest import Live, PLAN, watched
import pytest

pytest.importorskip('zenoh', reason='eclipse-zenoh is not installed (requirements/zenoh.txt)')


@pytest.fixture
def linked(settings: BringupSettings) -> Iterator[Live]:
    """Give servers and hospitals that a router alone joins."""
    layout = Layout(Path(settings.directory))
    make_links(layout, ['127.0.0.1'], datetime.now(UTC), 30)
    place = f'tls/127.0.0.1:{free_port()}'
    with (
        open_router(LinkFiles(layout.keys, ROUTER), layout.roster(), place),
        watched(replace(settings, router=place)) as live,
    ):
        yield live


def test_nodes_in_domains_of_their_own_end_as_in_process(linked, reference, lone_domain):
    settings = linked.settings
    linked.runner.start(server_graph(settings))
    for name in PLAN.hospitals:
        (trainer,) = hospital_graph(settings, name)
        linked.runner.start([replace(trainer, domain=lone_domain)])
    assert linked.finish() == reference.digest
    assert linked.wait_for_health('/federation/aggregator', 'FINISHED')['refused'] == '0'
    code, said = linked.order('pause')  # operators reach the servers over DDS, as before
    assert code == 1 and 'the federation has ended' in said, said
    assert set(linked.runner.stop().values()) == {0}
    assert linked.deaths == []


def test_a_node_without_a_link_cannot_begin_and_says_what_makes_one(settings):
    settings = replace(settings, router='tls/127.0.0.1:1')
    with watched(settings) as live:
        live.runner.start(hospital_graph(settings, 'hospital_1'))
        live.wait(lambda: live.deaths != [])
    assert live.deaths[0].code == 1
    assert any('`fdrl link init` makes it' in line for line in live.deaths[0].lines)
