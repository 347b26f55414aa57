# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Who is guilty, by what hospitals signed: anybody can check a :class:`Blame`, on any host.

Hospitals sign their round keys, the parcels of shares that they deal, their complaints and what
they reveal. An honest hospital, restored from a backup or not, never signs two things that a proof
here is made of: a parcel that its holder cannot open or that does not fit its commitments, a
complaint about one that is in order, a share that was not in the parcel, shares that restore
another secret than the published one, or false projections of a mask. So no proof names an honest
hospital. Nor does it uncover one: what is shown are parcels and masks between the guilty hospital
and one other, or its own secrets.

What an update decrypts to is known to the key authority alone. Its word on that is signed, but no
proof, and neither is the aggregator's on what it was not sent: hospitals are left out on it before
anything is revealed, so that it uncovers nobody, and nothing is ever revealed a second time on it
(:data:`PROVEN`).
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.crypto.masking.masks import pair_key
from fdrl_ros.crypto.masking.round_secret import RoundSecret
from fdrl_ros.crypto.masking.share_sealing import (
    check_ends,
    check_parcel,
    ForgedParcelError,
    is_committed,
    KeyList,
    open_parcel,
    PARCEL_BYTES,
    SealError,
)
from fdrl_ros.crypto.masking.sharing import Recovery, SHARE_BYTES, ShareError
from fdrl_ros.crypto.masking.sketch import Sketch
from fdrl_ros.errors import CryptoError, MessageError, RoundError
from fdrl_ros.federation.journal.journal import Journal
from fdrl_ros.federation.protocol.attempt import (
    delivery_digest,
    parts,
    read_reveal,
    read_round_key,
    settle_digest,
    setup_digest,
    split,
)
from fdrl_ros.federation.protocol.channel import check_signed
from fdrl_ros.federation.protocol.message import (
    Blame,
    Complaint,
    Fault,
    Message,
    Reveal,
    Shares,
)
from fdrl_ros.federation.protocol.sketches import bound_of, mask_context, read_sketch
from fdrl_ros.federation.protocol.update_codec import UpdateCodec

WORDS: Final[Mapping[Fault, str]] = {
    Fault.PARCEL: 'sealed shares that their holder cannot open',
    Fault.COMPLAINT: 'complained about shares that are in order',
    Fault.REVEAL: 'revealed another share than it was dealt',
    Fault.DEAL: 'dealt shares that restore another secret than it published',
    Fault.UPDATE: 'sent an update that is malformed, wrongly masked or too long',
    Fault.SKETCH: 'signed false projections of a mask',
    Fault.MALFORMED: 'signed malformed projections',
    Fault.SILENT: 'was silent most often in a round that was abandoned',
}
"""Each fault in words: what the guilty hospital did."""


ACCUSERS: Final[Mapping[Fault, str]] = {
    Fault.UPDATE: 'the key authority',
    Fault.MALFORMED: 'the aggregator',
    Fault.SILENT: 'the aggregator',
}
"""Faults that nobody else can check, and whose word they are."""

PROVEN: Final = frozenset(Fault) - ACCUSERS.keys()
"""Faults that anybody can check."""

MOST_PROOF: Final = 2**20
"""Bytes of the largest proof that a journal keeps."""


def note_blame(journal: Journal, blame: Blame, fault: str) -> None:
    """Write a proof that was checked into a journal; without the proof if it is too large."""
    proof = blame.to_bytes()
    round, attempt = blame.id
    kept = proof if len(proof) <= MOST_PROOF else b''
    fields = {'hospital': blame.guilty, 'fault': fault, 'proof': kept}
    journal.append('blame', round=round, attempt=attempt, **fields)


def note_missing_blames(journal: Journal, blames: Collection[Blame]) -> None:
    """Write those of some blames into a journal that are not in it."""
    noted = {
        (each.round, each.fields['hospital'], each.fields['fault'])
        for each in (journal.entries() if blames else ())
        if each.kind == 'blame'
    }
    for blame in blames:
        words = WORDS[Fault(blame.fault)]
        if (blame.envelope.round, blame.guilty, words) not in noted:
            note_blame(journal, blame, words)


