# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the key authority keeps: which sum it may decrypt, and the policies that it released."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
import json
import os
from pathlib import Path

from fdrl_ros.crypto.masking.sketch import NONCE_BYTES
from fdrl_ros.errors import CryptoError, StateLostError, StoreError
from fdrl_ros.federation.protocol.attempt import tree_of_updates
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.encoding import decode, encode
from fdrl_ros.federation.protocol.message import AttemptId, Phase
from fdrl_ros.federation.protocol.orders import forget_orders
from fdrl_ros.federation.protocol.recovery import MissedEntries
from fdrl_ros.federation.protocol.store import peek, peek_record, Store
from fdrl_ros.policy import digest_of
import numpy as np
from numpy.typing import NDArray

RECORD = 'state'
KEPT = 100
"""Released policies that can be rolled back to."""

_POLICY = 'policy '
_SUMMED = 'summed'
_STEP = 'state of the server step'
_NEXT_STEP = 'next state of the server step'
_REFUSED = 'refused hospitals'
_NONCE = 'nonce of the projections'
_SEEDED = 'seeded'  # the first round in which noise was, as a number


@dataclass(frozen=True)
class Validation:
    """
    What a test of a policy on public patients found.

    :param shares: of these patients, on how many the policy succeeded, by procedure; the empty
        name is of all. None where nobody counted.
    """

    passed: bool
    reason: str
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Released:
    """
    The effects of a round: weights, and whose updates are in them.

    :param sizes: declared n_i of each contributor.
    """

    round: int
    attempt: int
    weights: NDArray[np.float32]
    contributors: tuple[str, ...]
    update_hashes: bytes
    rolled_back: bool
    reason: str
    sizes: tuple[int, ...] = ()

    @cached_property
    def digest(self) -> bytes:
        """Digest of the weights; of millions it takes a while, so jobs compute it."""
        return digest_of(self.weights)

    @cached_property
    def tree(self) -> tuple[bytes, dict[str, bytes]]:
        """Root and paths of the hash tree over whose updates are in the weights."""
        return tree_of_updates(self.contributors, self.update_hashes)


@dataclass(frozen=True)
class Served:
    """How many rounds a secret key has decrypted, by the digest of its public context."""

    key: str
    rounds: int


@dataclass(frozen=True)
class KeyAuthorityRecord:
    """
    The durable state of the key authority in the rounds.

    :param phase: SUM once the sum to decrypt is chosen, RELEASED once the round is over.
    :param round: the newest round whose policy was released.
    :param chosen_round: round of the sum that was chosen last.
    :param chosen_sum: hash of that sum: no other sum of that round is ever decrypted.
    """

    phase: Phase = Phase.WAITING
    round: int = 0
    chosen_round: int = 0
    chosen_sum: bytes = b''
    served: tuple[Served, ...] = ()


