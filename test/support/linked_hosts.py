# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A federation over hosts that reach nothing but a router, each with what `fdrl export` made."""

from pathlib import Path
from random import Random
import shutil
import signal
import subprocess
import sys
import time
from typing import Self

from fdrl_ros.deployment.hosts import export
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.link.transport import PORT
from fdrl_ros.deployment.parties.hospital import open_records
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.deployment.prepare import prepare
from fdrl_ros.experiments.training import train_federation
from fdrl_ros.policy import digest_of
from support.hosts_network import Network, WatchedHosts
from support.small_run import TINY_PLAN

SERVERS = ('aggregator', 'key_authority')
HOSPITALS = ('hospital_1', 'hospital_2', 'hospital_3')
PATIENT = dict.fromkeys(
    (f'{phase}_timeout' for phase in ('open', 'share', 'train', 'settle', 'reveal', 'sum')), 120.0
)
"""Time enough for every cut: nobody is left out of a round."""
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 1.0)
except OSError as error:
    print(type(error).__name__)
else:
    print('connected')
"""
LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], int(sys.argv[2]))):
    print('listening', flush=True)
    sys.stdin.read()
"""


class LinkedHosts(WatchedHosts):
    """The servers on host 0, each hospital on one of its own, the router in their middle."""

    def __init__(self, prepared: Layout, hospitals: tuple[str, ...], directory: Path) -> None:
        """
        Make the network, certificates and exports; skip the test where that cannot be.

        :param prepared: directory with the keys of everybody.
        """
        self.hosts = (SERVERS, *((name,) for name in hospitals))
        self.network = Network(len(self.hosts), forward=False)
        self.hospitals = hospitals
        self.running: list[subprocess.Popen[bytes]] = []
        self.layouts = []
        whole = Layout(directory / 'whole')
        shutil.copytree(prepared.directory, whole.directory)
        words = [word for each in range(len(self.hosts)) for word in ('--router', self.way(each))]
        self.fdrl('link', 'init', str(whole.directory), *words)
        for names in (*self.hosts, ('router',)):
            self.layouts.append(Layout(directory / names[0]))
            export(whole, names, self.layouts[-1].directory)

    def way(self, number: int) -> str:
        """Return at what address a host finds the router."""
        return self.network.gateway(number)

    def fdrl(self, *words: str) -> None:
        """Run a command here, to its end."""
        subprocess.run([sys.executable, '-m', 'fdrl_ros', *words], check=True, timeout=60)

    def start(self) -> None:
        """Start the router and `fdrl link join` on every host."""
        self.start_router()
        for number, layout in enumerate(self.layouts[:-1]):
            words = ['join', str(layout.directory), '--router', f'tls/{self.way(number)}:{PORT}']
            self._run(self.network.hosts[number].enter, layout, *words)

    def start_router(self) -> subprocess.Popen[bytes]:
        """Start the router."""
        layout = self.layouts[-1]
        return self._run(self.network.router.enter, layout, 'router', str(layout.directory))

    def _run(self, enter: list[str], layout: Layout, *words: str) -> subprocess.Popen[bytes]:
        with (layout.directory / 'output').open('ab') as output:
            started = subprocess.Popen(
                [*enter, sys.executable, '-m', 'fdrl_ros', 'link', *words],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.running.append(started)
        return started

    def can_connect(self, sender: int, receiver: int) -> bool:
        """Tell whether a host reaches a TCP port of another one that listens."""
        address = self.network.address(receiver), '5000'
        python, pipe = [sys.executable, '-c'], subprocess.PIPE
        with subprocess.Popen(
            [*self.network.hosts[receiver].enter, *python, LISTEN, *address],
            stdin=pipe,
            stdout=pipe,
        ) as listener:
            assert listener.stdout is not None and listener.stdout.readline()
            tried = subprocess.run(
                [*self.network.hosts[sender].enter, *python, CONNECT, *address],
                check=True,
                capture_output=True,
                timeout=10,
            )
            listener.communicate(timeout=10)
        return tried.stdout.strip() == b'connected'

    def all_policies(self, round: int) -> list[tuple[str, bool]]:
        """Return what :meth:`policies` tells of all hospitals together."""
        return [each for name in self.hospitals for each in self.policies(name, round)]

    def cut(self, number: int, seconds: float) -> None:
        """Take a host off the network for a time."""
        self.network.cut(number)
        mended = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() >= mended, seconds + 5.0)
        self.network.mend(number)

    def stop(self) -> list[int]:
        """End the router and all parties as Ctrl-C does, and return their exit codes."""
        for each in self.running:
            each.send_signal(signal.SIGINT)
        return [each.wait(30) for each in self.running]

    def close(self) -> None:
        """End everything."""
        self.end_all()
        self.network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


def plan_of(rounds: int) -> Plan:
    """Return a plan whose rounds take about a second."""
    return (
        Plan()
        .changed(TINY_PLAN)
        .changed(
            {
                'rounds': {'rounds': rounds, **PATIENT},
                'learner': {'epochs': 40},
                'privacy': {'budget': 1e6},
            }
        )
    )


def prepared(plan: Plan, directory: Path) -> tuple[Layout, str]:
    """Return a directory with everybody's records, and the last digest of the local driver."""
    layout = prepare(directory / 'federation', plan)
    for name in HOSPITALS:
        open_records(layout, name, plan)
    played = Layout(directory / 'played')
    shutil.copytree(layout.directory, played.directory)
    policies = played.directory / 'policies'
    policies.mkdir()
    train_federation(played, plan, policies)
    last = load_policy(policies / f'global_{plan.rounds.rounds}.npz')
    return layout, digest_of(last.weights).hex()


def cut_at_random(hosts: LinkedHosts, digest: str, rounds: int, cuts: int, seed: int) -> None:
    """Run a federation whose links are cut at random; it has to end as in process."""
    rng = Random(seed)
    hosts.start()
    hosts.wait(lambda: hosts.said(0, 'round 1 attempt 1: TRAIN'), 90.0)
    for _ in range(cuts):
        # Shorter cuts a connection outlives; at longer ones it ends, and is made again.
        hosts.cut(rng.randrange(len(hosts.hosts)), rng.choice((0.3, 1.0, 2.5, 5.0, 7.0)))
    assert len(hosts.all_policies(rounds)) < len(HOSPITALS), 'it ended before all links were cut'
    hosts.wait(lambda: len(hosts.all_policies(rounds)) == len(HOSPITALS), 300.0)
    assert set(hosts.all_policies(rounds)) == {(digest, True)}
    attempts = [each for each in hosts.journal('aggregator') if each.kind == 'settle']
    assert {len(each.fields['survivors']) for each in attempts} == {len(HOSPITALS)}
