# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""An in-process driver that delivers in any order that topics allow, and on any schedule."""

from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from random import Random

from fdrl_ros.federation.local_driver import LocalFederation
from fdrl_ros.federation.protocol.message import Message
from fdrl_ros.federation.protocol.party import Effects, Party

Item = tuple[str, Callable[[], Effects]]


class Lanes:
    """What is to be done, in lanes: each keeps its order, and chance says which goes on."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._lanes: dict[Hashable, deque[Item]] = {}
        self._filled: list[Hashable] = []

    def __bool__(self) -> bool:
        return bool(self._filled)

    def append(self, item: Item, lane: Hashable = None) -> None:
        """Put an item at the end of a lane; without one, of its party's own."""
        lane = lane or item[0]
        if lane not in self._lanes:
            self._lanes[lane] = deque()
            self._filled.append(lane)
        self._lanes[lane].append(item)

    def popleft(self) -> Item:
        """Take the first item of some lane."""
        at = self._rng.randrange(len(self._filled))
        items = self._lanes[self._filled[at]]
        item = items.popleft()
        if not items:
            del self._lanes[self._filled[at]]
            self._filled[at] = self._filled[-1]
            self._filled.pop()
        return item

    def without(self, name: str) -> 'Lanes':
        """Return what there is to be done when a party is gone."""
        left = Lanes(self._rng)
        for lane, items in self._lanes.items():
            for item in items:
                if item[0] != name:
                    left.append(item, lane)
        return left


class ShuffledFederation(LocalFederation):
    """
    Delivers messages of one kind from one sender in their order, and all else in any order.

    That is what topics promise. Jobs end at any time too.

    :param seed: of the order.
    :param hurry: chance, after each step, that the clock jumps although there is more to do, so
        that deadlines pass while messages are on their way.
    :param tick: how far the clock jumps, second.
    """

    def __init__(self, seed: int, *, hurry: float = 0.0, tick: float = 1.0) -> None:
        super().__init__({}, tick=tick)
        self.rng = Random(seed)
        self.hurry = hurry
        self._lanes = Lanes(self.rng)
        self.queue = self._lanes  # type: ignore[assignment]

    def join(self, name: str, party: Party) -> None:
        """Add a party, which begins before it hears anything."""
        self.parties[name] = party
        self.apply(name, partial(party.start, self.now))
        for (sender, _, _), message in list(self.latched.items()):
            if sender != name:
                self.deliver(name, message)

    def leave(self, name: str) -> None:
        """Take a party away without a word; what it said before still arrives."""
        lanes, self.queue = self._lanes.without(name), deque()
        super().leave(name)
        self.queue = self._lanes = lanes  # type: ignore[assignment]

    def apply(self, name: str, action: Callable[[], Effects]) -> None:
        """Let a party act; see the base."""
        super().apply(name, action)
        if self.hurry and self.rng.random() < self.hurry:
            self.now += self._tick
            for each, party in list(self.parties.items()):
                super().apply(each, partial(party.tick, self.now))

    def deliver(self, name: str, message: Message) -> None:
        if type(message) in self.parties[name].takes and getattr(message, 'to', name) == name:
            lane = name, message.envelope.sender, type(message)
            self._lanes.append((name, lambda: self.parties[name].handle(message, self.now)), lane)
