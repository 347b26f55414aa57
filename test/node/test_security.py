# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Policies against the live graph, which needs no security; and nodes that ask for security."""

from dataclasses import replace
from pathlib import Path

from fdrl_ros.deployment.bringup import federation_graph, NodeSpec, robot_graph, RoomArguments
from fdrl_ros.deployment.interfaces import Domain, Endpoints, Places, uses_of
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.security.enclaves import KeystoreSettings, make_keystore
from fdrl_ros.deployment.security.rules import live_faults
from fdrl_ros.errors import SettingError
from fdrl_ros.nodes.common.live_graph import live_graph
from fdrl_ros.nodes.common.service_call import node_in
from fdrl_ros.resources import resource
from node.conftest import PLAN
import pytest
from support.node_process import begin
from support.untrained_segmenter import untrained

PATIENCE = 40.0
ROOM = RoomArguments(endoscope=True, use_sim_time=True, home='hospital_1')
OFF = {'policies above 256 KiB', 'force = spatial', 'metrics_port'}


@pytest.fixture
def graph(settings, tmp_path):
    room = robot_graph(settings, 'robot_1', room=replace(ROOM, segmenter=str(untrained(tmp_path))))
    plan = {'plan': str(resource('config/operation_plan.yaml')), 'surface': True}
    monitor = NodeSpec('monitor', '/robot_1', 'monitor', settings.robot_domain, plan)
    return (*federation_graph(settings, PLAN.hospitals), *room, monitor)


def test_everything_that_nodes_have_is_allowed_and_nothing_else(graph, settings, live):
    keystore = KeystoreSettings(
        federation_domain=settings.federation_domain,
        robot_domain=settings.robot_domain,
        robots='robot_1=hospital_1',
    )
    specs = keystore.graph(Layout(Path(settings.directory)).roster())
    assert {each.full_name for each in graph} <= {each.full_name for each in specs}
    places = Places.of(specs)
    live.runner.start(graph)
    for domain, number in keystore.numbers.items():

        def compared(found, domain=domain):
            return live_faults(specs, places, domain, found)

        # Monitor and observer need not be there for a graph without faults: they may come last.
        count = 8 if domain is Domain.ROBOTS else 6

        def complete(found, count=count, compared=compared):
            return len(found) == count and not compared(found)

        found = live_graph(number, complete, PATIENCE)
        assert not compared(found) and not live.runner.poll()
        assert len(found) == count and '/observer' in found
        # What depends on a setting is there where that is on.
        for spec in (each for each in specs if each.full_name in found):
            has, off = found[spec.full_name], OFF | {'use_sim_time'}
            assert {
                use.optional
                for use in uses_of(spec, places, domain)
                if not Endpoints.of([use]).within(has)
            } <= (OFF if spec.executable in ('env', 'selector') else off)
        # A right that is taken away is missed, one that nobody uses is seen.
        name = '/hospital_1/trainer'
        for other in (replace(found[name], publish=frozenset()), found['/hospital_2/trainer']):
            assert compared({**found, name: other})
        assert any(
            f'{name} may not publish /federation/round' in each
            for each in compared(
                {**found, name: replace(found[name], publish=frozenset({'rt/federation/round'}))}
            )
        )


def test_programs_of_people_do_not_run_unsecured_either(settings, monkeypatch):
    monkeypatch.setenv('ROS_SECURITY_ENABLE', 'True')
    with pytest.raises(SettingError, match='ROS_SECURITY_ENABLE'):
        with node_in(settings.robot_domain, 'operator'):
            pass


def test_a_node_that_cannot_be_secured_does_not_run(settings):
    make_keystore(
        Layout(Path(settings.directory)).keys,
        KeystoreSettings(
            federation_domain=settings.federation_domain, robot_domain=settings.robot_domain
        ),
    )
    env = robot_graph(settings, 'robot_1')[0]
    with begin(env, replace(settings, security=True)) as process:
        try:
            found, told = process.stdout.readline(), process.stdout.readline()
            assert 'Found security directory' in found
            if 'is in DDS domain' in told:  # the plugin is here: strangers see nobody
                assert not live_graph(settings.robot_domain, lambda found: False, 3.0)
                return
            assert process.wait(10.0) == 1 and not process.stdout.read()
            assert "This Fast DDS version doesn't have the security libraries" in told
        finally:
            process.kill()
