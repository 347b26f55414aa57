# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The messages of the protocol, and the canonical bytes that are signed.

Each class has the fields of the ROS message of the same name, less the header. A signature covers
the protocol version, the kind, the envelope without the signature, and every other field.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
import hashlib
import struct
from typing import Any, Self

from fdrl_ros.crypto.signing import Identity
from fdrl_ros.privacy.ledger_entry import DIGEST, MOST_LINKS

PROTOCOL_VERSION = 2


@dataclass(frozen=True)
class Envelope:
    """Who says it and where in the protocol it belongs."""

    federation: str
    round: int
    attempt: int
    sender: str
    counter: int
    signature: bytes = b''


class Phase(IntEnum):
    """Phases of a round; the numbers are those of ``RoundStatus.msg``."""

    WAITING = 0
    OPEN = 1
    TRAIN = 2
    SETTLE = 3
    SUM = 4
    RELEASED = 5
    FAILED = 6
    PAUSED = 7
    FINISHED = 8


@dataclass(frozen=True)
class Message:
    """Base of every signed message."""

    envelope: Envelope

    def canonical(self) -> bytes:
        """Return the bytes that are signed; equal messages have equal bytes, others do not."""
        unsigned = replace(self, envelope=replace(self.envelope, signature=b''))
        kind = f'fdrl_ros/{PROTOCOL_VERSION}/{type(self).__name__}'
        return b''.join(
            (_encode(kind), *(_encode(getattr(unsigned, f.name)) for f in fields(self)))
        )

    def signed_by(self, identity: Identity) -> Self:
        """Return this message with the signature of `identity`."""
        signature = identity.sign(self.canonical())
        return replace(self, envelope=replace(self.envelope, signature=signature))


@dataclass(frozen=True)
class RoundStatus(Message):
    """State of the present round; `time_left` in seconds, 0 for none."""

    phase: int
    members: tuple[str, ...]
    survivors: tuple[str, ...]
    time_left: float
    policy_digest: bytes
    reason: str = ''


@dataclass(frozen=True)
class EncryptionKey(Message):
    """Public encryption context, and how updates become integers."""

    context: bytes
    n_parameters: int
    members: int
    bits: int
    limit: float


@dataclass(frozen=True)
class RoundKey(Message):
    """A hospital's X25519 key for the masks of one attempt, 32 bytes."""

    public_key: bytes


@dataclass(frozen=True)
class MaskedUpdate(Message):
    """
    One chunk of a quantised, masked and encrypted update.

    The first chunk has the links of the privacy ledger's newest entries, the others have none.
    """

    chunk: int
    chunks: int
    base_digest: bytes
    ciphertext: bytes
    ledger_entries: int
    ledger_head: bytes
    ledger_base_entries: int
    ledger_base_head: bytes
    ledger_links: bytes = field(metadata={'most': MOST_LINKS * DIGEST})


@dataclass(frozen=True)
class Settle(Message):
    """
    A survivor's signature on the survivor set, with the seed of its self mask.

    `update_hash` is of its own update, `self_seed` has 32 bytes: whoever lacks the seed of one
    survivor cannot take the masks off any sum that this survivor's update is in.
    """

    survivors: tuple[str, ...]
    update_hash: bytes
    self_seed: bytes


@dataclass(frozen=True)
class GlobalPolicy(Message):
    """The policy released after a round; `update_hashes` joins 32 bytes per contributor."""

    weights: bytes
    digest: bytes
    contributors: tuple[str, ...]
    update_hashes: bytes
    rolled_back: bool
    secure: bool
    reason: str


@dataclass(frozen=True)
class HospitalPolicy(Message):
    """A hospital's own policy, released by choice."""

    weights: bytes
    digest: bytes
    unit: str
    epsilon: float
    delta: float
    secure: bool


@dataclass(frozen=True)
class Verdict(Message):
    """What the key authority says of a request to decrypt."""

    accepted: bool
    reason: str


@dataclass(frozen=True)
class DecryptRequest(Message):
    """
    The aggregator's request: signed updates, signed survivor set, hash of its own sums.

    Without updates it asks to abandon the round: nothing is decrypted, the older weights stay.
    """

    updates: tuple[MaskedUpdate, ...]
    settles: tuple[Settle, ...]
    sum_hash: bytes


def hash_of_chunks(chunks: Iterable[bytes]) -> bytes:
    """Return the SHA-256 over the SHA-256 of each chunk, in order: the hash of an update."""
    return hashlib.sha256(b''.join(hashlib.sha256(chunk).digest() for chunk in chunks)).digest()


def hash_of_sums(sums: Iterable[bytes]) -> bytes:
    """Return the SHA-256 over the summed ciphertexts in order."""
    sha = hashlib.sha256()
    for each in sums:
        sha.update(each)
    return sha.digest()


def _encode(value: Any) -> bytes:
    """Encode one value: a type letter, a length where there is one, then the bytes."""
    if isinstance(value, bool):
        return b'b' + struct.pack('<?', value)
    if isinstance(value, int):
        return b'i' + struct.pack('<q', value)
    if isinstance(value, float):
        return b'f' + struct.pack('<d', value)
    if isinstance(value, str):
        data = value.encode()
        return b's' + struct.pack('<I', len(data)) + data
    if isinstance(value, bytes):
        return b'y' + struct.pack('<I', len(value)) + value
    if isinstance(value, tuple):
        return b't' + struct.pack('<I', len(value)) + b''.join(map(_encode, value))
    if isinstance(value, Message | Envelope):
        return b'm' + b''.join(_encode(getattr(value, f.name)) for f in fields(value))
    raise TypeError(f'a message cannot hold a {type(value).__name__}')
