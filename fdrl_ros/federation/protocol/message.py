# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The messages of the protocol, and the canonical bytes that are signed.

Each class has the fields of the ROS message of the same name, less the header. A signature covers
the protocol version, the kind, the envelope without the signature, and every other field, but
those that a hash tree stands for, whose root it covers.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cache, cached_property
import hashlib
from typing import Any, ClassVar, Self

from fdrl_ros.crypto.keys.signing import Identity, SIGNATURE_BYTES, verify
from fdrl_ros.crypto.masking.merkle import path_bytes, root_and_paths
from fdrl_ros.crypto.masking.neighbourhoods import MOST_HOLDERS, MOST_HOSPITALS
from fdrl_ros.crypto.masking.round_secret import KEY_BYTES
from fdrl_ros.crypto.masking.share_sealing import MemberKeys, PAIR_BYTES, PARCEL_BYTES
from fdrl_ros.crypto.masking.sharing import SHARE_BYTES
from fdrl_ros.crypto.masking.sketch import MOST_ROWS, VALUE_BYTES
from fdrl_ros.errors import CryptoError, MessageError
from fdrl_ros.federation.protocol.encoding import encode, encode_fields, ENCODED, Reader
from fdrl_ros.privacy.ledger.chain import DIGEST, HEAD_BYTES, MOST_LINKS

PROTOCOL_VERSION = 5

AttemptId = tuple[int, int]
"""A round and the attempt at it."""

STEP = 8
"""Most chunks requested in one message."""

MOST_PARTS = 1000
"""Most parts of a request to decrypt."""

MOST_LAYERS = 1000
"""Most layers that hospitals keep to themselves."""

MOST_WORDS = 500
"""Bytes of what a message says in words, for people."""

