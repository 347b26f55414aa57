# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Long weights reach readers on the same host and elsewhere, late ones too; wrong ones do not."""

from collections.abc import Iterator
import hashlib
import os
from pathlib import Path
import shutil
import signal
import time
from typing import Any

from fdrl_ros.deployment.assembly import open_records
from fdrl_ros.deployment.bringup import BringupSettings
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import Layout, prepare
from fdrl_ros.deployment.runner import Runner
from fdrl_ros.federation.protocol.message import MaskedUpdate, RoundStatus
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.parties import long_weights, memory_file
from fdrl_ros.nodes.parties.long_weights import BESIDE, SHORT, WeightsIn, WeightsOut
from fdrl_ros.nodes.parties.memory_file import fetch, KEPT, MemoryFiles
from fdrl_ros.nodes.parties.pieces import Assembly, cut, PIECE
from fdrl_ros.nodes.watch import Said, Watch
from node.conftest import Live, PLAN, play
import numpy as np
import pytest
import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor

SIZE = 5 * PIECE + 1000
GENERATOR = np.random.default_rng(5)


def some(size: int = SIZE) -> tuple[bytes, bytes]:
    """Return bytes and their digest."""
    data = GENERATOR.bytes(size)
    return data, hashlib.sha256(data).digest()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep this test's files out of the way of others."""
    monkeypatch.setattr(memory_file, 'FOLDER', tmp_path)
    return tmp_path / f'fdrl_ros-{os.getuid()}'


# In memory.


def test_what_is_offered_can_be_read_until_it_is_taken_back(folder):
    files, every = MemoryFiles(), [some() for _ in range(KEPT + 2)]
    for data, digest in every:
        assert files.offer(data, digest) and files.offer(data, digest)
        assert fetch(digest, SIZE) == data
    there = [fetch(digest, SIZE) is not None for _, digest in every]
    assert there == [False] * 2 + [True] * KEPT
    assert (folder.stat().st_mode & 0o777, len(list(folder.iterdir()))) == (0o700, KEPT)
    shorter, digest = some(1000)
    assert files.offer(shorter, digest) and fetch(digest, 1000) == shorter
    files.close()
    assert not list(folder.iterdir())


def test_of_another_size_owner_or_kind_nothing_is_read(folder, monkeypatch):
    files, (data, digest) = MemoryFiles(), some()
    assert files.offer(data, digest)
    assert fetch(digest, SIZE + 1) is None
    name = next(folder.iterdir())
    for odd in (lambda p: p.symlink_to('/dev/zero'), lambda p: os.mkfifo(p), Path.mkdir):
        other = hashlib.sha256(str(odd).encode()).digest()
        odd(folder / f'{other.hex()}-{os.getpid()}')
        assert fetch(other, SIZE) is None
    user = os.getuid()
    monkeypatch.setattr(memory_file.os, 'getuid', lambda: user + 1)
    name.parent.rename(name.parent.with_name(f'fdrl_ros-{user + 1}'))
    assert fetch(digest, SIZE) is None
    assert not MemoryFiles().offer(data, digest)


def test_who_reads_while_the_file_is_taken_for_others_gets_nothing(monkeypatch):
    files, (data, digest) = MemoryFiles(), some()
    files.offer(data, digest)
    look = os.fstat

    def slow(descriptor: int) -> os.stat_result:
        for _ in range(KEPT):
            files.offer(*some())
        return look(descriptor)

    monkeypatch.setattr(memory_file.os, 'fstat', slow)
    assert fetch(digest, SIZE) is None


def test_what_a_killed_process_left_is_removed(folder):
    pid = os.fork()
    if pid == 0:
        MemoryFiles().offer(*some())
        (folder / f'part-{os.getpid()}').touch()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert len(list(folder.iterdir())) == 2
    files = MemoryFiles()
    assert files.offer(*some())
    assert [each.name.endswith(f'-{os.getpid()}') for each in folder.iterdir()] == [True]


def test_without_room_nothing_is_offered(folder, monkeypatch):
    def full(*arguments: Any) -> None:
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(memory_file.os, 'posix_fallocate', full)
    assert not MemoryFiles().offer(*some())
    assert not list(folder.iterdir())


# In pieces.


def test_pieces_in_any_order_make_the_whole_and_odd_ones_are_left_out():
    data, digest = some()
    pieces = list(cut(data, digest))
    odd = [
        ros.Piece(digest=pieces[0].digest, piece=99, data=pieces[0].data),
        ros.Piece(digest=pieces[0].digest, piece=5, data=pieces[0].data),
        ros.Piece(digest=pieces[0].digest, piece=1, data=pieces[5].data),
        ros.Piece(digest=pieces[0].digest, piece=2**32 - 1),
    ]
    assembly = Assembly(SIZE)
    for piece in [*odd, *pieces[::-1][:-1], *odd, pieces[3]]:
        assert assembly.take(piece) is None and assembly.pop(digest) is None
    assert assembly.take(pieces[0]) == digest
    assert bytes(assembly.pop(digest)) == data and assembly.pop(digest) is None


def test_pieces_of_many_weights_take_the_room_of_two():
    assembly = Assembly(SIZE)
    for _ in range(20):
        assembly.take(next(cut(*some())))
    assert len(assembly._parts) == 2


# Between processes, as it were.


