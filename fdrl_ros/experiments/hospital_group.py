# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Hospitals of a simulated federation that live in one process: the driver's, or one of Ray's.

In a process of Ray's they are a shard. Messages go in and come out; records, ledgers, noise and
secrets of masks stay there and on the disk. Nothing here imports Ray.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
import logging
from logging.handlers import QueueHandler
from queue import Empty, SimpleQueue
import threading
from typing import NamedTuple

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.hospital import open_hospital, open_records, open_training
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.errors import FdrlError, StoreError
from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.local_driver import result_of
from fdrl_ros.federation.protocol.message import Message
from fdrl_ros.federation.protocol.party import Effects, Job, Report, Stopped
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.learner.trainer import Trainer
from fdrl_ros.resources import package_version
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.stopwatch import Stopwatch

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

    def epsilon(self, name: str) -> float:
        """Return what a hospital has spent, as it states it."""
        newest = not self.hospitals[name].restored
        return self._trainers[name].ledger.epsilon_stated(newest=newest)

    def epsilons(self) -> dict[str, float]:
        """Return what each hospital has spent."""
        return {name: self.epsilon(name) for name in self.hospitals}

    def standing(self, name: str) -> Standing:
        """Return where a hospital stands."""
        party = self.hospitals[name]
        round = party.policy.envelope.round if party.policy else -1
        return Standing(round, party.problem, party.restored)

    def standings(self) -> dict[str, Standing]:
        """Return where each hospital stands."""
        return {name: self.standing(name) for name in self.hospitals}


@dataclass(frozen=True)
class Outcome:
    """What came of something that a party did: what it wants done, or why it refused."""

    name: str
    effects: Effects = Effects()
    error: FdrlError | None = None

    @classmethod
    def of(cls, name: str, action: Callable[[], Effects]) -> 'Outcome':
        """Let a party act."""
        try:
            return cls(name, action())
        except FdrlError as error:
            return cls(name, error=error)

    def given(self) -> Effects:
        """
        Return what the party wants done.

        :raises FdrlError: what it refused with.
        """
        if self.error is not None:
            raise self.error
        return self.effects


class Task(NamedTuple):
    """
    Something for hospitals of a shard to do.

    :param place: in the order of the driver.
    :param to: the hospital; empty for all but the sender of the message.
    :param what: a message, or one of START, TICK and JOB.
    """

    place: int
    to: str
    what: Message | str


@dataclass
class Reply:
    """
    What came of a shard's tasks.

    :param outcomes: in order, by the place of the task; of all that is empty nothing.
    :param standings: where hospitals stand that moved.
    :param epsilons: what hospitals have spent that spent something.
    :param seconds: of jobs, by name.
    :param told: progress and lines of the log since the last look.
    """

    outcomes: dict[int, list[Outcome]] = field(default_factory=dict)
    standings: dict[str, Standing] = field(default_factory=dict)
    epsilons: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    told: list[object] = field(default_factory=list)


class Shard:
    """
    Some hospitals in a process of their own, which a driver elsewhere moves.

    One thread calls all but :meth:`look`, which another one may call at any time.
    """

    def __init__(self) -> None:
        self._group: HospitalGroup | None = None
        self._jobs: defaultdict[str, deque[Job]] = defaultdict(deque)
        self._told: SimpleQueue[object] = SimpleQueue()
        self._stop = threading.Event()
        self._watch = Stopwatch()
        self._standings: dict[str, Standing] = {}
        handler = QueueHandler(self._told)
        handler.setLevel(logging.WARNING)
        logging.getLogger().addHandler(handler)

    def open(
        self, layout: Layout, plan: Plan, names: Sequence[str], done: int, version: str
    ) -> Reply:
        """
        Open the shard's hospitals; see :class:`HospitalGroup`.

        :param version: of the driver's package, which must be this one's.
        :raises StoreError: if it is another one, or the directory is not here.
        """
        if version != package_version():
            raise StoreError(f'a host has fdrl_ros {package_version()}, this one {version}')
        if not layout.plan.exists():
            raise StoreError(
                f'{layout.directory} is not on every host: they need one file system, on which it '
                'has the same path'
            )
        caller = Caller(self._told.put, self._stop.is_set)
        self._group = HospitalGroup(layout, plan, names, done, caller)
        self._standings = self._group.standings()
        return Reply({}, dict(self._standings), self._group.epsilons(), told=self.look())

    def look(self, stop: bool = False) -> list[object]:
        """
        Return what was told since the last look: progress of hospitals, and lines of the log.

        :param stop: whether running jobs are to stop.
        """
        if stop:
            self._stop.set()
        told: list[object] = []
        while True:
            try:
                told.append(self._told.get_nowait())
            except Empty:
                return told

    def play(self, shared: Sequence[Task], own: Sequence[Task], now: float) -> Reply:
        """
        Let hospitals do their tasks in order.

        :param shared: tasks of all shards.
        :param own: tasks of this one.
        :param now: the driver's clock, second.
        """
        assert self._group is not None
        self._stop.clear()
        reply, before = Reply(), self._group.standings()
        for place, to, what in sorted((*shared, *own), key=lambda task: task.place):
            names = (to,) if to else tuple(self._group.hospitals)
            found = [
                self._outcome(name, what, now, reply)
                for name in names
                if isinstance(what, str) or what.sender != name
            ]
            if told := [each for each in found if each.error or each.effects != Effects()]:
                reply.outcomes.setdefault(place, []).extend(told)
        for name, standing in self._group.standings().items():
            if standing != before[name]:
                reply.standings[name] = standing
                if standing.restored != before[name].restored:
                    reply.epsilons[name] = self._group.epsilon(name)
        reply.seconds, reply.told = self._watch.take(), self.look()
        return reply

    def _outcome(self, name: str, what: Message | str, now: float, reply: Reply) -> Outcome:
        assert self._group is not None
        party = self._group.hospitals[name]
        match what:
            case Message():
                outcome = Outcome.of(name, lambda: party.handle(what, now))
            case 'start':
                outcome = Outcome.of(name, lambda: party.start(now))
            case 'tick':
                outcome = Outcome.of(name, lambda: party.tick(now))
            case _:
                job = self._jobs[name].popleft()
                run = self._watch.timed(job.name, job.run)
                result = result_of(
                    run, lambda told: self._told.put((name, told)), self._stop.is_set
                )
                outcome = Outcome.of(name, lambda: party.finish(job, result, now))
                if job.name in ('train', 'home'):
                    reply.epsilons[name] = self._group.epsilon(name)
        self._jobs[name].extend(outcome.effects.jobs)
        kept = tuple(Job(job.name, _elsewhere) for job in outcome.effects.jobs)
        return replace(outcome, effects=replace(outcome.effects, jobs=kept))

    def close(self) -> None:
        """Close the shard's hospitals."""
        if self._group is not None:
            self._group.close()


def _elsewhere(report: Report, stopped: Stopped) -> object:
    raise NotImplementedError('the job is done in its shard')
