# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A federation over five hosts without multicast, as docs/hosts.md has it: servers, four hospitals.

Each host has what `fdrl export` made for it and runs `fdrl join`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
import os
from pathlib import Path
import shutil
import subprocess
import sys

from fdrl_ros.deployment.bringup import BringupSettings, middleware
from fdrl_ros.deployment.hosts import export
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.hospital import open_records
from fdrl_ros.deployment.prepare import prepare
from node.conftest import PLAN, play
import pytest
from support.hosts_network import Network, WatchedHosts

HOSPITALS = ('hospital_1', 'hospital_2', 'hospital_3', 'hospital_4')
HOSTS = (('aggregator', 'key_authority'), *((name,) for name in HOSPITALS))
# A round of training lasts a second or more, so that a host can be cut off in the middle.
LONG = PLAN.changed(
    {
        'federation': {'hospitals': 4},
        'rounds': {'rounds': 2, 'open_timeout': 20.0, 'train_timeout': 60.0},
        'learner': {'epochs': 150},
    }
)
ONE_HOST = middleware(BringupSettings())
DISCOVERY = '10.77.0.2:11811'
ROBOT = """
from fdrl_ros.msg import GlobalPolicy
from fdrl_ros.nodes.common import qos
import rclpy
rclpy.init()
node = rclpy.create_node('robot')
def hear(message):
    print('the robot heard', bytes(message.digest).hex(), flush=True)
node.create_subscription(GlobalPolicy, '/federation/policy', hear, qos.HEARD)
rclpy.spin(node)
"""


@pytest.fixture(scope='module')
def network() -> Iterator[Network]:
    with Network(len(HOSTS)) as made:
        yield made


@pytest.fixture(scope='module')
def prepared(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Return a directory with the keys and records of everybody."""
    layout = prepare(tmp_path_factory.mktemp('hosts') / 'federation', LONG)
    for name in HOSPITALS:
        open_records(layout, name, LONG)
    return layout


@pytest.fixture(scope='module')
def digest(prepared: Layout, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the digest of the policy that the in-process driver ends with."""
    played = tmp_path_factory.mktemp('played') / 'federation'
    shutil.copytree(prepared.directory, played)
    return play(Layout(played), LONG).hex()


@dataclass
class Hosts(WatchedHosts):
    """What runs on the hosts, and what their journals say."""

    network: Network
    layouts: list[Layout]
    domain: int
    robots: int
    running: list[subprocess.Popen[bytes]]

    def start(self, variables: dict[str, str], *flags: str) -> None:
        """Run `fdrl join` on every host."""
        command = [sys.executable, '-m', 'fdrl_ros', 'join']
        flags = (*flags, '--federation-domain', str(self.domain))
        for number, layout in enumerate(self.layouts):
            words = [*command, str(layout.directory), *flags, '--robot-domain', str(self.robots)]
            self.run(number, words, variables)

    def run(self, number: int, words: list[str], variables: dict[str, str]) -> None:
        """Run something on a host, in the background, by its own variables alone."""
        known = {name: value for name, value in os.environ.items() if name not in ONE_HOST}
        with (self.layouts[number].directory / 'output').open('ab') as output:
            self.running.append(
                subprocess.Popen(
                    [*self.network.hosts[number].enter, *words],
                    env=known | variables,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )

    def wait_for_the_end(self, names: tuple[str, ...] = HOSPITALS) -> set[tuple[str, bool]]:
        """Wait until every hospital has the last policy, and return what they have."""
        last = LONG.rounds.rounds
        self.wait(lambda: all(self.policies(name, last) for name in names), 120.0)
        return {each for name in names for each in self.policies(name, last)}


@pytest.fixture
def hosts(
    network: Network,
    prepared: Layout,
    tmp_path: Path,
    federation_domain: int,
    robot_domain: int,
) -> Iterator[Hosts]:
    layouts = []
    for names in HOSTS:
        layouts.append(Layout(tmp_path / names[0]))
        export(prepared, names, layouts[-1].directory)
    made = Hosts(network, layouts, federation_domain, robot_domain, [])
    try:
        yield made
    finally:
        made.end_all()
        for number in range(1, len(HOSTS)):
            network.cut(number)
            network.mend(number)


def serve(hosts: Hosts) -> None:
    """Run a discovery server on the servers' host, and everybody with it."""
    since_fast_dds_3 = [] if os.environ.get('ROS_DISTRO') == 'jazzy' else ['42']
    words = ['fast-discovery-server', *since_fast_dds_3, '-i', '0']
    words += ['-l', '10.77.0.2', '-p', '11811']
    hosts.run(0, words, {})
    hosts.start({}, '--discovery-server', DISCOVERY)


def test_the_network_lets_no_multicast_through(network):
    assert network.first_heard(1, 0) == 'unicast'
    assert network.first_heard(0, 4) == 'unicast'


def test_cut_off_for_a_moment_in_training_a_hospital_still_has_its_part(hosts, digest):
    addresses = map(hosts.network.address, range(len(HOSTS)))
    hosts.start({'ROS_STATIC_PEERS': ';'.join(addresses)})
    hosts.wait(lambda: hosts.said(0, 'round 1 attempt 1: TRAIN'))
    hosts.network.cut(2)
    others = [name for name in HOSPITALS if name != 'hospital_2']
    hosts.wait(lambda: all(sent(hosts, name, 1) for name in others))
    hosts.network.mend(2)
    assert hosts.wait_for_the_end() == {(digest, True)}
    settled = [each for each in hosts.journal('aggregator') if each.kind == 'settle']
    assert settled[0].round == 1 and set(settled[0].fields['survivors']) == set(HOSPITALS)


def test_cut_off_until_the_round_is_over_a_hospital_takes_part_in_the_next(hosts):
    for layout in hosts.layouts:
        plan = LONG.changed({'rounds': {'train_timeout': 8.0}})
        layout.plan.write_text(plan.to_yaml())
    serve(hosts)
    robot = {'ROS_DOMAIN_ID': str(hosts.robots), **middleware(BringupSettings(hosts='several'))}
    hosts.run(1, [sys.executable, '-c', ROBOT], robot)
    hosts.wait(lambda: hosts.said(0, 'round 1 attempt 1: TRAIN'))
    hosts.network.cut(3)
    others = [name for name in HOSPITALS if name != 'hospital_3']
    hosts.wait(lambda: all(hosts.policies(name, 1) for name in others), 90.0)
    hosts.network.mend(3)
    ((digest, included),) = hosts.wait_for_the_end()
    assert included
    output = hosts.layouts[1].directory / 'output'
    # In the robots' domain the hospital is found without the server, on its own network.
    hosts.wait(lambda: f'the robot heard {digest}' in output.read_text())
    assert hosts.policies('hospital_3', 1) in (
        [],
        [(hosts.policies('hospital_1', 1)[0][0], False)],
    )
    released = {
        each.round: each for each in hosts.journal('key_authority') if each.kind == 'release'
    }
    assert set(released[1].fields['contributors']) == set(others)
    assert released[2].fields['policy'] == digest


def sent(hosts: Hosts, name: str, round: int) -> bool:
    return any(each.kind == 'sent' and each.round == round for each in hosts.journal(name))
