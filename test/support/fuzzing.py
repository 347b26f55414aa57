# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Messages that nobody may take, and what a party must be like after it heard them: as before.

What must not change is everything that a party has, on disk and in memory, but for what can be
computed again and for the counter of a sender who really signed.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cached_property
import hashlib
from random import Random
from typing import Any

from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.errors import MessageError
from fdrl_ros.federation.protocol.encoding import encode
from fdrl_ros.federation.protocol.message import (
    Delivery,
    MaskedUpdate,
    Message,
    message_from_bytes,
    Relay,
    Reveal,
    RoundKey,
    RoundStatus,
    Settle,
    Shares,
)
from fdrl_ros.federation.protocol.store import Store
import numpy as np
from support.federation_bench import Bench

KINDS_OF = {
    'aggregator': 'Blame Dispute LedgerHeads RoundStatus PeerKeys Delivery DecryptRequest Relay '
    'Wanted',
    'key_authority': 'LedgerHeads Wanted EncryptionKey GlobalPolicy Verdict',
    'operator': 'Order',
    'hospital': 'Complaint Decline Objection Opening RoundKey Shares MaskedUpdate Sketch Settle '
    'Reveal',
}
"""Kinds of messages that each role may send."""

# What is drawn from elsewhere, computed once and kept, or made of a file that is looked at itself.
_SKIPPED = {
    '_heard',
    '_slow',  # who signs a round key too late is waited for the next time
    '_identity',
    '_secret',
    '_public',
    '_agreed',
    '_learner',
    '_roster',
    'roster',
}


def state_of(party: object) -> bytes:
    """Return a digest of all that a party has."""
    sha = hashlib.sha256()
    _digest(party, sha, set())
    return sha.digest()


def _digest(value: Any, sha: Any, seen: set[int]) -> None:
    if value is None or isinstance(value, bool | int | float | str | bytes | Enum):
        sha.update(f'{type(value).__name__} {value!r}\n'.encode())
    elif isinstance(value, np.ndarray):
        sha.update(f'{value.dtype} {value.shape}\n'.encode() + value.tobytes())
    elif isinstance(value, Mapping):
        sha.update(f'mapping of {len(value)}\n'.encode())
        for key in sorted(value, key=repr):
            sha.update(f'{key!r}\n'.encode())
            _digest(value[key], sha, seen)
    elif isinstance(value, tuple | list | deque):
        sha.update(f'{type(value).__name__} of {len(value)}\n'.encode())
        for each in value:
            _digest(each, sha, seen)
    elif isinstance(value, set | frozenset):
        sha.update(repr(sorted(value, key=repr)).encode())
    elif isinstance(value, Store):
        if id(value) not in seen:
            seen.add(id(value))
            _digest(value.matching('*'), sha, seen)
    elif type(value).__module__.startswith('fdrl_ros') and hasattr(value, '__dict__'):
        if id(value) in seen:
            return
        seen.add(id(value))
        sha.update(type(value).__name__.encode())
        for name in sorted(vars(value)):
            computed = isinstance(getattr(type(value), name, None), cached_property)
            if name not in _SKIPPED and not computed:
                sha.update(name.encode())
                _digest(vars(value)[name], sha, seen)
    else:
        sha.update(type(value).__name__.encode())


