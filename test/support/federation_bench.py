# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A federation whose learners are simple enough to check by hand."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import cache
import hashlib
from pathlib import Path
from typing import Unpack

from fdrl_ros.crypto.he.encryption import PublicContext, SecretContext
from fdrl_ros.crypto.he.quantisation import Quantisation
from fdrl_ros.crypto.he.schemes import (
    AnyScheme,
    choose_scheme,
    EncryptionSettings,
    projections_of,
)
from fdrl_ros.crypto.keys.roster import SERVERS
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.errors import BudgetExceededError, LedgerCorruptError
from fdrl_ros.federation.aggregator.aggregator import Aggregator
from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.hospital.state import RoundSeeds
from fdrl_ros.federation.key_authority.key_authority import KeyAuthority
from fdrl_ros.federation.key_authority.state import Validation
from fdrl_ros.federation.protocol.blame import check_blame
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import Blame, Fault, Message, Order, Phase
from fdrl_ros.federation.protocol.orders import ADDRESSEES, sign_order
from fdrl_ros.federation.protocol.party import Party
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.federation.protocol.update_codec import Terms, UpdateCodec
from fdrl_ros.federation.settings import RoundSettings
from fdrl_ros.federation.virtual import VirtualFederation, VirtualOptions
from fdrl_ros.learner.learner import TrainingProgress, TrainingResult
from fdrl_ros.policy import digest_of, NetworkShape
from fdrl_ros.privacy.ledger.chain import Head
import numpy as np
from pytest import MonkeyPatch

SHAPE = NetworkShape(states=4, actions=3, hidden=(5,))
ENCRYPTION = EncryptionSettings(limit=0.5, bits=16)


def start_of(shape: NetworkShape) -> np.ndarray:
    """Return the weights that a federation of a network begins with."""
    return np.linspace(-1.0, 1.0, shape.n_parameters).astype(np.float32)


START = start_of(SHAPE)


def names_of(hospitals: int) -> list[str]:
    """Return the names of so many hospitals."""
    return [f'hospital_{i}' for i in range(1, hospitals + 1)]


@cache
def identities_of(hospitals: int) -> dict[str, Identity]:
    """Return an identity for every party; federations of one size share theirs."""
    return {name: Identity.generate(name) for name in (*names_of(hospitals), *SERVERS, 'operator')}


@cache
def secret_of(scheme: AnyScheme) -> SecretContext:
    """Return a key pair; federations of one scheme share theirs."""
    return SecretContext.generate(scheme)


@contextmanager
def keys_read_once() -> Iterator[MonkeyPatch]:
    """Let all parties of this process share what they read out of a public encryption key."""
    with MonkeyPatch.context() as patch:
        patch.setattr(PublicContext, 'from_bytes', cache(PublicContext.from_bytes))
        patch.setattr(UpdateCodec, 'agree', cache(UpdateCodec.agree))
        yield patch


