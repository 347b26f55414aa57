# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Federations of two namespaces in one DDS domain do not meet, although keys and names agree."""

from dataclasses import replace
from pathlib import Path
import shutil

from fdrl_ros.deployment.bringup import BringupSettings, robot_graph
from fdrl_ros.deployment.namespaces import absolute
from fdrl_ros.msg import Policies
from fdrl_ros.nodes.common import qos
from node.conftest import Live, PLAN, watched
from support.operating_room import Room


def finish(live: Live, rounds: int) -> bytes:
    """Wait for the end of a federation that nobody else disturbed, and return its policy."""
    root = absolute(live.settings.namespace)
    aggregator = f'{root}/federation/aggregator'
    digest = live.finish(rounds)
    assert live.wait_for_health(aggregator, 'FINISHED')['refused'] == '0'

    def told() -> set[str]:
        return {each.node for each in live.heard if hasattr(each, 'node')}

    live.wait(lambda: len(told()) >= 5)  # a round may be over before all have told once
    assert len(told()) == 5 and all(each.startswith(f'{root}/') for each in told()), told()
    return digest


def kept(settings: BringupSettings) -> set[bytes]:
    """Return the digests of the policies that a robot is given."""
    room = Room(settings.robot_domain, absolute(settings.namespace, 'robot_1'))
    room.hear(Policies, 'policies', qos.LATCHED)

    def listed() -> set[bytes]:
        told = room.last('policies')
        return {bytes(each.digest) for each in told.policies} if told else set()

    try:
        room.wait(listed)
        return listed()
    finally:
        room.close()


def test_two_federations_in_a_domain_end_each_with_its_own_policy(settings, reference, tmp_path):
    # The same parties with the same keys: only the names of their topics keep them apart.
    copy = Path(shutil.copytree(settings.directory, tmp_path / 'south'))
    (copy / 'plan.yaml').write_text(PLAN.changed({'rounds': {'rounds': 1}}).to_yaml())
    first = replace(settings, namespace='north')
    other = replace(settings, namespace='/hall/south', directory=str(copy))
    with watched(first) as north, watched(other) as south:
        for live in (north, south):
            live.start()
        assert finish(south, 1) == reference.first
        assert finish(north, 2) == reference.digest != reference.first
        code, said = south.order('stop')
        assert code == 1 and 'the federation has ended' in said, said
        for live in (north, south):
            live.runner.start(robot_graph(live.settings, 'robot_1')[1:])
        assert kept(first) == {reference.digest}
        assert kept(other) == {reference.first}
