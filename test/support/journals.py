# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A federation whose parties write their round journals as the protocol has them do."""

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
import hashlib
from pathlib import Path
from typing import Any

from fdrl_ros.crypto.keys.keystore import KEY_FILE, load_identity, make_federation, NewFederation
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.federation.journal.journal import FILE, Head, Journal
from fdrl_ros.federation.journal.reader import JournalReader
from fdrl_ros.federation.key_authority.state import KeyAuthorityState, Released
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.policy import digest_of
import numpy as np

HOSPITALS = ('hospital_1', 'hospital_2', 'hospital_3', 'hospital_4')
SERVERS = ('aggregator', 'key_authority')


def digest(*what: Any) -> bytes:
    """Return 32 bytes that stand for something."""
    return hashlib.sha256(repr(what).encode()).digest()


def weights(round: int) -> np.ndarray:
    """Return the weights that are released in a round."""
    return np.full(4, round, dtype=np.float32)


def policy(round: int) -> bytes:
    """Return the digest of the policy of a round."""
    return digest_of(weights(round))


def ledger(name: str, round: int) -> Head:
    """Return the head of a hospital's ledger in a round."""
    return Head(2 * round, digest(name, 'ledger', round))


def verify(path: Path, keys: Collection[bytes] | None, **options: Any) -> JournalReader:
    """Check the whole journal, as comparing it with others does."""
    journal = JournalReader(path, **options)
    for _ in journal.entries():
        pass
    journal.check_keys(keys)
    return journal


@dataclass
class Told:
    """What the parties write; a test changes some of it."""

    lines: list[tuple[str, str, int, int, dict[str, Any]]] = field(default_factory=list)

    def add(self, party: str, kind: str, round: int, attempt: int = 0, **fields: Any) -> None:
        """Let a party write an entry."""
        self.lines.append((party, kind, round, attempt, fields))

    def find(self, party: str, kind: str, round: int) -> dict[str, Any]:
        """Return the fields of an entry, to be changed."""
        return next(
            fields
            for who, what, at, _, fields in self.lines
            if (who, what, at) == (party, kind, round)
        )

    def drop(self, party: str, kind: str, round: int) -> None:
        """Leave entries out."""
        self.lines = [each for each in self.lines if each[:3] != (party, kind, round)]


def honest(rounds: int, hospitals: tuple[str, ...] = HOSPITALS) -> Told:
    """
    Return what the parties write in some rounds.

    In even rounds the last hospital drops out; the third is rolled back by the validation, the
    fourth abandoned at its second attempt.
    """
    told = Told()
    told.add('key_authority', 'key', 0, digest=digest('key'))
    told.add(
        'aggregator', 'operator', 0, operator='operator', action='admit', hospital='hospital_1'
    )
    for name in hospitals:
        told.add(name, 'policy', 0, policy=policy(0), included=False)
    released = policy(0)
    for round in range(1, rounds + 1):
        attempt = 1 + (round == 2)
        if round == 2:
            told.add('aggregator', 'open', round, 1, members=hospitals, reason='a new round')
            told.add('aggregator', 'fail', round, 1, reason='no answer in time')
        told.add('aggregator', 'open', round, attempt, members=hospitals, reason='a new round')
        survivors = hospitals[: len(hospitals) - (round % 2 == 0)]
        hashes = {name: digest(name, round, attempt) for name in hospitals}
        for name in hospitals:
            if round == 2:
                told.add(name, 'sent', round, 1, update=digest(0), ledger=ledger(name, round))
            told.add(name, 'sent', round, attempt, update=hashes[name], ledger=ledger(name, round))
        dropped = [name for name in hospitals if name not in survivors]
        told.add('aggregator', 'settle', round, attempt, survivors=survivors, dropped=dropped)
        for name in survivors:
            told.add(name, 'signed', round, attempt, survivors=survivors)
            told.add(name, 'revealed', round, attempt, seeds=survivors, masks=dropped)
        old = round in (3, 4)
        contributors = {
            name: {'size': 500, 'update': hashes[name], 'ledger': ledger(name, round)}
            for name in survivors
            if round != 4
        }
        before, released = released, released if old else policy(round)
        told.add(
            'key_authority',
            'release',
            round,
            attempt,
            contributors=contributors,
            before=before,
            policy=released,
            rolled_back=old,
            reason='worse on public patients' if old else '',
        )
        for name in hospitals:
            told.add(
                name, 'policy', round, attempt, policy=released, included=name in contributors
            )
    return told


class Federation:
    """A federation's directory with keys, state files and journals."""

    def __init__(self, directory: Path, hospitals: tuple[str, ...] = HOSPITALS) -> None:
        """Make the keys."""
        self.layout = Layout(directory)
        directory.mkdir()
        self.roster = make_federation(
            self.layout.keys, NewFederation(dict.fromkeys(hospitals, 500))
        )
        for name in (*hospitals, *SERVERS):
            self.layout.party(name).mkdir()

    def path(self, name: str) -> Path:
        """Return the file of a party's journal."""
        return self.layout.party(name) / FILE

    def identity(self, name: str) -> Identity:
        """Return a party's key."""
        return load_identity(self.layout.keys / name / KEY_FILE, name)

    def journals(self) -> dict[str, Path]:
        """Return every journal that is there."""
        names = (member.name for member in self.roster.members)
        return {name: self.path(name) for name in names if self.path(name).exists()}

    def write(self, told: Told, *, stores: bool = False) -> None:
        """Let the parties write, all of them running at once."""
        with ExitStack() as stack:
            open_journals: dict[str, Journal] = {}
            open_stores: dict[str, Store] = {}
            for party, kind, round, attempt, fields in told.lines:
                if party not in open_journals:
                    store = None
                    if stores:
                        store = Store(self.layout.state(party))
                        stack.callback(store.close)
                        open_stores[party] = store
                    open_journals[party] = stack.enter_context(
                        Journal(
                            self.path(party), self.identity(party), self.roster.federation, store
                        )
                    )
                if stores and kind == 'release':
                    self._keep(open_stores[party], round, fields['policy'])
                open_journals[party].append(kind, round=round, attempt=attempt, **fields)

    def _keep(self, store: Store, round: int, digest: bytes) -> None:
        """Keep a released policy as the key authority does."""
        (of,) = [each for each in range(round + 1) if policy(each) == digest]
        released = Released(round, 1, weights(of), (), b'', of < round, '')
        KeyAuthorityState(store, weights(0)).release(released, {})
