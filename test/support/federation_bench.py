# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A federation whose learners are simple enough to check by hand."""

from collections.abc import Callable, Collection
from dataclasses import replace
import hashlib
from pathlib import Path

from fdrl_ros.crypto.he.encryption import SecretContext
from fdrl_ros.crypto.he.quantisation import Quantisation
from fdrl_ros.crypto.he.schemes import choose_scheme, EncryptionSettings
from fdrl_ros.crypto.keys.roster import Member, Roster
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.errors import BudgetExceededError, LedgerCorruptError
from fdrl_ros.federation.aggregator.aggregator import Aggregator
from fdrl_ros.federation.hospital.hospital import Hospital, HospitalSettings
from fdrl_ros.federation.hospital.state import RoundSeeds
from fdrl_ros.federation.key_authority.key_authority import (
    KeyAuthority,
    KeyAuthoritySettings,
    ServerStep,
)
from fdrl_ros.federation.key_authority.state import Validation
from fdrl_ros.federation.local_driver import LocalFederation
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import Order, Phase
from fdrl_ros.federation.protocol.orders import ADDRESSEES, sign_order
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.federation.protocol.update_codec import fed_avg
from fdrl_ros.federation.settings import RoundSettings
from fdrl_ros.learner.learner import TrainingProgress, TrainingResult
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.ledger.chain import Head
import numpy as np

SHAPE = NetworkShape(states=4, actions=3, hidden=(5,))
ENCRYPTION = EncryptionSettings(limit=0.5, bits=16)
SERVERS = ('aggregator', 'key_authority')


def start_of(shape: NetworkShape) -> np.ndarray:
    """Return the weights that a federation of a network begins with."""
    return np.linspace(-1.0, 1.0, shape.n_parameters).astype(np.float32)


START = start_of(SHAPE)


def identities_of(hospitals: Collection[str]) -> dict[str, Identity]:
    """Make an identity for every party."""
    return {name: Identity.generate(name) for name in (*hospitals, *SERVERS, 'operator')}


class KnownLearner:
    """Moves the weights by a known step and keeps count of how often it was asked to."""

    secure = False

    def __init__(
        self, number: int, rounds_affordable: int = 1000, *, size: int = SHAPE.n_parameters
    ) -> None:
        self.number = number
        self.size = size
        self.n_units = 10 * number
        self.trained: list[int] = []
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
        return TrainingResult(
            weights + self.delta(round),
            float(len(self.links)),
            *self.head(),
            *base,
            b''.join(self.links),
        )

    def head(self) -> Head:
        *_, head = Head(0, bytes([self.number] * 32)).followed(b''.join(self.links))
        return head

    def rounding(self, round: int, size: int) -> np.ndarray:
        return np.random.default_rng([self.number, round, 1]).uniform(1e-9, 1.0 - 1e-9, size)