def source(fault: Fault) -> str:
    """Say how it is known that a hospital is guilty."""
    return f'{ACCUSERS[fault]} says' if fault in ACCUSERS else 'it is proven'


def check_dealt(
    keys: KeyList, shares: Shares, holder: str, parcel: bytes, path: bytes, roster: Roster
) -> None:
    """
    Check that a parcel for one holder is what its dealer signed along a list of keys.

    :param shares: message of the dealer, with the parcels or without.
    :raises ForgedParcelError: if it is not.
    """
    dealer = shares.sender
    forged = f'parcel of {dealer[:63]!r} for {holder!r}: not signed by its dealer'
    try:
        check_signed(roster, shares, 'hospital')
    except MessageError as error:
        raise ForgedParcelError(f'{forged}: {error}') from error
    if shares.id != (keys.round, keys.attempt) or shares.keys_digest != keys.digest:
        raise ForgedParcelError(f'{forged} along this list of keys')
    check_parcel(keys, dealer, holder, parcel, path, shares.parcels_root)


def with_pairs(keys: KeyList, one: str, other: str, pairs: bytes) -> KeyList:
    """
    Return a list of keys in which only the keys between two members are known.

    :param pairs: that of the one for the other, and that of the other for the one.
    """
    half = len(pairs) // 2
    between = {(one, other): pairs[:half], (other, one): pairs[half:]}
    return replace(keys, keys={}, pairs=between)


def judge_complaint(complaint: Complaint, keys: KeyList, roster: Roster) -> tuple[str, Fault]:
    """
    Return who is guilty by a complaint that its sender signed, and of what: it or the dealer.

    :raises RoundError: if it is about another list of keys, or no members of this one.
    """
    holder, dealer = complaint.sender, complaint.dealer
    known = holder in keys.members and dealer in {*keys.holders(holder)} - {holder}
    if complaint.keys_digest != keys.digest or not known or complaint.shares.sender != dealer:
        raise RoundError(holder, f'complains about {dealer[:40]!r} in another list of keys')
    false = holder, Fault.COMPLAINT
    keys = with_pairs(keys, dealer, holder, complaint.pairs)
    try:
        check_dealt(keys, complaint.shares, holder, complaint.parcel, complaint.path, roster)
        secret = RoundSecret.from_bytes(complaint.secret)
        open_parcel(keys, dealer, holder, complaint.parcel, secret)
    except ForgedParcelError:
        return false  # an honest hospital refuses such a delivery instead
    except SealError:
        return dealer, Fault.PARCEL
    except CryptoError:
        return false
    return false


def wrong_shares(
    reveal: Reveal,
    keys: KeyList,
    members: Collection[str],
    survivors: Collection[str],
    parcels: Mapping[str, bytes],
) -> Iterator[str]:
    """
    Yield the members of whom a holder revealed another share than it was dealt.

    :param parcels: for this holder, by who dealt them, and its own.
    :raises MessageError: if there is not one share for each member.
    """
    for name, share in read_reveal(reveal, keys, set(members)).items():
        kind = 'self_seed' if name in survivors else 'mask_secret'
        if not is_committed(keys, name, reveal.sender, parcels[name], kind, share):
            yield name


def restores(keys: KeyList, dealer: str, kind: str, shares: Mapping[str, bytes]) -> bool:
    """
    Tell whether shares restore the secret behind what their dealer published.

    :param shares: by their holders, as many as the threshold at least.
    :raises ShareError: if they are fewer, or of hospitals that are not in the list.
    """
    recovery = Recovery(keys.threshold, keys.holders(dealer), shares)
    try:
        return keys.fits(dealer, kind, recovery.recover(shares))
    except ShareError:
        return False


def restored(keys: KeyList, dealer: str, shares: Mapping[str, bytes]) -> bytes:
    """
    Put a secret of a member together.

    :param shares: by their holders, as many as the threshold at least.
    :returns: 32 bytes; whether it is the one behind what the member published is for the caller.
    :raises CryptoError: if there are too few shares, or they contradict each other.
    """
    try:
        recovery = Recovery(keys.threshold, keys.holders(dealer), shares)
        return recovery.recover(shares)
    except ShareError as error:
        raise CryptoError(f'a secret of {dealer} cannot be restored: {error}') from error


