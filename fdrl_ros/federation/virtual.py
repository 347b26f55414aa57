# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A whole federation in one process, for research: give it learners, play rounds.

Parties, messages, masks and encryption are those of the field. Since one process holds every
key, they protect nobody here; what protects the policies is what the learners do (DP-SGD).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
import hashlib
from pathlib import Path
from typing import TypedDict, Unpack

from fdrl_ros.crypto.he.encryption import SecretContext
from fdrl_ros.crypto.he.schemes import (
    choose_scheme,
    EncryptionSettings,
    projections_of,
    STATED_LIMIT,
)
from fdrl_ros.crypto.keys.roster import default_threshold, Member, ring, Roster, SERVERS
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.errors import FdrlError, PolicyError, RoundError, SettingError, StoreError
from fdrl_ros.federation.aggregator.aggregator import Aggregator
from fdrl_ros.federation.hospital.hospital import Hospital, HospitalSettings
from fdrl_ros.federation.hospital.state import RoundSeeds
from fdrl_ros.federation.key_authority.key_authority import (
    KeyAuthority,
    KeyAuthoritySettings,
)
from fdrl_ros.federation.key_authority.server_step import fed_avg, ServerStep, Weights
from fdrl_ros.federation.key_authority.state import Validation
from fdrl_ros.federation.local_driver import LocalFederation
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import GlobalPolicy
from fdrl_ros.federation.protocol.party import Party
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.federation.settings import RoundSettings
from fdrl_ros.learner.learner import (
    HomeLearner,
    HomePolicy,
    Learner,
    TrainingProgress,
    TrainingResult,
)
from fdrl_ros.policy import decode_weights
from fdrl_ros.policy.layout import TensorLayout
from fdrl_ros.privacy.ledger.chain import DIGEST, Head, MOST_LINKS
import numpy as np

FEDERATION = 'virtual'
TICKS = 1000
"""Jumps of the clock after which a round counts as stuck."""


class PlainLearner:
    """
    A learner that is any function, without privacy: its epsilon is infinite.

    :param step: from the global weights, shape (n_parameters,), float32, and the round, to the
        weights after local training.
    :param n_units: how many patients it stands for.
    :param seed: of the stochastic rounding of its updates.
    """

    secure = False

    def __init__(
        self, step: Callable[[np.ndarray, int], np.ndarray], *, n_units: int, seed: int = 0
    ) -> None:
        self._step, self.n_units, self._seed = step, n_units, seed

    def verify_ledger(self, seen: Head, by: str) -> None:
        """Accept every head: nothing is private, and no entry has content."""

    def check_affordable(self, round: int) -> None:
        """Afford every round."""

    def train(
        self,
        weights: np.ndarray,
        round: int,
        *,
        report: Callable[[TrainingProgress], None],
        stopped: Callable[[], bool],
    ) -> TrainingResult:
        """Take the step of a round; the chain of a ledger has one entry a round, of no content."""
        links = [hashlib.sha256(b'plain %d' % each).digest() for each in range(1, round + 1)]
        *_, base, now = Head(0, bytes(DIGEST)).followed(b''.join(links))
        after = np.asarray(self._step(weights, round), dtype=np.float32)
        if after.shape != weights.shape:
            raise PolicyError(f'the step made weights {after.shape} of {weights.shape}')
        return TrainingResult(after, np.inf, *now, *base, b''.join(links[-MOST_LINKS:]))

    def rounding(self, round: int, size: int) -> np.ndarray:
        """Return uniforms in (0, 1)."""
        return np.random.default_rng([self._seed, round]).uniform(1e-9, 1.0, size)

    def forget(self, round: int) -> None:
        """Erase nothing: nothing is private."""