class Bench:
    """
    Everything of one federation, in the hands of a test.

    :param directory: of what the parties keep; without one it stays in memory, and outlives them.
    :param shape: of the network; another takes another start, of its size.
    :param secret: to take the same key pair for many federations of one size.
    :param release: whether hospitals release policies of their own.
    :param identities: to take the same ones for many federations of the same hospitals.
    :param driver: what moves the messages.
    :param expires: until when the roster is valid, by the parties' `clocks`.
    """

    def __init__(
        self,
        directory: Path | None,
        hospitals: int = 3,
        rounds: int = 2,
        *,
        encryption: EncryptionSettings = ENCRYPTION,
        personal: tuple[str, ...] = (),
        step: ServerStep = fed_avg,
        shape: NetworkShape = SHAPE,
        secret: SecretContext | None = None,
        release: bool = True,
        identities: dict[str, Identity] | None = None,
        driver: LocalFederation | None = None,
        expires: int | None = None,
    ) -> None:
        self.directory = directory
        self.encryption, self.personal, self.step = encryption, personal, step
        self.shape, self.first = shape, start_of(shape)
        self.release = release
        names = [f'hospital_{i}' for i in range(1, hospitals + 1)]
        self.names = names
        self.identities = identities or identities_of(names)
        self.roster = Roster(
            'test',
            2 * hospitals // 3 + 1,
            (
                *(
                    Member(name, 'hospital', self.identities[name].public, 10 * i)
                    for i, name in enumerate(names, 1)
                ),
                *(
                    Member(name, name, self.identities[name].public)
                    for name in (*SERVERS, 'operator')
                ),
            ),
            True,
        )
        self.roster = replace(self.roster, expires=expires)
        self.clocks = dict.fromkeys((*names, *SERVERS), 0.0)
        size = shape.n_parameters
        self.learners = {name: KnownLearner(i, size=size) for i, name in enumerate(names, 1)}
        self.settings = RoundSettings(rounds=rounds)
        self.scheme = choose_scheme(
            shape.shared(personal).size, hospitals, encryption.bits, encryption.scheme
        )
        self.secret = secret or SecretContext.generate(self.scheme)
        self.stores: dict[str, Store] = {}
        self.seeds: dict[str, RoundSeeds] = {}
        self.validate: Callable[[np.ndarray], Validation] = lambda weights: Validation(True, 'ok')
        self.ordered = 0
        self.federation = self.driver = LocalFederation({}) if driver is None else driver
        for name in (*SERVERS, *names):
            self.start(name)

    def store(self, name: str) -> Store:
        if self.directory is not None or name not in self.stores:
            path = self.directory and self.directory / f'{name}.sqlite'
            self.stores[name] = Store(path)
        return self.stores[name]

    def seeds_of(self, name: str) -> RoundSeeds:
        if self.directory is not None or name not in self.seeds:
            folder = self.directory and self.directory / f'{name}_seeds'
            if folder is not None:
                folder.mkdir(mode=0o700, exist_ok=True)
            self.seeds[name] = RoundSeeds(folder, federation='test', name=name)
        return self.seeds[name]

    def channel(self, name: str, store: Store) -> Channel:
        return Channel(self.identities[name], self.roster, store, clock=lambda: self.clocks[name])

    def make(self, name: str):
        store = self.store(name)
        channel = self.channel(name, store)
        if name == 'aggregator':
            return Aggregator(channel, self.settings, store)
        if name == 'key_authority':
            return KeyAuthority(
                channel,
                store,
                self.shape,
                self.first,
                self.secret,
                KeyAuthoritySettings(
                    self.encryption,
                    secure=False,
                    validate=lambda weights: self.validate(weights),
                    personal=self.personal,
                    step=self.step,
                ),
            )
        return Hospital(
            channel,
            self.learners[name],
            self.shape,
            store,
            self.seeds_of(name),
            HospitalSettings(
                self.encryption,
                delta=1e-4,
                quorum=3,
                release=self.release,
                personal=self.personal,
            ),
        )

    def start(self, name: str) -> None:
        self.federation.join(name, self.make(name))

    def kill(self, name: str) -> None:
        self.federation.leave(name)
        if self.directory is not None:
            self.stores.pop(name).close()

    def __getattr__(self, name: str):
        if name in ('aggregator', 'key_authority'):
            return self.federation.parties[name]
        raise AttributeError(name)

    def signed_order(self, action: str, hospital: str = '', to_round: int = 0) -> Order:
        """Sign an order as the operator, a moment after the one before."""
        self.ordered += 1
        now = self.clocks[ADDRESSEES[action]] + 1e-3 * self.ordered
        operator = self.identities['operator']
        return sign_order(operator, 'test', action, now, hospital=hospital, to_round=to_round)

    def order(self, action: str, hospital: str = '', to_round: int = 0) -> None:
        """Order something; it is done when this returns."""
        order = self.signed_order(action, hospital, to_round)
        party = self.federation.parties[order.to]
        self.federation.apply(order.to, lambda: party.handle(order, self.federation.now))

    def run(self, until: Callable[[], bool] | None = None, ticks: int = 2000) -> bool:
        return self.federation.run(until or self.is_over, ticks=ticks)

    def is_over(self) -> bool:
        """Tell whether all rounds are done and every hospital that runs has the last policy."""
        hospitals = [self.federation.parties.get(name) for name in self.names]
        return self.aggregator.phase is Phase.FINISHED and all(
            each.policy is not None and each.policy.envelope.round == self.settings.rounds
            for each in hospitals
            if each
        )

    def expected(self, rounds: int, members: list[str] | None = None) -> np.ndarray:
        """Return FedAvg of the known steps, in float64 and without encryption (FDRL Eq. 2)."""
        weights = self.first.astype(np.float64)
        names = members or self.names
        sizes = np.array([self.roster.member(name).size for name in names], dtype=float)
        for round in range(1, rounds + 1):
            deltas = np.stack([self.learners[name].delta(round) for name in names])
            weights = weights + sizes @ deltas / sizes.sum()
        return weights

    def exact(self, survivors: Collection[str]) -> np.ndarray:
        """Return what the first round has to release: from the survivors' very integers."""
        members = [self.roster.member(name) for name in survivors]
        sizes, largest = [member.size for member in members], self.roster.n_max
        quantisation = Quantisation(
            limit=self.encryption.limit, bits=self.encryption.bits, members=len(self.names)
        )
        total = np.zeros(self.first.size, dtype=np.int64)
        for name, size in zip(survivors, sizes, strict=True):
            learner = self.learners[name]
            after = (self.first + learner.delta(1)).astype(np.float64)
            total += quantisation.quantise(
                size / largest * (after - self.first), learner.rounding(1, total.size)
            )
        average = largest / sum(sizes) * quantisation.dequantise_sum(total, len(survivors))
        return (self.first.astype(np.float64) + average).astype(np.float32)
