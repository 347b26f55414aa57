# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A federation of whose parties an older copy of the whole directory is put back at any moment.

What a hospital's patients have spent is counted beside its ledger, from the noise that was drawn
in all lives for what others can read: a sum that was decrypted, or a policy that was published.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
import hashlib
from pathlib import Path
from random import Random
import shutil
from typing import Any

from fdrl_ros.crypto.keys.roster import SERVERS
from fdrl_ros.errors import StateLostError
from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.hospital.state import RoundSeeds
from fdrl_ros.federation.journal.journal import FILE, Journal
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import GlobalPolicy, HospitalPolicy, Message, Phase
from fdrl_ros.federation.protocol.party import Effects
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.learner.home import HOME_ROUNDS, PERSONAL
from fdrl_ros.learner.learner import HomePolicy, TrainingResult
from fdrl_ros.policy import digest_of
from fdrl_ros.privacy.ledger.chain import Head
from support.federation_bench import Bench, KnownLearner, names_of
from support.shuffled_federation import ShuffledFederation

HOSPITALS, ROUNDS = 5, 3

Draw = tuple[int, int, bytes]
"""Number in the ledger, block, and the weights that the block began with."""


def link_of(draw: Draw) -> bytes:
    """Return the entry of a ledger that permits a draw."""
    return hashlib.sha256(repr(draw).encode()).digest()


class SpendingLearner(KnownLearner):
    """
    Charges a ledger as the real one does: epsilon is how many blocks it holds.

    :ivar drawn: what was drawn in all lives; no restore takes anything out of it.
    """

    def __init__(self, number: int, *, size: int) -> None:
        super().__init__(number, size=size)
        self.drawn: set[Draw] = set()

    def _spend(self, number: int, weights: Any) -> int:
        """Charge the blocks that are not charged yet, and draw; return entries before them."""
        first = len(self.links)
        for block in range(self.blocks):
            draw = number, block, digest_of(weights)
            link = link_of(draw)
            if link not in self.links:
                self.links.append(link)
            first = min(first, self.links.index(link))
            self.drawn.add(draw)
        # The same noise for other weights would show the difference of both.
        assert len({draw[:2] for draw in self.drawn}) == len(self.drawn)
        return first

    def train(self, weights: Any, round: int, **options: Any) -> TrainingResult:
        """Train a round, maybe once more: then it is the same at no cost."""
        first = self._spend(round, weights)
        heads = list(Head(0, bytes([self.number] * 32)).followed(b''.join(self.links)))
        ledger = float(len(self.links)), *heads[-1], *heads[first], b''.join(self.links)
        return TrainingResult(weights + self.delta(round), *ledger)

    def home(self, weights: Any, round: int, **options: Any) -> HomePolicy:
        """Make the home policy of a round, maybe once more."""
        self._spend(HOME_ROUNDS + round, weights)
        moved, spent = weights + self.delta(HOME_ROUNDS + round), float(len(self.links))
        return HomePolicy(round, digest_of(weights), PERSONAL, moved, {PERSONAL: 1.0}, spent)


@dataclass(frozen=True)
class Restore:
    """A party whose directory is copied after an event, and put back after a later one."""

    party: str
    copied: int
    restored: int

    @classmethod
    def drawn(cls, rng: Random, events: int) -> 'Restore':
        """Draw a party and two moments of a run of so many events."""
        party = rng.choice((*SERVERS, *names_of(HOSPITALS)))
        return cls(party, *sorted(rng.sample(range(1, events), 2)))


class EventfulFederation(ShuffledFederation):
    """Tells of every message that is sent, and of every event once it is over."""

    said: Callable[[Message], None]
    happened: Callable[[str], None]

    def apply(self, name: str, action: Callable[[], Effects]) -> None:
        """Let a party act."""
        super().apply(name, action)
        self.happened(name)

    def post(self, message: Message) -> None:
        """Deliver a message."""
        self.said(message)
        super().post(message)


