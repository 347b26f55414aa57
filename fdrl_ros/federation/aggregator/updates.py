# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The updates of one attempt as they reach the aggregator: on disk, whoever may survive."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
import hashlib
import json

from fdrl_ros.crypto.he.encryption import PublicContext
from fdrl_ros.errors import CryptoError, MessageError, RoundError
from fdrl_ros.federation.protocol.attempt import AttemptId
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import (
    hash_of_hashes,
    MaskedUpdate,
    message_from_bytes,
    Wanted,
)
from fdrl_ros.federation.protocol.pull import Ask, FIRST, numbers, Pull
from fdrl_ros.federation.protocol.store import Place, Spool, Store
from fdrl_ros.federation.protocol.update_codec import UpdateCodec

AT_ONCE = 2
"""Hospitals whose updates are asked for at the same time; the others wait their turn."""

_SPOOL = 'updates'


@dataclass(frozen=True)
class _Chunk:
    """Where a chunk's message lies, and the SHA-256 of its ciphertext."""

    place: Place
    digest: bytes


def check_update(
    message: MaskedUpdate, codec: UpdateCodec, public: PublicContext, base_digest: bytes
) -> None:
    """
    Refuse a chunk of an update that could not be summed with the others.

    :param base_digest: of the policy that it has to start from.
    :raises MessageError: if so.
    """
    sender = message.envelope.sender
    if message.chunks != codec.scheme.ciphertexts:
        raise MessageError(sender, f'chunk {message.chunk} of {message.chunks}')
    if message.base_digest != base_digest:
        raise RoundError(sender, 'trained from another policy')
    try:
        public.residues(message.ciphertext)
    except CryptoError as error:
        raise MessageError(sender, str(error)) from error


class Updates:
    """
    The chunks that arrived, by hospital and number, and what to ask for next.

    In memory are their hashes alone. A survivor is known only at the deadline, so nothing is added
    before; and the key authority will want to see every chunk as its hospital signed it.
    """

    def __init__(self, store: Store, of: AttemptId) -> None:
        """Begin with nothing."""
        self._store = store
        self._of = of
        self._name = f'{_SPOOL}-{of[0]}-{of[1]}'
        self._spool: Spool | None = None
        self._chunks: dict[str, dict[int, _Chunk]] = {}
        self._sizes: dict[str, int] = {}
        self._pulls: dict[str, Pull] = {}
        self._turn: list[str] = []
        store.erase_spools(_SPOOL, but=self._name)

    def __len__(self) -> int:
        """Return of how many hospitals something is here."""
        return len(self._chunks)

    def load(self, index: bytes) -> None:
        """
        Go on with what :meth:`index` told before a restart.

        :raises StoreError: if it is not there any more.
        """
        for sender, chunks in json.loads(index).items():
            self._chunks[sender] = {
                number: _Chunk((start, count), bytes.fromhex(digest))
                for number, start, count, digest in chunks
            }
        self._spool = self._store.opened(self._name)

    def index(self) -> bytes:
        """Make durable what is here, and return what :meth:`load` needs."""
        if self._spool is not None:
            self._spool.sync()
        return json.dumps(
            {
                sender: [(n, *each.place, each.digest.hex()) for n, each in chunks.items()]
                for sender, chunks in self._chunks.items()
            }
        ).encode()

    def is_known(self, message: MaskedUpdate) -> bool:
        """Tell whether this chunk is here; if it is the first, its sender said all anew."""
        sender = message.envelope.sender
        known = self._chunks.get(sender, {}).get(message.chunk)
        if known is None or known.digest != hashlib.sha256(message.ciphertext).digest():
            return False
        if not message.chunk and sender in self._pulls:
            self._pulls[sender].hurry()
        return True

    def has(self, sender: str, number: int) -> bool:
        """Tell whether a chunk of that number is here."""
        return number in self._chunks.get(sender, {})

    def add(self, message: MaskedUpdate) -> None:
        """Keep a chunk."""
        if self._spool is None:
            self._spool = self._store.spool(self._name)
        sender = message.envelope.sender
        digest = hashlib.sha256(message.ciphertext).digest()
        chunk = _Chunk(self._spool.append(message.to_bytes()), digest)
        self._chunks.setdefault(sender, {})[message.chunk] = chunk
        self._sizes[sender] = message.chunks
        self._pulls.setdefault(sender, Pull(FIRST))

    def is_complete(self, name: str, chunks: int) -> bool:
        """Tell whether the whole update of a hospital is here."""
        return len(self._chunks.get(name, {})) == chunks

    def ask(self, channel: Channel, now: float) -> Iterator[Wanted]:
        """Ask hospitals for what is missing, a little at a time."""
        for name, (first, count) in self._wanted(now):
            yield channel.seal(Wanted, *self._of, to=name, first=first, count=count)

    def _wanted(self, now: float) -> Iterator[tuple[str, Ask]]:
        """Yield what to ask of whom."""
        self._turn = [name for name in self._turn if not self._is_whole(name)]
        for name in [name for name in self._turn if self._pulls[name].is_late(now)]:
            # It is asked once more, but others need not wait for it.
            yield from self._next(name, now)
            self._turn.remove(name)
            self._pulls[name] = self._pulls.pop(name)
        for name, pull in self._pulls.items():
            if len(self._turn) == AT_ONCE:
                break
            if name not in self._turn and not self._is_whole(name):
                self._turn.append(name)
                pull.wait()
        for name in self._turn:
            yield from self._next(name, now)

    def _next(self, name: str, now: float) -> Iterator[tuple[str, Ask]]:
        chunks = self._chunks[name]
        return ((name, ask) for ask in self._pulls[name].next(chunks, self._sizes[name], now))

    def _is_whole(self, name: str) -> bool:
        return self.is_complete(name, self._sizes[name])

    def any(self) -> MaskedUpdate | None:
        """Return a chunk, if there is one."""
        for name, chunks in self._chunks.items():
            return self.chunk(name, next(iter(chunks)))
        return None

    def chunk(self, name: str, number: int) -> MaskedUpdate:
        """Return a chunk as its hospital signed it."""
        assert self._spool is not None
        message = message_from_bytes(self._spool.read(self._chunks[name][number].place))
        assert isinstance(message, MaskedUpdate)
        return message

    def columns(self, names: Sequence[str]) -> Iterator[Iterator[bytes]]:
        """Yield these hospitals' ciphertexts of each place in the update."""
        for number in range(len(self._chunks[names[0]])):
            yield (self.chunk(name, number).ciphertext for name in names)

    def items(self, names: Sequence[str], first: int, count: int) -> tuple[MaskedUpdate, ...]:
        """Return the chunks of all these hospitals from some place on: of each the first, ..."""
        every = len(names) * len(self._chunks[names[0]])
        return tuple(
            self.chunk(names[item % len(names)], item // len(names))
            for item in numbers(first, count, every)
        )

    def hashes(self, names: Sequence[str]) -> bytes:
        """Return the hash of each of these hospitals' updates."""
        return b''.join(
            hash_of_hashes(chunks[number].digest for number in sorted(chunks))
            for chunks in (self._chunks[name] for name in names)
        )