class VirtualOptions(TypedDict, total=False):
    """
    What a virtual federation may be given besides.

    `threshold`: t of the n hospitals that have to agree; floor(2n/3) + 1 unless given.
    `neighbours`: with how many others each masks, 0 for all
    (:func:`~fdrl_ros.crypto.masking.neighbourhoods.default_neighbours` unless given).
    `encryption`, `rounds`: settings of the field; a limit of 0 is 1.0. `personal`: layers by name
    that no hospital sends. `buckets`: of a round, one sum of all unless given; `combine`: how
    their averages become one; `test_buckets`: whether `validate` leaves out those that fail it
    alone. `step`: the server's step, FedAvg unless given. `validate`: test of
    each new policy, by the key authority. `identities`: keys of all members, `secret`: the
    encryption key, `driver`: what moves the messages; each made unless given.
    """

    threshold: int
    neighbours: int
    buckets: int
    combine: str
    test_buckets: bool
    encryption: EncryptionSettings
    rounds: RoundSettings
    personal: tuple[str, ...]
    step: ServerStep
    validate: Callable[[Weights], Validation]
    identities: dict[str, Identity]
    secret: SecretContext
    driver: LocalFederation


class VirtualFederation:
    """
    Real parties of a federation with keys of their own, moved by the in-process driver.

    :param learners: by the hospital's name; three at least. Each is a
        :class:`fdrl_ros.learner.learner.Learner`: :class:`fdrl_ros.learner.trainer.Trainer`
        trains with differential privacy, :class:`PlainLearner` is any function.
    :param start: public starting weights, shape (n_parameters,).
    :param layout: of the weights.
    :param directory: where the parties keep their state, new or empty: the keys live as long as
        this object, so another one cannot go on from there. In memory unless given.
    :param report: called with a hospital's name and the progress of its training.
    :param options: see :class:`VirtualOptions`.
    :raises SettingError: with fewer than three hospitals, or weights of another network.
    :raises StoreError: if the directory cannot be made, or was used before.
    """

    federation = FEDERATION

    def __init__(
        self,
        learners: Mapping[str, Learner],
        start: np.ndarray,
        layout: TensorLayout,
        *,
        directory: Path | None = None,
        report: Callable[[str, object], None] = lambda party, progress: None,
        **options: Unpack[VirtualOptions],
    ) -> None:
        if len(learners) < 3:
            raise SettingError('learners', len(learners), 'three hospitals or more')
        start = np.asarray(start, dtype=np.float32)
        if start.shape != (layout.n_parameters,):
            raise SettingError('start', start.shape, f'weights of shape ({layout.n_parameters},)')
        self.learners, self.start, self.layout = learners, start, layout
        self.directory = directory
        self.settings = options.get('rounds', RoundSettings(rounds=100_000))
        encryption = options.get('encryption', EncryptionSettings())
        # What any function can make, nobody knows.
        n_shared = layout.shared(options.get('personal', ())).size
        encryption = replace(
            encryption,
            limit=encryption.limit or STATED_LIMIT,
            projections=projections_of(encryption, n_shared),
        )
        personal = options.get('personal', ())
        self.hospital_settings = HospitalSettings(encryption, personal=personal)
        self.authority_settings = KeyAuthoritySettings(
            encryption,
            validate=options.get('validate', lambda weights: Validation(True, '')),
            personal=personal,
            step=options.get('step', fed_avg),
            combine=options.get('combine', 'mean'),
            test_buckets=options.get('test_buckets', False),
        )
        names = tuple(learners)
        self.identities = options.get('identities') or {
            name: Identity.generate(name) for name in (*names, *SERVERS)
        }
        members = tuple(
            Member(name, 'hospital', identity.public, learners[name].n_units)
            if name in learners
            else Member(name, name, identity.public)
            for name, identity in self.identities.items()
        )
        agreeing = options.get('threshold') or default_threshold(len(names))
        graph = ring(
            len(names),
            options.get('threshold'),
            options.get('neighbours'),
            options.get('buckets', 0),
        )
        self.roster = Roster(self.federation, agreeing, members, disjoint_patients=True, **graph)
        scheme = choose_scheme(
            n_shared,
            len(names),
            encryption.bits,
            encryption.scheme,
            projected=encryption.projections > 0,
        )
        self.secret = options.get('secret') or SecretContext.generate(scheme)
        self.stores: dict[str, Store] = {}
        self.seeds: dict[str, RoundSeeds] = {}
        self.parties: dict[str, Party] = {}
        self.driver = options.get('driver') or LocalFederation({}, report=report)
        for name in (*SERVERS, *names):
            self.join(name)

    @property
    def policy(self) -> GlobalPolicy | None:
        """The newest global policy, as the first hospital that takes part checked it."""
        return next((hospital.policy for hospital in self._hospitals()), None)

    @property
    def weights(self) -> np.ndarray:
        """Its weights, shape (n_parameters,), float32; the public start before the first round."""
        policy = self.policy
        return decode_weights(policy.weights, self.start.size) if policy else self.start

    @property
    def round(self) -> int:
        """The newest round whose policy was released."""
        authority = self.parties['key_authority']
        assert isinstance(authority, KeyAuthority)
        return authority.round

    def play(self, rounds: int = 1) -> np.ndarray:
        """
        Play rounds, until every hospital that takes part has the policy of the last one.

        :returns: the new weights, shape (n_parameters,), float32.
        :param rounds: at least 1.
        :raises FdrlError: if a round does not end, as when too few hospitals take part; it goes
            on with the next call, unless budgets are spent.
        """
        if rounds < 1:
            raise SettingError('rounds', rounds, '1 or more')
        wanted = self.round + rounds

        def arrived() -> bool:
            if self.round < wanted:
                return False
            policies = [hospital.policy for hospital in self._hospitals()]
            return bool(policies) and all(each and each.id[0] >= wanted for each in policies)

        aggregator = self.parties['aggregator']
        assert isinstance(aggregator, Aggregator)
        self.driver.run(lambda: arrived() or bool(aggregator.exhausted), ticks=TICKS * rounds)
        if not arrived():
            why = (
                f'round {self.round + 1} does not end: {len(self._hospitals())} of '
                f'{len(self.learners)} hospitals take part, {self.roster.quorum} have to; '
                f'{self.driver.notes.get("aggregator", "")}'
            )
            raise FdrlError(aggregator.exhausted or why)
        return self.weights

    def home(self) -> dict[str, HomePolicy]:
        """
        Let every hospital that takes part make its home policy of the newest global policy.

        :returns: by the hospital's name, of those whose learner makes one
            (:class:`fdrl_ros.learner.home.HomeTrainer`).
        """
        found = {}
        for name in self.learners:
            party = self.parties.get(name)
            if isinstance(party, Hospital) and isinstance(self.learners[name], HomeLearner):
                made = party.home_job().run(lambda told: None, lambda: False)
                assert isinstance(made, HomePolicy)
                found[name] = made
        return found

    def leave(self, hospital: str) -> None:
        """
        Take a hospital away without a word, as when its host crashes.

        :raises RoundError: if it does not take part.
        """
        if hospital not in self.parties or hospital in SERVERS:
            raise RoundError(hospital, 'no hospital that takes part')
        self.driver.leave(hospital)
        del self.parties[hospital]

    def join(self, name: str) -> None:
        """Start a party, or start it again with what it kept."""
        self.parties[name] = self.make(name)
        self.driver.join(name, self.parties[name])

    def make(self, name: str) -> Party:
        """Put a party together from what it kept."""
        if name not in self.stores:
            self.stores[name] = self.open_store(name)
        store = self.stores[name]
        channel = self.channel(name, store)
        if name == 'aggregator':
            return Aggregator(channel, self.settings, store)
        if name == 'key_authority':
            terms = self.secret, self.authority_settings
            return KeyAuthority(channel, store, self.layout, self.start, *terms)
        if name not in self.seeds:
            self.seeds[name] = self.open_seeds(name)
        kept = store, self.seeds[name]
        return Hospital(channel, self.learners[name], self.layout, *kept, self.hospital_settings)

    def channel(self, name: str, store: Store) -> Channel:
        """Return what a party signs and verifies messages with."""
        return Channel(self.identities[name], self.roster, store)

    def _hospitals(self) -> list[Hospital]:
        parties = (self.parties.get(name) for name in self.learners)
        return [party for party in parties if isinstance(party, Hospital)]

    def open_store(self, name: str) -> Store:
        """Open what a party keeps."""
        if self.directory is None:
            return Store()
        folder = self.directory / name
        try:
            folder.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise StoreError(f'cannot begin a federation in {folder}: {error}') from error
        return Store(folder / 'state.sqlite')

    def open_seeds(self, name: str) -> RoundSeeds:
        """Open the round seeds of a hospital."""
        folder = self.directory and self.directory / name
        return RoundSeeds(folder, federation=self.federation, name=name)