class QuickStore(Store):
    """A store that a killed process leaves whole, but no killed machine: it waits for no disk."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path)
        self._table.execute('PRAGMA synchronous=OFF')


class KnownLearner:
    """
    Moves the weights by a known step and keeps count of how often it was asked to.

    It has no checkpoint, so that a test sees a party that asks twice.
    """

    secure = False

    def __init__(
        self, number: int, rounds_affordable: int = 1000, *, size: int = SHAPE.n_parameters
    ) -> None:
        self.number = number
        self.size = size
        self.n_units = 10 * number
        self.trained: list[int] = []
        self.forgotten: list[int] = []
        self.rounds_affordable = rounds_affordable
        self.blocks = 2
        self.life = 'true'
        self.links: list[bytes] = []

    def delta(self, round: int) -> np.ndarray:
        generator = np.random.default_rng([self.number, round])
        return generator.uniform(-0.4, 0.4, self.size).astype(np.float32)

    def verify_ledger(self, seen: Head, by: str) -> None:
        chain = Head(0, bytes([self.number] * 32)).followed(b''.join(self.links))
        if seen not in chain:
            raise LedgerCorruptError(f'has {len(self.links)} entries and had {seen} ({by})')

    def check_affordable(self, round: int) -> None:
        if round > self.rounds_affordable:
            raise BudgetExceededError(7.0, 9.0, 8.0)

    def train(self, weights, round, *, report, stopped) -> TrainingResult:
        self.check_affordable(round)
        self.trained.append(round)
        report(TrainingProgress(round, 1, 1, float(round)))
        base = self.head()
        for block in range(self.blocks):
            entry = f'{self.number} {round} {block} {self.life}'
            self.links.append(hashlib.sha256(entry.encode()).digest())
        ledger = float(len(self.links)), *self.head(), *base, b''.join(self.links)
        return TrainingResult(weights + self.delta(round), *ledger)

    def head(self) -> Head:
        *_, head = Head(0, bytes([self.number] * 32)).followed(b''.join(self.links))
        return head

    def rounding(self, round: int, size: int) -> np.ndarray:
        return np.random.default_rng([self.number, round, 1]).uniform(1e-9, 1.0 - 1e-9, size)

    def forget(self, round: int) -> None:
        if round not in self.forgotten:
            self.forgotten.append(round)


class Bench(VirtualFederation):
    """
    A federation with an operator, and all that a test does to it.

    :param directory: of what the parties keep; without one it stays in memory, and outlives them.
    :param release: whether hospitals release policies of their own.
    :param options: see :class:`fdrl_ros.federation.virtual.VirtualOptions`.
    """

    federation = 'test'
    learner: type[KnownLearner] = KnownLearner

    def __init__(
        self,
        directory: Path | None = None,
        hospitals: int = 3,
        rounds: int = 2,
        *,
        shape: NetworkShape = SHAPE,
        release: bool = True,
        **options: Unpack[VirtualOptions],
    ) -> None:
        self.names = names_of(hospitals)
        self.release = release
        self.clocks = dict.fromkeys((*self.names, *SERVERS), 0.0)
        self.validate: Callable[[np.ndarray], Validation] = lambda weights: Validation(True, 'ok')
        self.ordered = 0
        size = shape.n_parameters
        learners = {name: self.learner(i, size=size) for i, name in enumerate(self.names, 1)}
        encryption = options.get('encryption', ENCRYPTION)
        shared = shape.shared(options.get('personal', ())).size
        projected = projections_of(encryption, shared) > 0
        scheme = choose_scheme(
            shared, hospitals, encryption.bits, encryption.scheme, projected=projected
        )
        options = {
            'encryption': encryption,
            'secret': copy(secret_of(scheme)),
            'identities': identities_of(hospitals),
            'rounds': RoundSettings(rounds=rounds),
            'validate': lambda weights: self.validate(weights),
            **options,
        }
        super().__init__(learners, start_of(shape), shape.layout, directory=directory, **options)
        self.parties = self.driver.parties
        self.encryption, self.scheme = encryption, scheme

    def path(self, name: str) -> Path | None:
        """Return the state file of a party."""
        return self.directory and self.directory / f'{name}.sqlite'

    def open_store(self, name: str) -> Store:
        """Open what a party keeps, new or not."""
        return QuickStore(self.path(name))

    def open_seeds(self, name: str) -> RoundSeeds:
        """Open the round seeds of a hospital, new or not."""
        folder = self.directory and self.directory / f'{name}_seeds'
        if folder is not None:
            folder.mkdir(mode=0o700, exist_ok=True)
        return RoundSeeds(folder, federation='test', name=name)

    def channel(self, name: str, store: Store) -> Channel:
        """Return a channel by the party's clock."""
        return Channel(self.identities[name], self.roster, store, clock=lambda: self.clocks[name])

    def make(self, name: str) -> Party:
        """Put a party together; hospitals release policies of a known guarantee."""
        self.hospital_settings = replace(
            self.hospital_settings, delta=1e-4, quorum=3, release=self.release
        )
        return super().make(name)

    def join(self, name: str) -> None:
        """Start a party, or start it again with what it kept."""
        self.driver.join(name, self.make(name))

    def kill(self, name: str) -> None:
        """End a party without a word."""
        if name in self.driver.parties:
            self.driver.leave(name)
        if self.directory is not None and name in self.stores:
            self.stores.pop(name).close()
            self.seeds.pop(name, None)

    def restart(self, name: str) -> None:
        """Kill a party, and start it again with what it kept."""
        self.kill(name)
        self.join(name)

    @property
    def aggregator(self) -> Aggregator:
        """The aggregator that runs now."""
        return self.driver.parties['aggregator']  # type: ignore[return-value]

    @property
    def key_authority(self) -> KeyAuthority:
        """The key authority that runs now."""
        return self.driver.parties['key_authority']  # type: ignore[return-value]

    def spy_on_decryption(self, *, really: bool = True) -> list[bytes]:
        """Return a list to which every ciphertext comes that is decrypted."""
        decrypted: list[bytes] = []
        decrypt = self.secret.decrypt

        def noted(ciphertext: bytes) -> np.ndarray | None:
            decrypted.append(ciphertext)
            return decrypt(ciphertext) if really else None

        self.secret.decrypt = noted  # type: ignore[assignment, method-assign]
        return decrypted

    def signed_order(self, action: str, hospital: str = '', to_round: int = 0) -> Order:
        """Sign an order as the operator, a moment after the one before."""
        self.ordered += 1
        now = self.clocks[ADDRESSEES[action]] + 1e-3 * self.ordered
        operator = self.identities['operator']
        return sign_order(operator, 'test', action, now, hospital=hospital, to_round=to_round)

    def order(self, action: str, hospital: str = '', to_round: int = 0) -> None:
        """Order something; it is done when this returns."""
        order = self.signed_order(action, hospital, to_round)
        self.hear(order.to, order)

    def hear(self, name: str, message: Message) -> None:
        """Let a party handle a message now."""
        self.driver.apply(name, lambda: self.parties[name].handle(message, self.driver.now))

    def run(self, until: Callable[[], object] | None = None, ticks: int = 2000) -> bool:
        """Run until a condition holds, or all is over; tell whether it does."""
        return bool(self.driver.run(until or self.is_over, ticks=ticks))

    def run_to(self, phase: Phase, round: int | None = None) -> None:
        """Run until the aggregator is in a phase, of a round."""
        at = self.aggregator
        wanted = round or at.round
        assert self.run(lambda: at.phase is phase and at.round == (round or at.round)), wanted

    def wait(self, ticks: int) -> None:
        """Let time pass."""
        self.run(lambda: False, ticks)

    def is_over(self) -> bool:
        """Tell whether all rounds are done and every hospital that runs has the last policy."""
        hospitals = [self.parties.get(name) for name in self.names]
        return self.aggregator.phase is Phase.FINISHED and all(
            each.policy is not None and each.policy.envelope.round == self.settings.rounds
            for each in hospitals
            if each
        )

    def expected(self, rounds: int, members: list[str] | None = None) -> np.ndarray:
        """Return FedAvg of the known steps, in float64 and without encryption (FDRL Eq. 2)."""
        weights = self.start.astype(np.float64)
        names = members or self.names
        sizes = np.array([self.roster.member(name).size for name in names], dtype=float)
        for round in range(1, rounds + 1):
            deltas = np.stack([self.learners[name].delta(round) for name in names])
            weights = weights + sizes @ deltas / sizes.sum()
        return weights

    def check_blame(self, blame: Blame) -> Fault:
        """Check a proof of round 1 as a hospital does."""
        terms = self.hospital_terms
        agreed = terms.digest(digest_of(self.start), self.roster)
        return check_blame(blame, self.roster, terms.codec, agreed)

    @property
    def hospital_terms(self) -> Terms:
        """What hospitals encrypt by."""
        party = self.parties['hospital_1']
        assert isinstance(party, Hospital) and party.terms is not None
        return party.terms

    def exact(self, survivors: Collection[str]) -> np.ndarray:
        """Return what the first round has to release: from the survivors' very integers."""
        members = [self.roster.member(name) for name in survivors]
        sizes, largest = [member.size for member in members], self.roster.n_max
        quantisation = Quantisation(
            limit=self.encryption.limit, bits=self.encryption.bits, members=len(self.names)
        )
        total = np.zeros(self.start.size, dtype=np.int64)
        for name, size in zip(survivors, sizes, strict=True):
            learner = self.learners[name]
            after = (self.start + learner.delta(1)).astype(np.float64)
            total += quantisation.quantise(
                size / largest * (after - self.start), learner.rounding(1, total.size)
            )
        average = largest / sum(sizes) * quantisation.dequantise_sum(total, len(survivors))
        return (self.start.astype(np.float64) + average).astype(np.float32)