class Room:
    """A sender and a reader in nodes of their own; work aside is done at once."""

    def __init__(self, domain: int) -> None:
        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.heard: list[tuple[Any, bytes | None]] = []
        self.outs: list[WeightsOut] = []
        self.nodes = [self.node('sender')]

    def node(self, name: str) -> Any:
        node = rclpy.create_node(name, context=self.context)
        self.executor.add_node(node)
        return node

    def out(self) -> WeightsOut:
        made = WeightsOut(
            self.nodes[0].create_publisher, ros.GlobalPolicy, '/policy', self.at_once
        )
        self.outs.append(made)
        return made

    @staticmethod
    def at_once(work: Any, done: Any) -> None:
        done(work())

    def reader(self, size: int = SIZE) -> WeightsIn:
        node = self.node(f'reader_{len(self.nodes)}')
        self.nodes.append(node)

        def listen(take: Any) -> None:
            node.create_subscription(ros.Piece, f'/policy/{BESIDE}', take, qos.PIECES)

        made = WeightsIn(size, self.at_once, listen, lambda *said: self.heard.append(said))
        node.create_subscription(ros.GlobalPolicy, '/policy', made.take, qos.HEARD)
        return made

    def spin(self, until: Any, seconds: float = 10.0) -> bool:
        deadline = time.monotonic() + seconds
        while not until() and time.monotonic() < deadline:
            self.executor.spin_once(timeout_sec=0.01)
            for each in self.outs:
                if each.stream.is_due:
                    each.stream.burst()
        return bool(until())

    def close(self) -> None:
        for each in self.outs:
            each.close()
        for node in self.nodes:
            node.destroy_node()
        rclpy.shutdown(context=self.context)


@pytest.fixture
def link(federation_domain: int) -> Iterator[Room]:
    made = Room(federation_domain)
    yield made
    made.close()


def announcement(data: bytes, digest: bytes, reason: str = '') -> ros.GlobalPolicy:
    message = ros.GlobalPolicy(reason=reason)
    message.weights.frombytes(data)
    message.digest.frombytes(digest)
    return message


@pytest.mark.parametrize('elsewhere', [False, True], ids=['same host', 'another host'])
def test_long_weights_reach_readers_before_and_after(link, elsewhere, monkeypatch):
    if elsewhere:
        monkeypatch.setattr(long_weights, 'fetch', lambda digest, size: None)
    out, first = link.out(), link.reader()
    (data, digest), (newer, newest) = some(), some()
    out.publish(announcement(b'', digest), data)
    assert link.spin(lambda: len(link.heard) == 1)
    link.reader()
    assert link.spin(lambda: len(link.heard) == 2)
    out.publish(announcement(b'', newest, 'newer'), newer)
    assert link.spin(lambda: len(link.heard) == 4)
    assert [said[1] for said in link.heard] == [data, data, newer, newer]
    assert all(not len(said[0].weights) for said in link.heard)
    assert (first._assembly is not None) is elsewhere


def test_short_weights_travel_in_their_message(link):
    out = link.out()
    link.reader(SHORT)
    data, digest = some(SHORT)
    out.publish(announcement(data, digest))
    assert link.spin(lambda: link.heard)
    message, beside = link.heard[0]
    assert message.weights.tobytes() == data and beside is None


def test_wrong_pieces_make_no_weights(link, monkeypatch):
    monkeypatch.setattr(long_weights, 'fetch', lambda digest, size: None)
    out = link.out()
    link.reader()
    data, digest = some()
    liar = link.nodes[0].create_publisher(ros.Piece, f'/policy/{BESIDE}', qos.PIECES)
    out._message.publish(announcement(b'', digest))
    assert link.spin(lambda: liar.get_subscription_count() > 0)
    for piece in cut(bytes(SIZE), digest):
        liar.publish(piece)
    assert not link.spin(lambda: link.heard, seconds=1.0)
    out.stream.begin(data, digest)
    assert link.spin(lambda: link.heard)
    assert link.heard[0][1] == data


# The whole federation.


LARGE = Plan.from_mapping(
    {
        **PLAN.to_mapping(),
        'learner': {'hidden': 600, 'epochs': 1},
        'rounds': {'rounds': 1, 'open_timeout': 10.0, 'train_timeout': 60.0},
    }
)


def test_a_large_model_ends_with_the_policy_of_the_in_process_driver(
    tmp_path, federation_domain, robot_domain
):
    assert 4 * LARGE.shape.n_parameters > 4 * SHORT
    directory, played = tmp_path / 'federation', tmp_path / 'played'
    layout = prepare(directory, LARGE)
    for name in LARGE.hospitals:
        open_records(layout, name, LARGE)
    shutil.copytree(directory, played)
    digest = play(Layout(played), LARGE)
    settings = BringupSettings(
        directory=str(directory), federation_domain=federation_domain, robot_domain=robot_domain
    )
    with (
        Watch(layout.roster(), federation_domain, n_parameters=LARGE.shape.n_parameters) as watch,
        Runner(settings, layout.log) as runner,
    ):
        live = Live(runner, watch, settings)
        live.start()
        live.wait(lambda: watch.finished and live.policy(1) is not None, 120.0)
        assert live.policy(1).digest == digest
        chunks = [e for e in live.heard if isinstance(getattr(e, 'message', None), MaskedUpdate)]
        assert max(each.message.chunk for each in chunks) >= 39
        attempts = [e.message.envelope.attempt for e in live.heard if _is_status(e)]
        assert max(attempts) == 1
        live.wait(lambda: 'FINISHED' in live.health('/federation/aggregator')['summary'], 5.0)
        assert live.health('/federation/aggregator')['refused'] == '0'
        assert live.health('/federation/key_authority')['refused'] == '0'
        assert not live.deaths


def _is_status(event: Any) -> bool:
    return isinstance(event, Said) and isinstance(event.message, RoundStatus)