# How long a field may be: what is longer is refused before anybody looks at it.
_HASH = {'most': DIGEST}
_KEY = {'most': KEY_BYTES}
_KEYS = {'most': KEY_BYTES * MOST_HOLDERS}
_PAIRS = {'most': PAIR_BYTES * MOST_HOLDERS}
_PARCELS = {'most': PARCEL_BYTES * MOST_HOLDERS}
_PATH = {'most': path_bytes(MOST_HOLDERS)}
_PATHS = {'most': path_bytes(MOST_HOLDERS) * MOST_HOLDERS}
_SHARES = {'most': SHARE_BYTES * MOST_HOLDERS}
_HOLDERS = {'most': MOST_HOLDERS}
_LISTED = {'most': path_bytes(MOST_HOSPITALS)}
_NAMES = {'most': MOST_HOSPITALS}
_MARKS = {'most': (MOST_HOSPITALS + 7) // 8}
_WORDS = {'most': MOST_WORDS}


def shortened(text: str) -> str:
    """Return the first :data:`MOST_WORDS` bytes of what is said in words."""
    return text.encode()[:MOST_WORDS].decode('utf-8', 'ignore')


@dataclass(frozen=True)
class Envelope:
    """Sender of a message, and its place in the protocol."""

    federation: str
    round: int
    attempt: int
    sender: str
    counter: int
    signature: bytes = field(default=b'', metadata={'most': SIGNATURE_BYTES})


class Phase(IntEnum):
    """Phases of a round; the numbers are those of ``RoundStatus.msg``."""

    WAITING = 0
    OPEN = 1
    SHARE = 2
    TRAIN = 3
    SETTLE = 4
    REVEAL = 5
    SUM = 6
    RELEASED = 7
    FAILED = 8
    PAUSED = 9
    FINISHED = 10
    INSPECT = 11
    SKETCH = 12


UNDER_WAY = frozenset(
    {
        Phase.OPEN,
        Phase.SHARE,
        Phase.TRAIN,
        Phase.INSPECT,
        Phase.SKETCH,
        Phase.SETTLE,
        Phase.REVEAL,
        Phase.SUM,
    }
)
"""Phases of an attempt, from its opening to the decryption of its sum."""


@dataclass(frozen=True)
class Message:
    """Base of every signed message."""

    envelope: Envelope

    keeps_bytes: ClassVar[bool] = True
    by_root: ClassVar[tuple[str, ...]] = ()
    """Fields for which a root is signed that stands for them; a message may leave them out."""

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what another process has to check itself."""
        names = {each.name for each in fields(self)}
        return {key: each for key, each in self.__dict__.items() if key in names}

    @property
    def sender(self) -> str:
        """Name of the party that sent it."""
        return self.envelope.sender

    @property
    def id(self) -> AttemptId:
        """Round and attempt that it belongs to."""
        return self.envelope.round, self.envelope.attempt

    def canonical(self) -> bytes:
        """Return the bytes that are signed; messages that differ in what is signed differ."""
        blank: dict[str, Any] = dict.fromkeys(self.by_root, b'')
        whole = self if not blank or self.is_bare else replace(self, **blank)
        written, signature = whole.written(), self.envelope.signature
        # The signature is the end of the envelope, which is the first field.
        end = len(encode(self.envelope))
        start = end - len(encode(signature))
        return _kind(type(self).__name__) + written[:start] + encode(b'') + written[end:]

    def written(self) -> bytes:
        """Return the fields as they are in messages."""
        return self.__dict__.get(ENCODED) or encode_fields(self)

    @property
    def is_bare(self) -> bool:
        """Whether what a root stands for was left out."""
        return bool(self.by_root) and not any(getattr(self, name) for name in self.by_root)

    def has_its_root(self) -> bool:
        """Tell whether what a root stands for is what was signed."""
        return True

    def bare(self) -> Self:
        """Return this message without what a root stands for; its signature still holds."""
        kept = self.__dict__
        if '_bare' not in kept:
            blank: dict[str, Any] = dict.fromkeys(self.by_root, b'')
            kept['_bare'] = replace(self, **blank)
            kept['_bare'].__dict__[ENCODED] = encode_fields(kept['_bare'])
        bare: Self = kept['_bare']
        return bare

    def is_signed_by(self, public: bytes) -> bool:
        """
        Tell whether a key signed exactly this; the answer yes is kept with the message.

        In one process all parties get the same object, and none can change it.

        :param public: of Ed25519, 32 bytes.
        """
        kept = self.__dict__
        if kept.get('_signed_by') == public:
            return True
        if not (self.is_bare or self.has_its_root()):
            return False
        if not verify(public, self.envelope.signature, self.canonical()):
            return False
        kept['_signed_by'] = public
        return True

    def to_bytes(self) -> bytes:
        """Return the whole message with its signature, for stores and other transports."""
        return _kind(type(self).__name__) + self.written()

    def signed_by(self, identity: Identity) -> Self:
        """Return this message with the signature of `identity`."""
        signature = identity.sign(self.canonical())
        return replace(self, envelope=replace(self.envelope, signature=signature))


@dataclass(frozen=True)
class EncryptionKey(Message):
    """
    Public encryption context, and how updates become integers.

    `n_parameters` are those of an update: without the layers that are `personal`. `norm` is the
    largest L2 norm of an update, which the key authority bounds by so many `projections`.
    """

    context: bytes
    n_parameters: int
    personal: tuple[str, ...] = field(metadata={'most': MOST_LAYERS})
    members: int
    bits: int
    limit: float
    norm: float
    projections: int


@dataclass(frozen=True)
class RoundKey(Message):
    """
    A hospital's public keys for one attempt, and the hash of its self seed.

    The keys are joined, 32 bytes for each of its peers in the order of their names: the other
    hospitals of the roster, or its neighbours. `keys_root` stands for them: of a hash tree with a
    peer's two keys as leaf. `release` says whether it publishes its own policy of the round, if
    all other members do.
    """

    by_root: ClassVar[tuple[str, ...]] = ('mask_keys', 'sealing_keys')

    keys_root: bytes = field(metadata=_HASH)
    mask_keys: bytes = field(metadata=_KEYS)
    sealing_keys: bytes = field(metadata=_KEYS)
    seed_hash: bytes = field(metadata=_HASH)
    release: bool

    @cached_property
    def member_keys(self) -> MemberKeys:
        """
        Return the keys, unless they were left out.

        :raises CryptoError: if they are of other sizes than keys.
        """
        return MemberKeys(self.mask_keys, self.sealing_keys, self.seed_hash)

    def has_its_root(self) -> bool:
        """Tell whether the keys are those that were signed."""
        try:
            return self.member_keys.root == self.keys_root
        except CryptoError:
            return False


@dataclass(frozen=True)
class RoundStatus(Message):
    """
    State of the present round; `time_left` in seconds, 0 for none.

    `keyed` are the hospitals whose keys shares are made for, `members` those whose shares
    arrived, who mask with each other, and `survivors` those whose update arrived: bitmaps over the
    hospitals of the roster, sorted by name; of nobody it is empty. The digests are of the policy
    that the round starts from, the roster, and all that hospitals must agree on. From the `nonce`
    follow the projections of phase SKETCH. `keys_digest` is of all keys of the keyed hospitals, in
    phase SHARE and later.
    """

    phase: int
    keyed: bytes = field(metadata=_MARKS)
    members: bytes = field(metadata=_MARKS)
    survivors: bytes = field(metadata=_MARKS)
    time_left: float
    policy_digest: bytes = field(metadata=_HASH)
    roster_digest: bytes = field(metadata=_HASH)
    terms_digest: bytes = field(metadata=_HASH)
    nonce: bytes = field(metadata=_HASH)
    keys_digest: bytes = field(metadata=_HASH)
    reason: str = field(metadata=_WORDS)


@dataclass(frozen=True)
class PeerKeys(Message):
    """
    What the keyed peers of hospital `to` published for it, in the order of their names.

    `keys` are their round keys without the lists. `pairs` joins the mask key and the sealing key
    of each for this hospital, `paths` what shows that they are below the root. `own_path` shows
    that this hospital's own keys are among those that all agree on.
    """

    to: str
    keys: tuple[RoundKey, ...] = field(metadata=_HOLDERS)
    pairs: bytes = field(metadata=_PAIRS)
    paths: bytes = field(metadata=_PATHS)
    own_path: bytes = field(metadata=_LISTED)


@dataclass(frozen=True)
class Shares(Message):
    """
    A hospital's parcel for each of its holders, itself too, in the order of names.

    `parcels_root` stands for them: of the hash tree with a parcel as leaf.
    """

    by_root: ClassVar[tuple[str, ...]] = ('parcels',)

    keys_digest: bytes = field(metadata=_HASH)
    parcels_root: bytes = field(metadata=_HASH)
    parcels: bytes = field(metadata=_PARCELS)

    @cached_property
    def tree(self) -> tuple[bytes, list[bytes]]:
        """Return root and paths of the tree over the parcels, unless these were left out."""
        size = PARCEL_BYTES
        return root_and_paths(
            [self.parcels[at : at + size] for at in range(0, len(self.parcels), size)]
        )

    def has_its_root(self) -> bool:
        """Tell whether the parcels are those that were signed."""
        return len(self.parcels) % PARCEL_BYTES == 0 and self.tree[0] == self.parcels_root


@dataclass(frozen=True)
class Delivery(Message):
    """
    What other members dealt to hospital `to`, in the order of their names.

    `shares` are their messages without the parcels. `parcels` joins that of each for this
    hospital, `paths` what shows that they are below the root.
    """

    to: str
    shares: tuple[Shares, ...] = field(metadata=_HOLDERS)
    parcels: bytes = field(metadata=_PARCELS)
    paths: bytes = field(metadata=_PATHS)


@dataclass(frozen=True)
class Complaint(Message):
    """
    A hospital cannot open the parcel that `dealer` dealt to it, and proves that.

    `shares` is the dealer's message without the parcels, `path` shows that the parcel is below its
    root. `pairs` joins the dealer's two keys for this hospital and this hospital's for the dealer.
    `secret` is the hospital's X25519 secret for this dealer: with it everybody can open that
    parcel, and those between these two alone.
    """

    dealer: str
    keys_digest: bytes = field(metadata=_HASH)
    shares: Shares
    parcel: bytes = field(metadata={'most': PARCEL_BYTES})
    path: bytes = field(metadata=_PATH)
    pairs: bytes = field(metadata={'most': 2 * PAIR_BYTES})
    secret: bytes = field(metadata=_KEY)


@dataclass(frozen=True)
class MaskedUpdate(Message):
    """
    One chunk of a quantised, masked and encrypted update.

    The first chunk has the links of the privacy ledger's newest entries, the others have none.
    `secure`: the hospital states that its noise came from the operating system's secure source.
    """

    chunk: int
    chunks: int
    base_digest: bytes = field(metadata=_HASH)
    setup_digest: bytes = field(metadata=_HASH)
    ciphertext: bytes
    ledger_entries: int
    ledger_head: bytes = field(metadata=_HASH)
    ledger_base_entries: int
    ledger_base_head: bytes = field(metadata=_HASH)
    ledger_links: bytes = field(metadata={'most': MOST_LINKS * DIGEST})
    secure: bool


@dataclass(frozen=True)
class Wanted(Message):
    """
    A server requests `count` chunks of `to`, from number `first` on.

    The aggregator requests chunks of a hospital's update. The key authority requests of the
    aggregator the chunks of all survivors in turn: of each the first, then of each the second; and
    with a `part` above 0 that part of the aggregator's request, and no chunks.
    """

    to: str
    first: int
    count: int
    part: int = 0


@dataclass(frozen=True)
class Relay(Message):
    """Chunks of the survivors as they signed them, from number `first` on."""

    first: int
    updates: tuple[MaskedUpdate, ...] = field(metadata={'most': STEP})


@dataclass(frozen=True)
class Sketch(Message):
    """
    A hospital's masks in the attempt of `setup_digest`, projected as `nonce` says.

    `values` joins, in the order of the names of those members whose shares it holds, the
    projections of the mask of this pair, and in the sender's own place of its self mask: each with
    as many bits as the plaintext modulus takes. `parcels_root` is that of the shares that it
    dealt: its parcels say by which keys the masks are made.
    """

    setup_digest: bytes = field(metadata=_HASH)
    parcels_root: bytes = field(metadata=_HASH)
    nonce: bytes = field(metadata=_HASH)
    values: bytes = field(metadata={'most': VALUE_BYTES * MOST_ROWS * MOST_HOLDERS})


@dataclass(frozen=True)
class Dispute(Message):
    """The other end of a pair of hospital `to` signed another projection of the pair's mask."""

    to: str
    sketch: Sketch


@dataclass(frozen=True)
class Opening(Message):
    """
    A hospital shows its X25519 secret for the mask of one pair, whose other end lied about it.

    So everybody can tell what that mask is, and of whom the lie is.
    """

    peer: str
    keys_digest: bytes = field(metadata=_HASH)
    secret: bytes = field(metadata=_KEY)


@dataclass(frozen=True)
class Settle(Message):
    """A survivor's signature on set-up and survivor set; `update_hash` is of its own update."""

    settle_digest: bytes = field(metadata=_HASH)
    update_hash: bytes = field(metadata=_HASH)


@dataclass(frozen=True)
class Reveal(Message):
    """
    What one holder reveals for a survivor set that enough survivors signed.

    In the order of their names, one share of each member that dealt it one: of the self seed of
    who survived, of the mask secret of who did not; so that there is no room for both of one
    hospital.
    `delivery_digest` is of the parcels that these shares were in.
    """

    settle_digest: bytes = field(metadata=_HASH)
    delivery_digest: bytes = field(metadata=_HASH)
    shares: bytes = field(metadata=_SHARES)


@dataclass(frozen=True)
class Verdict(Message):
    """
    The key authority's answer to a request.

    `inspected` says that it looked at each update alone, `bounded` that it also held each against
    the largest norm; the projections of the attempt follow
    from `nonce`, which nobody knew before. `refused` are the hospitals whose update
    no honest hospital makes, `unaccounted` those whose privacy ledger lacks what it saw.
    """

    accepted: bool
    reason: str = field(metadata=_WORDS)
    inspected: bool
    bounded: bool
    nonce: bytes = field(metadata=_HASH)
    refused: tuple[str, ...] = field(metadata=_NAMES)
    unaccounted: tuple[str, ...] = field(metadata=_NAMES)


class Fault(IntEnum):
    """What a hospital is blamed of; the numbers are those of ``Blame.msg``."""

    PARCEL = 1
    COMPLAINT = 2
    REVEAL = 3
    DEAL = 4
    UPDATE = 5
    SKETCH = 6
    MALFORMED = 7
    SILENT = 8


@dataclass(frozen=True)
class Blame(Message):
    """
    The aggregator says that a hospital spoiled an attempt; most often everybody can check that.

    `fault` is a :class:`Fault`, and :mod:`fdrl_ros.federation.protocol.blame` says what proves it.
    `keyed`, `keys_digest` and `terms_digest` make the list of keys of the attempt. If the proof is
    about a secret of the guilty hospital alone, `keys` has its round key, and `keys_path` shows
    that it is in the list.

    - PARCEL and COMPLAINT: one of `complaints`.
    - REVEAL: one of `reveals`, the attempt's `members` and `survivors`, and the `parcels` that
      were delivered to its sender, and its own, with their `paths`, in the order of `dealt`, the
      messages of who dealt them.
    - DEAL: the guilty hospital's `dealt`, its `parcels` and `paths` in the order of `ends`: who
      holds them; and the `shares` that were in them, of the self seed if `survivors` has its
      name, else of the mask secret.
    - UPDATE: one of `verdicts`; it is the key authority's word, who alone can see that.
    - SKETCH: one of `sketches`, and a `secret` that shows what mask it is about: if `ends` is one
      name, the guilty hospital's self seed; if two, the X25519 secret of the first for the second,
      and the guilty hospital's parcel for the other one, with `dealt` and `paths`, shows by which
      keys their mask is made; `pairs` joins these, the guilty hospital's first.
    - MALFORMED and SILENT: nothing; it is the aggregator's word.
    """

    guilty: str
    fault: int
    keyed: tuple[str, ...] = field(metadata=_NAMES)
    keys_digest: bytes = field(metadata=_HASH)
    keys: tuple[RoundKey, ...] = field(metadata={'most': 1})
    keys_path: bytes = field(metadata=_LISTED)
    terms_digest: bytes = field(metadata=_HASH)
    members: tuple[str, ...] = field(metadata=_NAMES)
    survivors: tuple[str, ...] = field(metadata=_NAMES)
    complaints: tuple[Complaint, ...] = field(metadata={'most': 1})
    reveals: tuple[Reveal, ...] = field(metadata={'most': 1})
    verdicts: tuple[Verdict, ...] = field(metadata={'most': 1})
    sketches: tuple[Sketch, ...] = field(metadata={'most': 1})
    secret: bytes = field(metadata=_KEY)
    ends: tuple[str, ...] = field(metadata=_HOLDERS)
    dealt: tuple[Shares, ...] = field(metadata=_HOLDERS)
    parcels: bytes = field(metadata=_PARCELS)
    paths: bytes = field(metadata=_PATHS)
    pairs: bytes = field(metadata={'most': 2 * PAIR_BYTES})
    shares: bytes = field(metadata=_SHARES)


@dataclass(frozen=True)
class GlobalPolicy(Message):
    """
    The policy released after a round.

    `updates_root` is of the hash tree over names and update hashes of the contributors; empty if
    there are none. Each of them gets its path with the key authority's :class:`LedgerHeads`.

    `secure`: in this round and all before, every hospital in the sum signed that its noise was.
    """

    weights: bytes
    digest: bytes = field(metadata=_HASH)
    contributors: tuple[str, ...] = field(metadata=_NAMES)
    updates_root: bytes = field(metadata=_HASH)
    rolled_back: bool
    secure: bool
    reason: str = field(metadata=_WORDS)


@dataclass(frozen=True)
class HospitalPolicy(Message):
    """A hospital's own policy, released by choice."""

    weights: bytes
    digest: bytes = field(metadata=_HASH)
    unit: str
    epsilon: float
    delta: float
    secure: bool


@dataclass(frozen=True)
class DecryptRequest(Message):
    """
    The aggregator's request: everything that proves which sum may be decrypted.

    Keys of all who published them, `members` who masked with each other, `survivors` and the
    hashes of their updates, signatures on the survivor set, revealed shares, hash of the
    aggregator's own sums. The updates themselves follow as the key authority asks for them.
    Without signatures on the survivors it asks to inspect their updates: nothing is unmasked.
    Without `sketches` each is looked at alone; with them its norm is bounded.
    Without survivors it asks to abandon the round: nothing is decrypted, the older weights stay.

    A long request comes in `parts`, numbered from 0: the messages of hospitals are distributed
    over them, all else is in the first. `request_digest` is the SHA-256 over all else and the
    signatures of these messages. The key authority asks for each part but the first.
    """

    keys: tuple[RoundKey, ...] = field(metadata=_NAMES)
    members: tuple[str, ...] = field(metadata=_NAMES)
    survivors: tuple[str, ...] = field(metadata=_NAMES)
    update_hashes: bytes = field(metadata={'most': DIGEST * MOST_HOSPITALS})
    settles: tuple[Settle, ...] = field(metadata=_NAMES)
    reveals: tuple[Reveal, ...] = field(metadata=_NAMES)
    sketches: tuple[Sketch, ...] = field(metadata=_NAMES)
    sum_hash: bytes = field(metadata=_HASH)
    part: int = 0
    parts: int = 1
    request_digest: bytes = field(default=b'', metadata=_HASH)


@dataclass(frozen=True)
class Objection(Message):
    """A hospital has another roster than the one in the aggregator's status: this one."""

    roster_serial: int
    roster_digest: bytes = field(metadata=_HASH)


class DeclineReason(IntEnum):
    """Why a hospital takes no part in a round; the numbers are those of ``Decline.msg``."""

    BUDGET = 1
    LEDGER = 2


@dataclass(frozen=True)
class Decline(Message):
    """
    A hospital takes no part in a round, so that nobody waits for it.

    `reason` is a :class:`DeclineReason`: its budget does not pay for the round, or its privacy
    ledger lacks entries that a server saw. `detail` says it in words.
    """

    reason: int
    detail: str = field(metadata=_WORDS)


@dataclass(frozen=True)
class LedgerHeads(Message):
    """
    A server acknowledges the newest privacy-ledger head that it durably keeps of hospital `to`.

    `head` is as :meth:`~fdrl_ros.privacy.ledger.chain.Head.to_bytes` writes it, empty if the
    server never saw one. A hospital whose ledger does not contain it knows by this that it was
    restored from an older copy. `path` is the key authority's: it shows which update of the
    hospital is in the policy of that attempt; empty if none is.
    """

    to: str
    head: bytes = field(metadata={'most': HEAD_BYTES})
    path: bytes = field(metadata=_LISTED)


@dataclass(frozen=True)
class Order(Message):
    """
    What an operator orders the server `to` to do; see :mod:`fdrl_ros.federation.protocol.orders`.

    The counter of its envelope is the microsecond since 1970 (UTC) at which it was signed.
    `hospital` is whom to admit or withdraw, `to_round` whose policy to roll back to; else they
    are empty and 0.
    """

    to: str
    action: str
    hospital: str
    to_round: int


@cache
def _kind(name: str) -> bytes:
    """Return how the bytes of a kind of message begin."""
    return encode(f'fdrl_ros/{PROTOCOL_VERSION}/{name}')


KINDS: dict[str, type[Message]] = {kind.__name__: kind for kind in Message.__subclasses__()}
"""All kinds by name."""


def message_from_bytes(data: bytes) -> Message:
    """
    Read what :meth:`Message.to_bytes` wrote; who signed it is for a channel to check.

    :raises MessageError: if it is not a message of this protocol version in its one form.
    """
    reader = Reader(data)
    kind = reader.read(str)
    name = kind.removeprefix(f'fdrl_ros/{PROTOCOL_VERSION}/')
    if name not in KINDS or name == kind:
        raise MessageError('', f'{kind[:60]!r} is no message of protocol {PROTOCOL_VERSION}')
    message: Message = reader.record_of(KINDS[name])
    reader.end()
    return message


def hash_of_hashes(hashes: Iterable[bytes]) -> bytes:
    """Return the SHA-256 over the SHA-256 of each chunk, in order: the hash of an update."""
    return hashlib.sha256(b''.join(hashes)).digest()


def hash_of_sums(sums: Iterable[bytes]) -> bytes:
    """Return the SHA-256 over the summed ciphertexts in order."""
    sha = hashlib.sha256()
    for each in sums:
        sha.update(each)
    return sha.digest()
