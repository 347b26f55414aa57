# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Hosts of a network that lets no multicast through, on this machine: network namespaces.

Each host has a subnet of its own behind a router. A namespace has no name and lives as long as a
process in it: the processes that hold them end with this one, however that ends.
"""

from collections.abc import Callable, Sequence
import shlex
import shutil
import signal
import subprocess
import sys
import time
from typing import Self

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.federation.journal.journal import FILE
from fdrl_ros.federation.journal.reader import Entry, read
import pytest

LOOP = 'ip link set lo up'
HEAR = """
import socket, sys
heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
heard.bind(('', 7400))
group = socket.inet_aton('239.255.0.1') + socket.inet_aton(sys.argv[1])
heard.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
print('listening', flush=True)
print(heard.recv(100).decode(), flush=True)
"""
SPEAK = """
import socket, sys
speaker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
speaker.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
speaker.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
speaker.sendto(b'multicast', ('239.255.0.1', 7400))
speaker.sendto(b'unicast', (sys.argv[2], 7400))
"""


class Namespace:
    """A network namespace, held by a process that ends when its standard input does."""

    def __init__(self, within: list[str], *further: str) -> None:
        """
        Make one.

        :param within: words before a command that runs it where the namespace is made.
        :param further: options of `unshare`.
        :raises OSError: if the kernel, or who runs this, does not allow it.
        """
        command = [
            *within,
            'unshare',
            *further,
            '--net',
            'sh',
            '-c',
            f'{LOOP} && echo && exec cat',
        ]
        pipe = subprocess.PIPE
        self._holder = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        assert self._holder.stdout is not None and self._holder.stderr is not None
        if not self._holder.stdout.readline():
            self._holder.wait(10)
            raise OSError(self._holder.stderr.read().decode().strip())
        self.pid = self._holder.pid
        users = ['--user', '--preserve-credentials'] if '--map-root-user' in further else []
        self.enter = [*within, 'nsenter', '--target', str(self.pid), *users, '--net']

    def run(self, command: str) -> None:
        """Run a command in it."""
        subprocess.run([*self.enter, *shlex.split(command)], check=True, timeout=10)

    def close(self) -> None:
        """Let go of it."""
        self._holder.communicate(timeout=10)


class Network:
    """
    Some hosts behind a router.

    `router` is the namespace of the router.
    """

    def __init__(self, count: int, *, forward: bool = True) -> None:
        """
        Make them; skip the test where that cannot be.

        :param count: hosts.
        :param forward: whether the router lets one host reach another.
        """
        for tool in ('ip', 'unshare', 'nsenter'):
            if not shutil.which(tool):
                pytest.skip(f'{tool} is missing (iproute2, util-linux)')
        self._made: list[Namespace] = []
        try:
            # In a user namespace nobody needs to be root.
            self.router = self._kept(Namespace([], '--user', '--map-root-user'))
            self.router.run(f"sh -c 'echo {int(forward)} > /proc/sys/net/ipv4/ip_forward'")
            self.hosts = [self._host(each) for each in range(count)]
        except (OSError, subprocess.SubprocessError) as error:
            self.close()
            pytest.skip(f'no network namespaces with a router here: {error}')

    def _kept(self, made: Namespace) -> Namespace:
        self._made.append(made)
        return made

    def _host(self, number: int) -> Namespace:
        host, router = self._kept(Namespace(self.router.enter)), self.router
        router.run(f'ip link add to{number} type veth peer name eth0 netns {host.pid}')
        router.run(f'ip address add 10.77.{number}.1/24 dev to{number}')
        router.run(f'ip link set to{number} up')
        host.run(f'ip address add {self.address(number)}/24 dev eth0')
        self._connect(host, number)
        return host

    @staticmethod
    def _connect(host: Namespace, number: int) -> None:
        host.run('ip link set eth0 up')
        host.run(f'ip route add default via 10.77.{number}.1')

    @staticmethod
    def address(number: int) -> str:
        """Return the address of a host."""
        return f'10.77.{number}.2'

    @staticmethod
    def gateway(number: int) -> str:
        """Return the address of the router on the side of a host."""
        return f'10.77.{number}.1'

    def cut(self, number: int) -> None:
        """Take a host off the network."""
        self.hosts[number].run('ip link set eth0 down')

    def mend(self, number: int) -> None:
        """Put it back."""
        self._connect(self.hosts[number], number)

    def first_heard(self, sender: int, receiver: int) -> str:
        """Send by multicast, then to one host, and return what that host hears first."""
        python = [sys.executable, '-c']
        with subprocess.Popen(
            [*self.hosts[receiver].enter, *python, HEAR, self.address(receiver)],
            stdout=subprocess.PIPE,
            text=True,
        ) as listener:
            assert listener.stdout is not None and listener.stdout.readline()
            subprocess.run(
                [
                    *self.hosts[sender].enter,
                    *python,
                    SPEAK,
                    self.address(sender),
                    self.address(receiver),
                ],
                check=True,
                timeout=10,
            )
            return listener.stdout.readline().strip()

    def close(self) -> None:
        """Take the network down."""
        for each in reversed(self._made):
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


class WatchedHosts:
    """What the parties on some hosts note in their journals and say in their logs."""

    layouts: Sequence[Layout]
    """What each host has."""

    running: list[subprocess.Popen[bytes]]
    """What was started on them."""

    def journal(self, name: str) -> list[Entry]:
        """Return what a party noted so far."""
        paths = [each.party(name) / FILE for each in self.layouts]
        return [entry for path in paths if path.exists() for entry in read(path)]

    def policies(self, name: str, round: int) -> list[tuple[str, bool]]:
        """Return digest of the policies of a round that a hospital took, and whether it is in."""
        return [
            (each.fields['policy'], each.fields['included'])
            for each in self.journal(name)
            if each.kind == 'policy' and each.round == round
        ]

    def said(self, number: int, words: str) -> int:
        """Return how often the parties of a host said something."""
        logs = self.layouts[number].log.glob('*.log')
        return sum(each.read_text().count(words) for each in logs)

    def wait(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until a condition holds; else show what the parties said."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                logs = [log for layout in self.layouts for log in layout.log.glob('*.log')]
                outputs = [layout.directory / 'output' for layout in self.layouts]
                shown = '\n'.join(f'{log}:\n{log.read_text()}' for log in (*outputs, *logs))
                pytest.fail(f'not within {seconds} s\n{shown}')
            time.sleep(0.02)

    def end_all(self) -> None:
        """End everything."""
        for each in self.running:
            each.send_signal(signal.SIGINT)
        for each in self.running:
            try:
                each.wait(30)
            except subprocess.TimeoutExpired:
                each.kill()