class RestoringBench(Bench):
    """
    A federation in which a restore happens, and every epsilon that is stated is checked.

    :ivar asked: whether the newest directory had to be put back, since a server asked for it.
    """

    learner = SpendingLearner

    def __init__(self, directory: Path, seed: int, restore: Restore | None = None) -> None:
        self.restore = restore
        self.events = 0
        self.asked = False
        self.out: dict[str, set[Draw]] = defaultdict(set)
        self.copies: dict[str, list[bytes]] = {}
        driver = EventfulFederation(seed)
        driver.said, driver.happened = self._said, self._happened
        super().__init__(directory, HOSPITALS, ROUNDS, driver=driver)

    # Where a party's files lie: all in one directory.

    def folder(self, name: str) -> Path:
        """Return the directory of a party."""
        assert self.directory is not None
        folder = self.directory / name
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def path(self, name: str) -> Path:
        """Return the state file of a party."""
        return self.folder(name) / 'state.sqlite'

    def open_seeds(self, name: str) -> RoundSeeds:
        """Open the round seeds of a hospital."""
        return RoundSeeds(self.folder(name), federation='test', name=name)

    def channel(self, name: str, store: Store) -> Channel:
        """Return a channel with a journal."""
        journal = Journal(self.folder(name) / FILE, self.identities[name], 'test', store)
        store.before_closing(journal.close)
        return Channel(self.identities[name], self.roster, store, journal, clock=lambda: 0.0)

    # Copy, and put back.

    def copy(self, name: str, which: str) -> None:
        """Copy a party's directory as it is now."""
        assert self.directory is not None
        shutil.copytree(self.folder(name), self.directory / which, dirs_exist_ok=True)
        if name in self.learners:
            self.copies[which] = list(self.learners[name].links)

    def put_back(self, name: str, which: str) -> None:
        """
        Kill a party, and start it with a copy of its directory.

        :raises StateLostError: if it refuses to start with that.
        """
        assert self.directory is not None
        self.kill(name)
        shutil.rmtree(self.folder(name))
        shutil.copytree(self.directory / which, self.directory / name)
        if name in self.learners:
            self.learners[name].links = list(self.copies[which])
        self.join(name)

    def _happened(self, name: str) -> None:
        self._check(name)
        self.events += 1
        if self.restore is None:
            return
        party = self.restore.party
        if self.events == self.restore.copied:
            self.copy(party, 'older')
        elif self.events == self.restore.restored:
            self.copy(party, 'newest')
            try:
                self.put_back(party, 'older')
            except StateLostError:
                self._put_newest_back()
        elif 'an older copy?' in self.driver.notes.get('key_authority', '') and not self.asked:
            self._put_newest_back()

    def _put_newest_back(self) -> None:
        """Do what a server asks for that does not go on with an older copy."""
        assert self.restore and self.restore.party == 'key_authority'
        self.asked = True
        self.put_back('key_authority', 'newest')

    # What is checked.

    def hospital(self, name: str) -> Hospital:
        """Return a hospital that runs now."""
        party = self.parties[name]
        assert isinstance(party, Hospital)
        return party

    def _said(self, message: Message) -> None:
        """Note what others can read from now on; what a policy says of it must be true."""
        round, name = message.envelope.round, message.sender
        if isinstance(message, GlobalPolicy):
            for each in message.contributors:
                self.out[each] |= {d for d in self.learners[each].drawn if d[0] == round}
        elif isinstance(message, HospitalPolicy):
            hospital = self.hospital(name)
            home = hospital.home
            if home is not None and digest_of(home.weights) == message.digest:
                round += HOME_ROUNDS
            # What this life drew in earlier rounds may be in it; what another life drew, and sent
            # to nobody, is not.
            learner = self.learners[name]
            self.out[name] |= {
                d for d in learner.drawn if d[0] == round or link_of(d) in learner.links
            }
            assert not hospital.restored
            assert message.epsilon >= len(self.out[name]), (name, self.restore)

    def _check(self, name: str) -> None:
        """Check what a hospital's node would state now."""
        party = self.parties.get(name)
        if isinstance(party, Hospital) and party.accounted and not party.restored:
            assert len(self.learners[name].links) >= len(self.out[name]), (name, self.restore)

    def is_over(self) -> bool:
        """Tell whether all rounds are done, and all hospitals that were not restored at home."""
        hospitals = [self.hospital(name) for name in self.names if not self.is_restored(name)]
        return self.aggregator.phase is Phase.FINISHED and all(
            each.home is not None and each.home.round == ROUNDS for each in hospitals
        )

    def is_restored(self, name: str) -> bool:
        """Tell whether a hospital's directory is an older copy."""
        return self.restore is not None and self.restore.party == name


def check_restore(directory: Path, seed: int, events: int) -> RestoringBench:
    """
    Play a federation in which a random directory is put back at a random moment.

    :param events: of an undisturbed run, about.
    """
    restore = Restore.drawn(Random(seed), events)
    bench = RestoringBench(directory, seed, restore)
    assert bench.run(ticks=700), restore
    # Nobody waited for a deadline of training, and rounds that are over stay so.
    assert bench.driver.now < bench.settings.train_timeout / 5.0, (restore, bench.driver.now)
    return bench