class KeyAuthorityState:
    """Keeps the record and the released policies; each change is durable when it returns."""

    def __init__(self, store: Store, start: NDArray[np.float32]) -> None:
        """
        Go on from what the store holds, or begin with the public starting policy.

        :param start: weights of the public starting policy, shape (n_parameters,).
        :raises StoreError: if it is damaged.
        """
        self._store = store
        self._start = start
        self.record = store.load(RECORD, KeyAuthorityRecord) or KeyAuthorityRecord()
        released = self.policy(self.record.round)
        if released is None:
            raise StoreError(
                f'the state file {store.path} is damaged: no policy of round {self.record.round}'
            )
        self.released = released

    def recover(self, channel: Channel) -> None:
        """
        Refuse to decrypt without knowing what was decrypted or released before.

        :raises StateLostError: if the journal tells of more.
        """
        missed = MissedEntries.find(channel, self._store)
        if missed is None:
            return
        record, chosen = self.record, (self.record.chosen_round, self.record.chosen_sum)
        for entry in missed:
            what = ''
            if entry.kind == 'release' and entry.round > record.round:
                what = f'the release of round {entry.round}, and the state of {record.round}'
            elif entry.kind == 'decrypt':
                sum = (entry.round, bytes.fromhex(entry.fields['sum']))
                if sum[0] > chosen[0] or (sum[0] == chosen[0] and sum != chosen):
                    what = f'a decryption in round {entry.round}, and the state does not'
            if what:
                raise StateLostError(
                    f'the state file {self._store.path} was lost or is an older copy: the journal '
                    f'beside it tells of {what}. A second sum of one round must not be decrypted: '
                    'put back the newest state file; docs/journal.md says what to do if there is '
                    'none'
                )
        if missed.is_loss:
            missed.warn()
            forget_orders(channel, self._store)
        missed.settle({})

    def policy(self, round: int) -> Released | None:
        """Return an older policy that is kept; that of round 0 is the public start."""
        if round == 0:
            return Released(0, 0, self._start, (), b'', False, 'public starting policy')
        return self._load(f'{_POLICY}{round}')

    def _load(self, name: str) -> Released | None:
        found = self._store.load(name, Released)
        if found and found.weights.size != self._start.size:
            raise StoreError(f'the state file {self._store.path} is damaged: the size of {name}')
        return found

    def choose_sum(self, round: int, sum_hash: bytes, key: str, most_rounds: float) -> bool:
        """
        Decide durably which sum of a round is decrypted, before it is.

        :param key: digest of the public context, whose rounds are counted.
        :param most_rounds: that its secret key may serve.
        :returns: False if another one was chosen before; the same one may be decrypted again.
        :raises CryptoError: if the key may serve no more rounds, as by the flooding of CKKS.
        """
        record = self.record
        if record.chosen_round == round:
            return record.chosen_sum == sum_hash
        served = {each.key: each.rounds for each in record.served}
        count = served.get(key, 0)
        if count >= most_rounds:
            raise CryptoError(f'the secret key has served {count} rounds: start with a new one')
        served[key] = count + 1
        changed = replace(
            record,
            phase=Phase.SUM,
            chosen_round=round,
            chosen_sum=sum_hash,
            served=tuple(Served(*each) for each in served.items()),
        )
        # A choice that the disk refused is none: the next request has to write it again.
        self._store.put(RECORD, encode(changed))
        self.record = changed
        return True

    def keep_summed(self, summed: Released, secure: bool, step_state: bytes = b'') -> None:
        """
        Keep a decrypted policy; after a restart it is validated and released from here.

        :param secure: whether all its hospitals signed that their noise is.
        :param step_state: what the server's step wants back, once the policy is released.
        """
        rows = {_SUMMED: encode(summed), _NEXT_STEP: step_state}
        if not secure and self._store.get(_SEEDED) is None:
            rows[_SEEDED] = str(summed.round).encode()
        self._store.replace((), rows)

    @property
    def step_state(self) -> bytes:
        """
        What the server's step returned in the newest round whose sum was released.

        It is empty after an operator's roll-back: the step begins anew from the older weights.
        """
        return self._store.get(_STEP) or b''

    @property
    def secure(self) -> bool:
        """Whether all noise in the newest policy is secure, as its hospitals signed."""
        seeded = self._store.get_number(_SEEDED, -1)
        return not 0 <= seeded <= self.record.round

    @property
    def refused(self) -> set[str]:
        """Hospitals whose updates are taken no more: one was malformed."""
        return set(json.loads(self._store.get(_REFUSED) or b'[]'))

    def refuse(self, names: Collection[str]) -> None:
        """Take no more updates of some hospitals, durably."""
        self._store.put(_REFUSED, json.dumps(sorted(self.refused | set(names))).encode())

    def nonce(self, attempt: AttemptId, hashes: Mapping[str, bytes]) -> bytes:
        """
        Return the number from which the projections of some updates follow, 32 bytes.

        It is drawn when they are named first, durably, and a new one for other updates: whoever
        knows a nonce has sent its update before.

        :param hashes: of the updates, by their hospitals.
        """
        named = {name: each.hex() for name, each in hashes.items()}
        place, nonce, before = json.loads(self._store.get(_NONCE) or b'[[], "", {}]')
        if place != list(attempt) or not named.items() <= before.items():
            nonce = os.urandom(NONCE_BYTES).hex()
            self._store.put(_NONCE, json.dumps([attempt, nonce, named]).encode())
        return bytes.fromhex(nonce)

    def forgiving(self, name: str) -> dict[str, bytes]:
        """Return what the store has to keep so that updates of a hospital are taken again."""
        return {_REFUSED: json.dumps(sorted(self.refused - {name})).encode()}

    def summed(self) -> Released | None:
        """Return a decrypted policy that was not released yet."""
        summed = self._load(_SUMMED)
        return summed if summed and summed.round == self.record.round + 1 else None

    def release(self, released: Released, used: dict[str, bytes]) -> None:
        """
        Keep the effects of a round, in one step with what the store keeps of an order.

        An order rolls back: it drops the state of the server's step, which is one of the rounds
        that are taken back.

        :param used: rows of the order that it obeys, if it obeys one.
        """
        changed = replace(self.record, phase=Phase.RELEASED, round=released.round)
        rows = {
            RECORD: encode(changed),
            f'{_POLICY}{released.round}': encode(released),
        }
        if not released.rolled_back:
            rows[_STEP] = self._store.get(_NEXT_STEP) or b''
        over = [_SUMMED, _NEXT_STEP, f'{_POLICY}{released.round - KEPT}']
        if used:
            over.append(_STEP)
        self._store.replace(over, rows | used)
        self.record, self.released = changed, released


def round_released(path: Path) -> int:
    """
    Read the newest released round out of a key authority's state file, also while it runs.

    :raises StoreError: if it cannot be read.
    """
    record = peek_record(path, RECORD, KeyAuthorityRecord)
    return record.round if record else 0


def policies_kept(path: Path) -> Iterator[tuple[str, Released]]:
    """
    Read the released policies out of a key authority's state file, by the name of their row.

    :raises FdrlError: if they cannot be read.
    """
    for name, value in peek(path, f'{_POLICY}[0-9]*'):
        yield name, decode(value, Released)
