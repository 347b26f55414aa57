# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Parties that are killed at a chosen point of a run, and started again with what is on their disk.

Points are an event, which any party may die after; a message, after which its sender dies with
the rest of what it had to say; and a durable write, which is the last thing before or after which
its party dies.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Unpack

from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.protocol.message import (
    GlobalPolicy,
    MaskedUpdate,
    Message,
    Reveal,
    RoundKey,
    Settle,
    Shares,
)
from fdrl_ros.federation.protocol.party import Effects
from fdrl_ros.federation.virtual import VirtualOptions
from fdrl_ros.learner.learner import TrainingResult
from support.federation_bench import Bench, KnownLearner, QuickStore
from support.shuffled_federation import ShuffledFederation


class PowerCut(BaseException):
    """The end of a process, in the middle of whatever it does."""


@dataclass(frozen=True)
class Point:
    """
    When somebody dies.

    :param kind: 'event', 'message', 'before write' or 'after write'.
    :param number: of that kind, from 1 on.
    :param party: who dies after an event; else it is whose message or write it is.
    """

    kind: str
    number: int
    party: str = ''


class DurableLearner(KnownLearner):
    """Has a checkpoint, as the real one: a round that was trained is not trained again."""

    def __init__(self, number: int, *, size: int) -> None:
        super().__init__(number, size=size)
        self.results: dict[int, TrainingResult] = {}

    def train(self, weights: Any, round: int, **options: Any) -> TrainingResult:
        """Train a round once."""
        if round not in self.results:
            self.results[round] = super().train(weights, round, **options)
        return self.results[round]


class FragileStore(QuickStore):
    """A store whose owner may die at any write."""

    def __init__(self, path: Path, written: Callable[[str], None]) -> None:
        self._written: Callable[[str], None] = lambda when: None
        super().__init__(path)
        self._written, self._inside = written, False

    def put(self, name: str, value: bytes) -> None:
        """Write, or die."""
        self._written('before write')
        super().put(name, value)
        if not getattr(self, '_inside', False):
            self._written('after write')

    def replace(self, pattern: str, values: dict[str, bytes]) -> None:
        """Write, or die, also in the middle."""
        self._inside = True
        super().replace(pattern, values)
        self._inside = False
        self._written('after write')


class KillingFederation(ShuffledFederation):
    """Lets parties die at chosen points; the bench starts them again at once."""

    def __init__(self, seed: int, points: Iterable[Point]) -> None:
        super().__init__(seed)
        self.points = set(points)
        self.seen: Counter[str] = Counter()
        self.killed: list[Point] = []
        self.messages: list[Message] = []
        self.restart: Callable[[str], None] = lambda name: None

    def apply(self, name: str, action: Callable[[], Effects]) -> None:
        """Let a party act, and let it or another die of it."""
        try:
            super().apply(name, action)
        except PowerCut:
            self._begin_again(name)
        self.seen['event'] += 1
        for point in [each for each in self.points if each.kind == 'event']:
            if point.number == self.seen['event']:
                self.killed.append(point)
                self._begin_again(point.party)

    def post(self, message: Message) -> None:
        """Deliver a message, which may be the last of its sender in this life."""
        self.messages.append(message)
        super().post(message)
        self.reach('message')

    def reach(self, kind: str) -> None:
        """
        Count a point of a kind.

        :raises PowerCut: if somebody has to die here.
        """
        self.seen[kind] += 1
        point = Point(kind, self.seen[kind])
        if point in self.points:
            self.killed.append(point)
            raise PowerCut

    def _begin_again(self, name: str) -> None:
        while True:
            try:
                self.restart(name)
                return
            except PowerCut:
                continue


class RestartBench(Bench):
    """A federation whose parties keep everything on disk."""

    driver: KillingFederation
    learner = DurableLearner

    def __init__(
        self,
        directory: Path,
        hospitals: int,
        rounds: int,
        points: Iterable[Point],
        seed: int = 0,
        **options: Unpack[VirtualOptions],
    ) -> None:
        driver = KillingFederation(seed, points)
        driver.restart = self.restart
        super().__init__(directory, hospitals, rounds, driver=driver, **options)

    def open_store(self, name: str) -> QuickStore:
        """Open what a party keeps."""
        return FragileStore(self.path(name), self.driver.reach)


def policy_of(bench: RestartBench) -> bytes:
    """Return the digest of the last policy, which all hospitals have."""
    parties = [bench.driver.parties[name] for name in bench.names]
    policies = [each.policy for each in parties if isinstance(each, Hospital)]
    (digest,) = {each.digest for each in policies if each is not None}
    return digest


def check_said_once(messages: Iterable[Message]) -> dict[tuple[type, str, int, int, int], Message]:
    """Check that counters are new, and all else is the same or new; return it by its place."""
    said: dict[tuple[type, str, int, int, int], Message] = {}
    counters = set()
    for message in messages:
        envelope = message.envelope
        assert (envelope.sender, envelope.counter) not in counters
        counters.add((envelope.sender, envelope.counter))
        if isinstance(message, RoundKey | Shares | MaskedUpdate | Settle | Reveal | GlobalPolicy):
            attempt = 0 if isinstance(message, GlobalPolicy) else envelope.attempt
            chunk = getattr(message, 'chunk', 0)
            place = type(message), envelope.sender, envelope.round, attempt, chunk
            bare = replace(message, envelope=replace(envelope, counter=0, signature=b''))
            assert said.setdefault(place, bare) == bare
    return said


def check_nothing_is_reused(bench: RestartBench) -> None:
    """Check all that was said in all lives, and that each round was trained once."""
    rounds = list(range(1, bench.settings.rounds + 1))
    for learner in bench.learners.values():
        assert learner.trained == rounds and len(learner.links) == learner.blocks * len(rounds)
    said = check_said_once(bench.driver.messages)
    # What is derived of an attempt is of this attempt alone.
    fresh: dict[type, list[bytes]] = {RoundKey: [], Shares: [], MaskedUpdate: []}
    for (kind, *_), message in said.items():
        match message:
            case RoundKey():
                fresh[kind] += [message.mask_keys, message.sealing_keys, message.seed_hash]
            case Shares():
                fresh[kind].append(message.parcels)
            case MaskedUpdate():
                fresh[kind].append(message.ciphertext)
    for every in fresh.values():
        assert len(set(every)) == len(every) > 0


def points_of(
    directory: Path,
    hospitals: int,
    rounds: int,
    seed: int = 0,
    *,
    bench: type[RestartBench] = RestartBench,
    **options: Unpack[VirtualOptions],
) -> list[Point]:
    """Return all points of an undisturbed run, in their order: each event for each party."""
    made = bench(directory, hospitals, rounds, (), seed, **options)
    before = Counter(made.driver.seen)
    assert made.run()
    points = []
    for kind, last in made.driver.seen.items():
        for number in range(before[kind] + 1, last + 1):
            whose = sorted(made.driver.parties) if kind == 'event' else ['']
            points += [Point(kind, number, party) for party in whose]
    return points


def draw_points(rng: Random, points: list[Point], count: int) -> list[Point]:
    """Draw points of a run, of each kind about as many."""
    kinds = sorted({point.kind for point in points})
    drawn = []
    for place in range(count):
        drawn.append(rng.choice([p for p in points if p.kind == kinds[place % len(kinds)]]))
    return drawn