def check_blame(blame: Blame, roster: Roster, codec: UpdateCodec, terms: bytes) -> Fault:
    """
    Check a proof of guilt, and return of what the hospital is guilty.

    :param blame: as the aggregator signed it.
    :param codec: of the federation, as agreed.
    :param terms: digest of all that was agreed on for the round; under other terms, as with
        another roster, what was signed is not what it would be under these.
    :raises MessageError: if it proves nothing.
    """
    sender, guilty = blame.sender, blame.guilty
    try:
        fault = Fault(blame.fault)
        if ACCUSERS.get(fault) == 'the aggregator':
            check_signed(roster, blame, 'aggregator')
            roster.member(guilty)
            return fault
        if fault in PROVEN and blame.terms_digest != terms:
            raise RoundError(sender, 'shows what was signed under other terms')
        keys = _keys_of(blame, roster)
        found: tuple[str, Fault] | None
        if fault in (Fault.PARCEL, Fault.COMPLAINT):
            found = _by_complaint(blame, keys, roster)
        elif fault is Fault.REVEAL:
            found = _by_reveal(blame, keys, roster)
        elif fault is Fault.UPDATE:
            found = _by_verdict(blame, roster)
        elif fault is Fault.SKETCH:
            found = _by_sketch(blame, keys, roster, codec)
        else:
            found = _by_deal(blame, keys, roster)
    except (CryptoError, KeyError, ValueError) as error:
        raise MessageError(sender, f'proves nothing against {guilty[:40]!r}: {error}') from error
    if found != (guilty, fault):
        raise MessageError(sender, f'proves nothing against {guilty[:40]!r}')
    return fault


def _keys_of(blame: Blame, roster: Roster) -> KeyList:
    graph, published = roster.neighbourhoods, {}
    for each in blame.keys:
        _check_answer(each, blame, roster)
        published[each.sender] = read_round_key(each, roster)
        published[each.sender].check()
    place = roster.federation, *blame.id
    digests = blame.keys_digest, blame.terms_digest
    buckets = roster.buckets_of(blame.id[0])
    keys = KeyList(*place, graph, blame.keyed, *digests, published, buckets=buckets)
    for name in published:
        keys.check_listed(name, blame.keys_path)
    return keys


def _check_answer(message: Message, blame: Blame, roster: Roster) -> None:
    check_signed(roster, message, 'hospital')
    if message.id != blame.id:
        raise RoundError(message.sender, f'signed for attempt {message.id}')


def _by_complaint(blame: Blame, keys: KeyList, roster: Roster) -> tuple[str, Fault]:
    (complaint,) = blame.complaints
    _check_answer(complaint, blame, roster)
    return judge_complaint(complaint, keys, roster)


def _by_reveal(blame: Blame, keys: KeyList, roster: Roster) -> tuple[str, Fault] | None:
    (reveal,) = blame.reveals
    holder, members = reveal.sender, blame.members
    _check_answer(reveal, blame, roster)
    dealers = keys.graph.holders(holder, set(members))
    if tuple(each.sender for each in blame.dealt) != dealers or holder not in members:
        raise RoundError(blame.sender, 'parcels of others than who dealt them to it')
    parcels = {}
    rooms = [keys.rooms[name] for name in dealers]
    for shares, parcel, path in parts(blame, blame.dealt, PARCEL_BYTES, blame.parcels, rooms):
        check_dealt(keys, shares, holder, parcel, path, roster)
        parcels[shares.sender] = parcel
    delivered = b''.join(parcel for name, parcel in parcels.items() if name != holder)
    setup = setup_digest(keys, members)
    told = settle_digest(setup, blame.survivors), delivery_digest(delivered)
    if (reveal.settle_digest, reveal.delivery_digest) != told:
        raise RoundError(blame.sender, 'the shares are for another set, or of other parcels')
    wrong = any(wrong_shares(reveal, keys, members, blame.survivors, parcels))
    return (holder, Fault.REVEAL) if wrong else None