class Fuzzer:
    """
    Makes messages that are to be refused, out of real ones.

    :param corpus: real messages of another run of the same federation.
    """

    def __init__(self, bench: Bench, corpus: list[Message], seed: int) -> None:
        self.bench = bench
        self.rng = Random(seed)
        self.thrown: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._corpus = corpus
        self._kinds: dict[type[Message], list[Message]] = {}
        for message in corpus:
            self._kinds.setdefault(type(message), []).append(message)
        self._bytes = {message.to_bytes() for message in corpus}
        self._counter = 10**9
        self._stranger = Identity.generate('hospital_1')
        self._handled: dict[str, list[Message]] = {}
        deliver = bench.driver.deliver

        def watched(name: str, message: Message) -> None:
            deliver(name, message)
            self._handled.setdefault(name, []).append(message)

        bench.driver.deliver = watched  # type: ignore[method-assign]

    def throw_at_all(self, count: int) -> None:
        """Throw so many messages at each party, and look whether it is as it was."""
        for name, party in list(self.bench.parties.items()):
            before = state_of(party)
            for _ in range(count):
                self._throw(name, party)
            assert state_of(party) == before, f'{name} is not as it was'

    def _throw(self, name: str, party: Any) -> None:
        message: Message | None = None
        counters = dict(party.channel.counters)
        while message is None:
            how = self.rng.choice(self._ways)
            try:
                message = how(self, name)
                message = message and message_from_bytes(message.to_bytes())
            except MessageError as error:
                self._note(how, error)
                return
        try:
            outcome = party.handle(message, self.bench.driver.now)
        except MessageError as error:
            self._note(how, error)
        else:
            raise AssertionError(f'{name} took {how.__name__}: {message}, and did {outcome}')
        if how in self._really_signed:
            party.channel.counters = counters
        assert party.channel.counters == counters

    def throw_as_insiders(self, count: int) -> None:
        """
        Throw messages that are wrong and signed by whom they ought to be.

        Some may be taken, for who signs so lies about its own affairs; nobody may fall.
        """
        for name, party in list(self.bench.parties.items()):
            for _ in range(count):
                message = self._with_changes(self._real(name), self.rng.randint(1, 3))
                if message.envelope.sender not in self.bench.identities:
                    continue
                counters = dict(party.channel.counters)
                try:
                    signed = self._signed(message, message.envelope.sender)
                    party.handle(message_from_bytes(signed.to_bytes()), 0.0)
                    self.thrown['taken'] += 1
                except MessageError as error:
                    self._note(self.throw_as_insiders, error)
                party.channel.counters = counters

    def _note(self, how: Callable[..., Any], error: MessageError) -> None:
        self.thrown[how.__name__.strip('_').replace('_', ' ')] += 1
        self.refused[error.reason] += 1

    # What is thrown.

    def _real(self, name: str = '') -> Message:
        """Return a real message, mostly of a kind that a party takes."""
        takes = list(self.bench.parties[name].takes) if name else []
        if takes and self.rng.random() < 0.9:
            kind = self.rng.choice(takes)
            return self.rng.choice(self._kinds.get(kind, self._corpus))
        return self.rng.choice(self._corpus)

    def _changed_bytes(self, name: str) -> Message | None:
        data = bytearray(self._real(name).to_bytes())
        for _ in range(self.rng.randint(1, 4)):
            at = self.rng.randrange(len(data) + 1)
            match self.rng.randrange(5):
                case 0 if data:
                    data[at % len(data)] ^= 1 << self.rng.randrange(8)
                case 1:
                    del data[at : at + self.rng.randint(1, 40)]
                case 2:
                    data[at:at] = self.rng.randbytes(self.rng.randint(1, 40))
                case 3:
                    del data[at:]
                case _:
                    other = self._real().to_bytes()
                    data[at:] = other[self.rng.randrange(len(other)) :]
        if bytes(data) in self._bytes:
            return None
        return message_from_bytes(bytes(data))

    def _changed_fields(self, name: str) -> Message:
        return self._with_changes(self._real(name))

    def _signed_by_the_wrong_role(self, name: str) -> Message:
        message = self._real(name)
        kind, members = type(message).__name__, self.bench.roster.members
        wrong = [each.name for each in members if kind not in KINDS_OF[each.role].split()]
        return self._signed(message, self.rng.choice(wrong))

    def _signed_by_somebody_else(self, name: str) -> Message:
        message = self._with_changes(self._real(name), self.rng.randint(0, 2))
        sender = message.envelope.sender
        others = [each for each in self.bench.identities if each != sender]
        return message.signed_by(self.bench.identities[self.rng.choice(others)])

    def _signed_by_a_stranger(self, name: str) -> Message:
        return self._with_changes(self._real(name), self.rng.randint(0, 1)).signed_by(
            self._stranger
        )

    def _of_an_unknown_sender(self, name: str) -> Message:
        message = self._real(name)
        sender = self.rng.choice(['', 'hospital_99', 'Hospital_1', 'hospital_1\0', 'x' * 1000])
        envelope = replace(message.envelope, sender=sender)
        return replace(message, envelope=envelope).signed_by(self._stranger)

    def _heard_before(self, name: str) -> Message | None:
        handled = [each for each in self._handled.get(name, []) if self._is_over(name, each)]
        return self.rng.choice(handled) if handled else None

    def _of_another_federation(self, name: str) -> Message:
        message = self._real(name)
        envelope = replace(message.envelope, federation=self.rng.choice(['', 'other', 'test ']))
        changed = replace(message, envelope=envelope)
        sender = message.envelope.sender
        return changed.signed_by(self.bench.identities[sender])

    def _of_a_past_round(self, name: str) -> Message | None:
        """Return what its sender said of a past round, signed anew with the next counter."""
        now = self.bench.parties[name].round  # type: ignore[attr-defined]
        kinds = (RoundKey, Shares, MaskedUpdate, Settle, Reveal, RoundStatus, Delivery, Relay)
        old = [m for m in self._corpus if isinstance(m, kinds) and m.envelope.round < now]
        if not old:
            return None
        message = self.rng.choice(old)
        return self._signed(message, message.envelope.sender)

    def _of_an_attempt_far_ahead(self, name: str) -> Message | None:
        message = self._real(name)
        round = self.rng.choice([10**3, 2**62, -1, -(2**62)])
        if not isinstance(message, RoundKey | Shares | MaskedUpdate | Settle | Reveal | Delivery):
            return None
        envelope = replace(message.envelope, round=round, attempt=self.rng.choice([1, 2**40, -5]))
        return self._signed(replace(message, envelope=envelope), envelope.sender)

    def _too_long(self, name: str) -> Message | None:
        message = self._real(name)
        # What may be huge takes memory here, when it is made.
        names = [f for f in fields(message) if f.metadata.get('most', 2**30) < 2**22]
        if not names:
            return None
        chosen = self.rng.choice(names)
        value, most = getattr(message, chosen.name), chosen.metadata['most']
        value = bytes(most + 1) if isinstance(value, bytes) else ('',) * (most + 1)
        changed = replace(message, **{chosen.name: value})
        # Signed by whom it ought to be: its size alone is what is wrong.
        data = self._signed(changed, message.envelope.sender).to_bytes()
        return message_from_bytes(data)

    def _with_a_length_of_lies(self, name: str) -> Message | None:
        data = bytearray(self._real(name).to_bytes())
        places = [at for at in range(len(data) - 5) if data[at : at + 1] in (b's', b'y', b't')]
        at = self.rng.choice(places[:50]) + 1
        data[at : at + 4] = self.rng.choice([2**32 - 1, 2**31, 2**28, 10**6]).to_bytes(4, 'little')
        return message_from_bytes(bytes(data))

    def _of_no_kind(self, name: str) -> Message | None:
        kinds = ['', 'fdrl_ros/5/Message', 'fdrl_ros/5/Envelope', 'fdrl_ros/99/RoundKey', 'x' * 99]
        body = self._real(name).to_bytes()[20:]
        return message_from_bytes(encode(self.rng.choice(kinds)) + body)

    _ways: tuple[Callable[['Fuzzer', str], Message | None], ...] = (
        _changed_bytes,
        _changed_bytes,
        _changed_fields,
        _changed_fields,
        _signed_by_the_wrong_role,
        _signed_by_the_wrong_role,
        _signed_by_somebody_else,
        _signed_by_a_stranger,
        _of_an_unknown_sender,
        _heard_before,
        _of_another_federation,
        _of_a_past_round,
        _of_an_attempt_far_ahead,
        _too_long,
        _with_a_length_of_lies,
        _of_no_kind,
    )

    _really_signed = (_of_a_past_round, _of_an_attempt_far_ahead)

    def _signed(self, message: Message, sender: str) -> Message:
        self._counter += 1
        envelope = replace(message.envelope, sender=sender, counter=self._counter)
        return replace(message, envelope=envelope).signed_by(self.bench.identities[sender])

    def _is_over(self, name: str, message: Message) -> bool:
        """Tell whether a party has really heard a message: it is not on its way any more."""
        party = self.bench.parties[name]
        heard = party.channel.counters.get((message.envelope.sender, type(message)), -1)
        return bool(message.envelope.counter <= heard)

    def _with_changes(self, message: Message, count: int = 1) -> Message:
        """Change fields of a message or of its envelope; the signature stays."""
        for _ in range(count):
            changed: Any = message if self.rng.random() < 0.7 else message.envelope
            chosen = self.rng.choice([f for f in fields(changed) if f.name != 'envelope'])
            value = getattr(changed, chosen.name)
            others = [each for each in self._values_like(value) if each != value]
            other = replace(changed, **{chosen.name: self.rng.choice(others)})
            message = other if changed is message else replace(message, envelope=other)
        return message

    def _values_like(self, value: Any) -> Iterator[Any]:
        rng = self.rng
        match value:
            case bool():
                yield not value
            case int():
                near = min(value + 1, 2**63 - 1), max(value - 1, -(2**63))
                yield from (*near, 0, -1, 2**63 - 1, -(2**63), rng.getrandbits(40))
            case float():
                yield from (value + 1.0, -value - 1.0, float('inf'), float('-inf'), 1e-300)
            case str():
                yield from ('', value + ' ', value.upper() + 'X', 'hospital_2')
                yield from ('\U0001f600', 'é' * 9)
            case Message():
                counter = value.envelope.counter + 1
                yield replace(value, envelope=replace(value.envelope, counter=counter))
            case bytes():
                yield from (b'', value[:-1], value + b'\0', rng.randbytes(len(value) + 1))
                yield rng.randbytes(max(1, len(value)))
            case tuple():
                yield from ((), value[1:], (*value, *value[-1:]), value[::-1], value * 2)
                if not value or isinstance(value[0], str):
                    yield from ((*value[1:], 'nobody'), ('', *value))
            case _:
                assert is_dataclass(value)
                yield replace(value)
