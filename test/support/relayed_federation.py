# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""An in-process federation whose messages go over a router that lies: it drops, repeats, mixes."""

from collections.abc import Callable
from functools import partial
from random import Random

from fdrl_ros.deployment.link.party_link import PartyLink
from fdrl_ros.errors import MessageError
from fdrl_ros.federation.local_driver import LocalFederation
from fdrl_ros.federation.protocol.message import Message
from fdrl_ros.federation.protocol.party import Effects, Party

KEY = bytes(range(32))


def hears(expression: str, key: str) -> bool:
    """Tell whether a key expression of ours matches a key, as the router does."""
    wanted, words = expression.split('/'), key.split('/')
    return len(wanted) == len(words) and all(
        each in ('*', word) for each, word in zip(wanted, words, strict=True)
    )


class RelayedFederation(LocalFederation):
    """
    Moves messages by the parties' links, over a router that does what it likes.

    :param seed: of what it does.
    :param lost: chance that what a party sends gets lost, for each who should hear it.
    :param repeated: chance that it comes twice, the second time later.
    :param mixed: chance that it waits for what comes after it.
    :param cut: parties that are off the network.
    """

    def __init__(
        self, seed: int, *, lost: float = 0.0, repeated: float = 0.0, mixed: float = 0.0
    ) -> None:
        super().__init__({})
        self.rng = Random(seed)
        self.lost, self.repeated, self.mixed = lost, repeated, mixed
        self.cut: set[str] = set()
        self.links: dict[str, PartyLink] = {}
        self.seen: list[tuple[str, bytes]] = []
        """All that the router saw."""
        self._late: list[Callable[[], None]] = []
        self._ticked = 0.0

    def join(self, name: str, party: Party) -> None:
        """Add a party; its link asks for what there is."""
        put = partial(self._relay, name)
        self.parties[name] = party
        roster = party.channel.roster  # type: ignore[attr-defined]
        self.links[name] = PartyLink(name, roster, party.takes, KEY, put)  # type: ignore[arg-type]
        self._later(name, lambda: party.start(self.now))

    def leave(self, name: str) -> None:
        """Remove a party and its link."""
        super().leave(name)
        del self.links[name]

    def post(self, message: Message) -> None:
        """Send a message by its sender's link."""
        self.links[message.sender].send(message)

    def apply(self, name: str, action: Callable[[], Effects]) -> None:
        """Let a party act; links tick when the clock does, and what was late arrives."""
        if self.now > self._ticked:
            self._ticked = self.now
            late, self._late = self._late, []
            for each in late:
                each()
            for link in list(self.links.values()):
                link.tick(self.now)
        super().apply(name, action)

    def _relay(self, sender: str, key: str, payload: bytes) -> None:
        self.seen.append((key, payload))
        for name, link in self.links.items():
            if name == sender or {name, sender} & self.cut:
                continue
            if not any(hears(each, key) for each in link.keys) or self._chance(self.lost):
                continue
            arrive = partial(self._later, name, partial(self._take, name, key, payload))
            if self._chance(self.repeated):
                self._late.append(arrive)
            (self._late.append if self._chance(self.mixed) else lambda act: act())(arrive)
        self.rng.shuffle(self._late)

    def _chance(self, share: float) -> bool:
        return self.rng.random() < share

    def _take(self, name: str, key: str, payload: bytes) -> Effects:
        try:
            messages = self.links[name].heard(key, payload)
        except MessageError as error:
            self.refused.append((name, error))
            return Effects()
        for message in messages:
            self.apply(name, partial(self.parties[name].handle, message, self.now))
        return Effects()
