# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Hospitals of a simulated federation that live in one process: the driver's, or one of Ray's.

In a process of Ray's they are a shard. Messages go in and come out; records, ledgers, noise and
secrets of masks stay there and on the disk. Nothing here imports Ray.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
import logging
from logging.handlers import QueueHandler
from queue import SimpleQueue
from typing import NamedTuple

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.hospital import open_hospital, open_records, open_training
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.errors import MessageError, StoreError
from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.local_driver import LocalFederation
from fdrl_ros.federation.protocol.message import Message
from fdrl_ros.federation.protocol.party import Job
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.learner.trainer import Trainer
from fdrl_ros.resources import package_version
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.stopwatch import peak_memory

START, TICK, JOB = 'start', 'tick', 'job'
"""What a hospital may be asked for besides taking a message."""


class Standing(NamedTuple):
    """
    Where a hospital stands.

    :param round: of the newest policy that it has; -1 for none.
    :param problem: why it takes no part any more; empty while it does.
    :param restored: whether its ledger lacks entries that a server saw.
    """

    round: int
    problem: str
    restored: bool


class HospitalGroup:
    """
    Open hospitals with their records, ledgers, trainers and stores; records are collected first.

    :param names: of the hospitals.
    :param done: rounds that the federation ended before.
    :param caller: hears of the collection of records, and may stop it.
    :raises FdrlError: if one of them cannot be opened.
    :raises TrainingStopped: as soon as the caller says so.
    """

    def __init__(
        self, layout: Layout, plan: Plan, names: Iterable[str], done: int, caller: Caller = NOBODY
    ) -> None:
        self.hospitals: dict[str, Hospital] = {}
        self._trainers: dict[str, Trainer] = {}
        start = load_policy(layout.pretrained).weights
        with ExitStack() as stack:
            for name in names:
                records = open_records(
                    layout,
                    name,
                    plan,
                    progress=caller.counter('collect', name),
                    stopped=caller.stopped,
                )
                self._trainers[name] = open_training(
                    layout.party(name),
                    name,
                    plan,
                    records,
                    done=done,
                    start=start,
                    passphrase=layout.passphrase,
                )
                stack.callback(self._trainers[name].ledger.close)
            for name, trainer in self._trainers.items():
                store = Store(layout.state(name))
                stack.callback(store.close)
                self.hospitals[name] = open_hospital(layout, name, plan, trainer, store)
            self._opened = stack.pop_all()

    def close(self) -> None:
        """Close stores and ledgers."""
        self._opened.close()

    def epsilons(self) -> dict[str, float]:
        """Return what each hospital has spent, as it states it."""
        return {
            name: each.ledger.epsilon_stated(newest=not self.hospitals[name].restored)
            for name, each in self._trainers.items()
        }

    def standings(self) -> dict[str, Standing]:
        """Return where each hospital stands."""
        return {
            name: Standing(
                each.policy.envelope.round if each.policy else -1, each.problem, each.restored
            )
            for name, each in self.hospitals.items()
        }


class Task(NamedTuple):
    """
    Something for hospitals of a shard to do.

    :param place: in the order of the driver.
    :param to: the hospital; empty for all but the sender of the message.
    :param what: a message, or START, TICK or JOB.
    """

    place: int
    to: str
    what: Message | str


@dataclass
class Reply:
    """
    What came of a shard's tasks.

    :param wanted: in order, by the place of the task: messages to post, and names of hospitals
        that have a job to do.
    :param told: see :meth:`Shard.look`.
    :param standings: where hospitals stand that moved.
    :param notes: as :attr:`LocalFederation.notes`, `refused` and `seconds` too.
    :param held: the most memory that the shard's process has held so far, MB; None if unknown.
    """

    wanted: dict[int, list[Message | str]] = field(default_factory=dict)
    told: list[object] = field(default_factory=list)
    standings: dict[str, Standing] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    refused: list[tuple[str, MessageError]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    held: float | None = field(default_factory=peak_memory)


class Shard(LocalFederation):
    """
    Some hospitals in a process of their own, which a driver elsewhere moves.

    One thread calls all but :meth:`look`, which another one may call at any time.
    """

    def __init__(self) -> None:
        self._told: SimpleQueue[object] = SimpleQueue()
        super().__init__({}, report=lambda name, progress: self._told.put((name, progress)))
        logging.getLogger().addHandler(QueueHandler(self._told))  # warnings and worse
        self._group: HospitalGroup | None = None
        self._jobs: defaultdict[str, deque[Job]] = defaultdict(deque)
        self._wanted: list[Message | str] = []
        self._standings: dict[str, Standing] = {}

    def open(
        self, layout: Layout, plan: Plan, names: Sequence[str], done: int, version: str
    ) -> Reply:
        """
        Open the shard's hospitals; see :class:`HospitalGroup`.

        :param version: of the driver's package, which must be this one's.
        :raises StoreError: if it is another one, or the directory is not here.
        """
        if version != package_version():
            raise StoreError(f'a host has fdrl_ros {package_version()}, another one {version}')
        if not layout.plan.exists():
            raise StoreError(f'{layout.directory} is not on every host under this path')
        self._group = HospitalGroup(layout, plan, names, done, Caller(self._told.put))
        self.parties.update(self._group.hospitals)
        return self._reply({})

    def look(self, stop: bool = False) -> list[object]:
        """
        Return what was told since the last look: progress of hospitals, and lines of the log.

        :param stop: whether running jobs are to stop.
        """
        if stop:
            self.stop()
        return [self._told.get() for _ in range(self._told.qsize())]

    def play(self, shared: Sequence[Task], own: Sequence[Task], now: float) -> Reply:
        """
        Let hospitals do their tasks in order.

        :param shared: tasks of all shards.
        :param own: tasks of this one.
        :param now: the driver's clock, second.
        """
        self.now, self._stopped = now, False
        wanted = {}
        for place, to, what in sorted((*shared, *own), key=lambda task: task.place):
            self._wanted = []
            for name in (to,) if to else tuple(self.parties):
                if what == JOB:
                    if self._jobs[name]:  # not if this process was started again meanwhile
                        self.apply(name, partial(self._work, name, self._jobs[name].popleft()))
                elif isinstance(what, str):
                    self.apply(name, partial(getattr(self.parties[name], what), now))
                elif what.sender != name:
                    self.apply(name, partial(self.parties[name].handle, what, now))
            if self._wanted:
                wanted[place] = self._wanted
        return self._reply(wanted)

    def post(self, message: Message) -> None:
        """Leave a message to the driver."""
        self._wanted.append(message)

    def begin(self, name: str, job: Job) -> None:
        """Queue a hospital's job, until the driver asks for it."""
        self._jobs[name].append(job)
        self._wanted.append(name)

    def epsilons(self) -> dict[str, float]:
        """Return what each hospital has spent."""
        assert self._group is not None
        return self._group.epsilons()

    def close(self) -> None:
        """Close the shard's hospitals."""
        if self._group is not None:
            self._group.close()

    def _reply(self, wanted: dict[int, list[Message | str]]) -> Reply:
        assert self._group is not None
        before, self._standings = self._standings, self._group.standings()
        moved = {name: at for name, at in self._standings.items() if at != before.get(name)}
        noted, self.notes, refused, self.refused = self.notes, {}, self.refused, []
        return Reply(wanted, self.look(), moved, noted, refused, self.stopwatch.take())