def _by_verdict(blame: Blame, roster: Roster) -> tuple[str, Fault] | None:
    (verdict,) = blame.verdicts
    check_signed(roster, verdict, 'key_authority')
    if verdict.id != blame.id:
        raise RoundError(verdict.sender, f'signed for attempt {verdict.id}')
    return (blame.guilty, Fault.UPDATE) if blame.guilty in verdict.refused else None


def _by_sketch(
    blame: Blame, keys: KeyList, roster: Roster, codec: UpdateCodec
) -> tuple[str, Fault] | None:
    (sketch,) = blame.sketches
    _check_answer(sketch, blame, roster)
    guilty, members = sketch.sender, blame.members
    setup = setup_digest(keys, members)
    if sketch.setup_digest != setup:
        raise RoundError(guilty, 'signed projections for other keys or members')
    values = read_sketch(sketch, keys, members, codec)
    if len(blame.ends) == 2:
        (other,) = {*blame.ends} - {guilty}
        keys = with_pairs(keys, guilty, other, blame.pairs)
        rooms = [len(keys.holders(guilty))]
        found = parts(blame, blame.dealt, PARCEL_BYTES, blame.parcels, rooms)
        ((dealt, parcel, path),) = found
        if (dealt.sender, dealt.parcels_root) != (guilty, sketch.parcels_root):
            raise RoundError(blame.sender, 'shows other shares than the projections name')
        check_dealt(keys, dealt, other, parcel, path, roster)
        check_ends(keys, guilty, other, parcel)
    key, other = key_shown(keys, members, guilty, blame.ends, blame.secret)
    (true,) = Sketch(sketch.nonce, setup, bound_of(codec)).of_masks([key])
    return (guilty, Fault.SKETCH) if values[other] != true else None


def key_shown(
    keys: KeyList, members: Collection[str], guilty: str, ends: tuple[str, ...], secret: bytes
) -> tuple[bytes, str]:
    """
    Return the key of the mask that a secret shows, and the member with whom it is.

    :param guilty: one end of the mask.
    :param ends: of whom the secret is, and if it is for one peer, the peer.
    :raises CryptoError: if it is not the one behind what its owner published, or they are no
        peers.
    """
    if ends == (guilty,):
        if not keys.fits(guilty, 'self_seed', secret):
            raise CryptoError(f'the self seed of {guilty!r} does not fit what it published')
        return secret, guilty
    owner, peer = ends
    if guilty not in ends or not {owner, peer} <= {*keys.masking(guilty, set(members))}:
        raise CryptoError(f'a mask of {ends}, not of {guilty!r}')
    ours, theirs = RoundSecret.from_bytes(secret), keys.mask_key(peer, owner)
    if ours.public != keys.mask_key(owner, peer):
        raise CryptoError(f'the secret of {owner!r} for {peer!r} is not that of its key')
    key = pair_key(mask_context(keys, members), ours, theirs, mine=owner, theirs=peer)
    return key, peer if guilty == owner else owner


def _by_deal(blame: Blame, keys: KeyList, roster: Roster) -> tuple[str, Fault] | None:
    dealer = blame.guilty
    kind = 'self_seed' if dealer in blame.survivors else 'mask_secret'
    shares = split(blame.shares, SHARE_BYTES, blame.ends, blame.sender, 'shares')
    (dealt,) = blame.dealt
    if dealt.sender != dealer or dealer not in keys.keys:
        return None
    count, room = len(blame.ends), len(keys.holders(dealer))
    each_dealt = parts(blame, [dealt] * count, PARCEL_BYTES, blame.parcels, [room] * count)
    for holder, (_, parcel, path) in zip(blame.ends, each_dealt, strict=True):
        check_dealt(keys, dealt, holder, parcel, path, roster)
        if not is_committed(keys, dealer, holder, parcel, kind, shares[holder]):
            raise RoundError(blame.sender, f'the share of {holder} is not what was dealt')
    return None if restores(keys, dealer, kind, shares) else (dealer, Fault.DEAL)
