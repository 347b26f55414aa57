# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The key authority's side of a round, step by step: it unmasks one sum a round, nothing else.

1. Check the aggregator's request. 2. Request the updates as their hospitals signed them, decrypt
each alone, which its masks hide, to see whether an honest hospital made it, and add them itself.
3. Decrypt that very sum once, and take off the masks. 4. Validate the new policy on public
patients. 5. Release it, or the older one. An operator may roll back instead.

The aggregator asks twice: to inspect the updates before anybody signs for their sum, which ends
with step 2, and to decrypt that sum.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
import hashlib
from itertools import chain
from typing import Any

from fdrl_ros.crypto.he.encryption import SecretContext
from fdrl_ros.crypto.he.schemes import EncryptionSettings
from fdrl_ros.crypto.masking.buckets import within
from fdrl_ros.crypto.masking.masks import leftover_mask
from fdrl_ros.crypto.masking.share_sealing import KeyList
from fdrl_ros.crypto.masking.sketch import Sketch
from fdrl_ros.errors import (
    CryptoError,
    FdrlError,
    LedgerHeadError,
    MessageError,
    PolicyError,
    RoundError,
)
from fdrl_ros.federation.key_authority.robust import check_rule, combine_some
from fdrl_ros.federation.key_authority.server_optimizer import ServerOptimizer
from fdrl_ros.federation.key_authority.server_step import (
    fed_avg,
    RoundSum,
    ServerStep,
    Weights,
)
from fdrl_ros.federation.key_authority.state import KeyAuthorityState, Released, Validation
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.attempt import (
    check_hospitals,
    check_whole,
    key_list,
    read_reveal,
    settle_digest,
    setup_digest,
    split,
)
from fdrl_ros.federation.protocol.blame import restored
from fdrl_ros.federation.protocol.channel import Channel, check_signed, Takes
from fdrl_ros.federation.protocol.chunk_requests import ChunkRange, ChunkRequests
from fdrl_ros.federation.protocol.ledger_watch import LedgerWatch
from fdrl_ros.federation.protocol.message import Message, shortened
from fdrl_ros.federation.protocol.orders import note_order, take_order, unnoted
from fdrl_ros.federation.protocol.party import Effects, Job, Report, Stopped, worth_logging
from fdrl_ros.federation.protocol.request_parts import RequestParts, same_request
from fdrl_ros.federation.protocol.sketches import (
    disputed,
    false_sketches,
    read_sketch,
    too_long,
)
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.federation.protocol.update_codec import Terms, UpdateCodec
from fdrl_ros.policy import encode_weights
from fdrl_ros.policy.layout import TensorLayout
from fdrl_ros.policy.policy import check_weights
from fdrl_ros.privacy.ledger.chain import DIGEST
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class KeyAuthoritySettings:
    """
    How policies are made and released.

    :param encryption: how updates are quantised and encrypted.
    :param validate: test of a new policy on public patients.
    :param personal: layers that each hospital keeps to itself: here only the server's step
        changes them.
    :param step: the server's step.
    :param combine: how averages of buckets become one, a name of
        :data:`~fdrl_ros.federation.key_authority.robust.RULES`.
    :param test_buckets: whether the test leaves out buckets whose average alone fails it.
    """

    encryption: EncryptionSettings
    validate: Callable[[Weights], Validation]
    personal: tuple[str, ...] = ()
    step: ServerStep = fed_avg
    combine: str = 'mean'
    test_buckets: bool = False

    def __post_init__(self) -> None:
        """Refuse an unknown rule before anybody trains."""
        check_rule(self.combine)


@dataclass(frozen=True)
class CheckedRequest:
    """
    A request that may be granted, once the updates that it names have been seen.

    :param keys: of all who published keys.
    :param members: who masked with each other, in the order of the names.
    :param setup: digest of keys and members.
    :param hashes: of each survivor's update, 32 bytes.
    :param shares: revealed ones of each member, by their holders.
    """

    request: protocol.DecryptRequest
    keys: KeyList
    members: tuple[str, ...]
    setup: bytes
    hashes: dict[str, bytes]
    shares: dict[str, dict[str, bytes]]


def check_request(
    request: protocol.DecryptRequest, channel: Channel, terms: bytes
) -> CheckedRequest:
    """
    Refuse a request that does not prove that its sum may be decrypted.

    :param terms: digest of what the round rests on.
    :raises FdrlError: if so; nothing was decrypted.
    """
    sender, roster = request.sender, channel.roster

    def check_each(messages: tuple[Message, ...], what: str) -> None:
        names = [message.sender for message in messages]
        if len(set(names)) != len(names):
            raise RoundError(sender, f'two {what} of one hospital')
        for message in messages:
            check_signed(roster, message, 'hospital')
            if message.id != request.id:
                raise RoundError(message.sender, f'signed for attempt {message.id}')

    check_each(request.keys, 'round keys')
    keys = key_list(roster, request.keys, request.id, terms)
    members = tuple(sorted(request.members))
    check_hospitals(members, keys.members, roster.quorum, sender)
    check_each(request.settles, 'signatures on the survivors')
    graph, among = roster.neighbourhoods, set(members)
    if not is_inspection(request) and len(request.settles) < graph.agreeing:
        raise RoundError(sender, f'{len(request.settles)} signatures on the survivors')
    survivors = request.survivors
    check_hospitals(survivors, members, roster.quorum, sender)
    check_whole(members, keys.buckets, sender)
    if not is_inspection(request):
        check_whole(survivors, keys.buckets, sender)
    setup = setup_digest(keys, members)
    told = settle_digest(setup, survivors)
    check_each(request.reveals, 'reveals')
    signed: tuple[protocol.Settle | protocol.Reveal, ...] = (*request.settles, *request.reveals)
    for each in signed:
        name = each.sender
        if name not in survivors or each.settle_digest != told:
            raise RoundError(name, 'signed for other survivors or another set-up')
    for settle in request.settles:
        if settle.sender not in graph.witnesses:
            raise RoundError(settle.sender, 'signed the survivors, and is no witness')
    shares: dict[str, dict[str, bytes]] = {name: {} for name in members}
    for reveal in request.reveals:
        for name, share in read_reveal(reveal, keys, among).items():
            shares[name][reveal.sender] = share
    check_each(request.sketches, 'sketches')
    hashes = split(request.update_hashes, DIGEST, survivors, sender, 'update hashes')
    for settle in request.settles:
        if settle.update_hash != hashes[settle.sender]:
            raise RoundError(settle.sender, 'signed another update')
    return CheckedRequest(request, keys, members, setup, hashes, shares)


def is_inspection(request: protocol.DecryptRequest) -> bool:
    """Tell whether a request asks to look at updates, not to decrypt their sum."""
    return not (request.settles or request.reveals or request.sum_hash)


@dataclass
class Inspected:
    """
    What was found of each update alone.

    :param refused: hospitals whose update no honest hospital makes.
    :param unaccounted: hospitals whose privacy ledger lacks what was seen of it, and what.
    :param projected: projections of each masked update, k integers modulo the plaintext modulus.
    """

    refused: set[str] = field(default_factory=set)
    unaccounted: dict[str, str] = field(default_factory=dict)
    projected: dict[str, NDArray[np.int64]] = field(default_factory=dict)


class VerifiedSum:
    """
    Checks and adds the updates that a request is about, in the order in which it asks for them.

    Of each survivor the first chunk, then of each the second, and so on. Each is decrypted alone,
    if the scheme tells honest ciphertexts from others.
    """

    def __init__(
        self,
        checked: CheckedRequest,
        channel: Channel,
        secret: SecretContext,
        sketch: Sketch | None,
        base_digest: bytes,
        watch: Callable[[protocol.MaskedUpdate], None],
    ) -> None:
        """
        Begin with nothing.

        :param base_digest: of the policy that the updates have to start from.
        :param watch: refuses updates whose privacy ledger is not in order.
        """
        self.checked = checked
        self.sums: list[list[bytes]] = []
        """Of each chunk the sum of each bucket."""
        survivors = checked.request.survivors
        self.buckets = within(checked.keys.buckets, survivors)
        """Survivors who are summed together."""
        places = {name: place for place, name in enumerate(survivors)}
        self._rows = [[places[name] for name in bucket] for bucket in self.buckets]
        self.secure = True
        """Whether all hospitals signed that their noise is."""
        self.found = Inspected()
        """What was found of each update."""
        self.sketch = sketch
        """Projections of the updates, if there is a bound on them."""
        self._roster = channel.roster
        self._secret = secret
        self._public = secret.public
        self._base_digest = base_digest
        self._watch = watch
        self._column: list[bytes] = []
        self._hashes = [hashlib.sha256() for _ in checked.request.survivors]
        self._pull = ChunkRequests()

    @property
    def is_whole(self) -> bool:
        """Whether every chunk was added."""
        return len(self.sums) == self._public.scheme.ciphertexts

    def go_on(self, checked: CheckedRequest) -> bool:
        """Take another request for the very same updates, if it is one; what is here counts."""
        old, new = self.checked, checked
        same = (old.setup, old.request.survivors, old.request.update_hashes)
        if same != (new.setup, new.request.survivors, new.request.update_hashes):
            return False
        self.checked = checked
        self._pull.hurry()
        return True

    def wanted(self, now: float) -> list[ChunkRange]:
        """Return what to ask the aggregator for."""
        every = self._public.scheme.ciphertexts * len(self.checked.request.survivors)
        return self._pull.next(range(self._here), every, now)

    def take(self, relay: protocol.Relay) -> None:
        """
        Add chunks, if they are the next ones.

        :raises FdrlError: if one is not what the request and its hospital say.
        """
        if relay.first != self._here or self.is_whole:
            return  # it was asked for twice
        for update in relay.updates:
            self._add(update)
        request = self.checked.request
        hashes = b''.join(each.digest() for each in self._hashes)
        if self.is_whole and hashes != request.update_hashes:
            raise MessageError(request.sender, 'other updates than the request names')

    @property
    def _here(self) -> int:
        """Number of chunks that were taken."""
        return len(self.sums) * len(self.checked.request.survivors) + len(self._column)

    def _add(self, update: protocol.MaskedUpdate) -> None:
        checked, place = self.checked, len(self._column)
        name, sender = checked.request.survivors[place], checked.request.sender
        at = (update.sender, update.chunk, update.chunks)
        if at != (name, len(self.sums), self._public.scheme.ciphertexts):
            raise RoundError(sender, f'chunk {at[1]} of {at[2]} of {at[0]} is out of place')
        check_signed(self._roster, update, 'hospital')
        if update.id != checked.request.id:
            raise RoundError(name, f'signed for attempt {update.id}')
        if (update.base_digest, update.setup_digest) != (self._base_digest, checked.setup):
            raise RoundError(name, 'trained from another policy, or masked for other members')
        try:
            self._watch(update)
        except LedgerHeadError as error:
            self.found.unaccounted[name] = error.detail
        self.secure &= update.secure
        if self._public.scheme.inspected:
            self._inspect(name, update)
        self._hashes[place].update(hashlib.sha256(update.ciphertext).digest())
        self._column.append(update.ciphertext)
        if len(self._column) == len(checked.request.survivors):
            self.sums.append(
                [self._public.add(self._column[place] for place in row) for row in self._rows]
            )
            self._column.clear()

    def _inspect(self, name: str, update: protocol.MaskedUpdate) -> None:
        """Decrypt a chunk alone, and add up its projections."""
        try:
            slots = self._secret.inspect(update.ciphertext)
        except CryptoError:  # in which way it is malformed would reveal the secret key
            self.found.refused.add(name)
            return
        if self.sketch is not None:
            part = self.sketch.of_slots(update.chunk, slots)
            total = self.found.projected.get(name, 0) + part
            self.found.projected[name] = total % self._public.scheme.plain_modulus

    def check_sum(self) -> None:
        """
        Refuse to decrypt what is not the sum that was asked for.

        :raises MessageError: if it is not.
        :raises RoundError: if an update in it was refused.
        """
        request = self.checked.request
        if names := sorted({*self.found.refused, *self.found.unaccounted}):
            why = '; '.join(self.found.unaccounted.values())
            raise RoundError(request.sender, f'the sum has updates of {", ".join(names)}: {why}')
        if protocol.hash_of_sums(chain.from_iterable(self.sums)) != request.sum_hash:
            raise MessageError(request.sender, 'its sum is not the sum of the updates')


def restored_secrets(checked: CheckedRequest) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """
    Put together the secrets that masks are left of: of a sum, of whom dropped out.

    :returns: self seeds of the survivors, mask secrets of the other members.
    :raises CryptoError: if there are too few shares, or they contradict each other.
    """
    shares, keys = checked.shares, checked.keys
    survivors = checked.request.survivors
    seeds = {name: restored(keys, name, shares[name]) for name in survivors}
    dropped = [name for name in checked.members if name not in seeds]
    return seeds, {name: restored(keys, name, shares[name]) for name in dropped}


def leftover_masks(
    checked: CheckedRequest,
    codec: UpdateCodec,
    seeds: dict[str, bytes],
    mask_secrets: dict[str, bytes],
    bucket: Collection[str],
) -> NDArray[np.int64]:
    """
    Return what masks are left in a sum: self masks, and pair masks with who dropped out.

    :param bucket: the survivors who are summed.
    :returns: integers modulo the plaintext modulus, one for each slot of the update.
    :raises WrongSecretError: if a secret is another one than a member published.
    """
    every = within(checked.keys.buckets, checked.members)
    masked = next(each for each in every if not set(bucket).isdisjoint(each))
    return leftover_mask(
        checked.keys,
        checked.members,
        checked.setup,
        bucket=masked,
        self_seeds={name: seeds[name] for name in bucket},
        mask_secrets={name: mask_secrets[name] for name in masked if name not in seeds},
        count=codec.slots,
        modulus=codec.scheme.plain_modulus,
    )


class KeyAuthority:
    """
    Holds the secret key of the homomorphic encryption.

    It decrypts at most one sum per round, over all attempts: one that it added itself from
    ciphertexts which their hospitals signed, for a survivor set that enough survivors signed and
    revealed shares for. The masks come off that sum alone, so no decryption shows the update of
    one hospital.
    """

    takes: Takes = {
        protocol.DecryptRequest: ('aggregator',),
        protocol.Order: ('operator',),
        protocol.Relay: ('aggregator',),
    }

    def __init__(
        self,
        channel: Channel,
        store: Store,
        layout: TensorLayout,
        start: Weights,
        secret: SecretContext,
        settings: KeyAuthoritySettings,
    ) -> None:
        """
        Go on from the state in `store`, or begin with the public starting policy.

        :param start: weights of the public starting policy, shape (n_parameters,).
        :param secret: of the scheme that roster, network and settings ask for.
        """
        self.channel = channel
        self._store = store
        self._settings = settings
        self._shared = layout.shared(settings.personal)
        encryption, members = settings.encryption, len(channel.roster.hospitals)
        self._codec = UpdateCodec.agree(
            self._shared.size,
            members,
            encryption.bits,
            encryption.limit,
            encryption.scheme,
            norm=encryption.norm,
            projections=encryption.projections,
        )
        if secret.scheme != self._codec.scheme:
            raise CryptoError('the secret key is of another scheme than settings and roster ask')
        if channel.roster.buckets and not secret.scheme.inspected:
            raise CryptoError(f'buckets with scheme {self._codec.kind}: only bfv sums them alone')
        self._secret = secret
        self._public = secret.public
        self._announced: dict[str, Any] = {
            'context': secret.public_bytes(),
            'n_parameters': self._codec.n_parameters,
            'personal': settings.personal,
            'members': self._codec.quantisation.members,
            'bits': encryption.bits,
            'limit': encryption.limit,
            'norm': encryption.norm,
            'projections': encryption.projections,
        }
        nobody = protocol.Envelope('', 0, 0, '', 0)
        announced = protocol.EncryptionKey(nobody, **self._announced)
        self._terms = Terms.of(self._codec, self._public, announced)
        self._watch = LedgerWatch(store)
        self.state = KeyAuthorityState(store, start)
        """What the key authority keeps of the rounds."""
        self.state.recover(channel)
        if isinstance(settings.step, ServerOptimizer):  # before anybody trains in vain
            settings.step.check(self.state.step_state, self._shared.size)
        self._busy = False
        self._refused = (0, '')
        self._refusals = 0
        self._summing: VerifiedSum | None = None
        self._parts = RequestParts()

    @property
    def round(self) -> int:
        """The newest round whose policy was released."""
        return self.state.record.round

    def start(self, now: float) -> Effects:
        """Announce the encryption key and the newest policy."""
        key = self.channel.send(protocol.EncryptionKey, (0, 0), **self._announced)
        note_order(self.channel, self._store)
        if (self.channel.journal.newest_round('release') or 0) < self.round:
            before = self.state.policy(self.round - 1)
            assert before is not None
            self._note_release(before)  # killed between the two
        self.channel.journal.append('key', digest=bytes.fromhex(self._public.digest))
        begun = key + self._acknowledge() + self._publish_policy()
        if (summed := self.state.summed()) is None:
            return begun
        self._busy = True
        validate = Job('validate', lambda report, stopped: self._validated(summed))
        return begun + Effects(jobs=(validate,))

    def tick(self, now: float) -> Effects:
        """Ask for updates that did not come."""
        return self._pull(now)

    def handle(self, message: Message, now: float) -> Effects:
        """Take a request to decrypt, updates or an order; see :class:`Party`."""
        if isinstance(message, protocol.Order):
            obey = self._forgive if message.action == 'forgive' else self._roll_back
            return obey(message)
        self.channel.check(message, self.takes, 'the key authority')
        if isinstance(message, protocol.DecryptRequest):
            return self._take_request(message, now)
        assert isinstance(message, protocol.Relay)
        return self._take_relay(message, now)

    def finish(self, job: Job, result: object, now: float) -> Effects:
        """Publish the policy, or the reason why there is none."""
        self._busy = False
        if isinstance(result, tuple):
            request, error = result
            return self._refuse(request, str(error))
        if isinstance(result, Exception):
            raise result
        assert isinstance(result, Released)
        return self._release(result)

    # 1. Check the aggregator's request.

    def _take_request(self, message: protocol.DecryptRequest, now: float) -> Effects:
        if message.envelope.round == self.round:
            # The answer to an earlier request was lost. There is no second decryption.
            return self._publish_policy()
        if self._busy:
            return Effects()  # the answer is on its way
        try:
            if message.envelope.round != self.round + 1:
                older = (
                    ': is this state an older copy?' if message.envelope.round > self.round else ''
                )
                raise RoundError(message.sender, f'the next round is {self.round + 1}{older}')
            self.channel.check_roster()
            base = self.state.released.digest
            summing = self._summing
            if summing is not None and same_request(message, summing.checked.request):
                checked: CheckedRequest | None = summing.checked  # all its parts are here
                message = summing.checked.request
            else:
                whole = self._parts.take(message, self.channel.roster)
                if whole is None:
                    return Effects()
                if isinstance(whole, int):
                    part = {'to': 'aggregator', 'first': 0, 'count': 0, 'part': whole}
                    return self.channel.send(protocol.Wanted, message.id, **part)
                message, terms = whole, self._terms.digest(base, self.channel.roster)
                proves = bool(message.survivors)
                checked = check_request(message, self.channel, terms) if proves else None
            refused = self.state.refused & set(message.survivors)
            if refused and not is_inspection(message):
                raise RoundError(message.sender, f'the sum has {", ".join(sorted(refused))}')
        except FdrlError as error:
            return self._refuse(message, str(error))
        accepted = self._verdict(message)
        if checked is None:
            why = 'the round was abandoned'
            return accepted + self._begin(lambda: self._rolled_back(message, why), message)
        if self._summing is None or not self._summing.go_on(checked):
            watch, sketch = self._watch.take, self._sketch(checked)
            self._summing = VerifiedSum(checked, self.channel, self._secret, sketch, base, watch)
        if self._summing.is_whole and is_inspection(message):
            return self._inspected(self._summing)
        return accepted + self._pull(now)

    def _sketch(self, checked: CheckedRequest) -> Sketch | None:
        """Return the projections of these updates, drawn when they were named first."""
        if self._codec.bound is None:
            return None
        nonce = self.state.nonce(checked.request.id, checked.hashes)
        return Sketch(nonce, checked.setup, self._codec.bound)

    def _too_long(self, summing: VerifiedSum, sketch: Sketch) -> list[str]:
        """
        Return the hospitals whose update is longer than any honest one, by what they signed.

        :raises RoundError: if not all signed, or for other projections, or two contradict each
            other.
        """
        checked, request = summing.checked, summing.checked.request
        signed, sender = {each.sender: each for each in request.sketches}, request.sender
        asked = (checked.setup, sketch.nonce)
        if set(signed) != set(request.survivors) or any(
            (each.setup_digest, each.nonce) != asked for each in signed.values()
        ):
            raise RoundError(sender, 'not all signed the projections that were asked for')
        members, codec = checked.members, self._codec
        keys = checked.keys
        values = {name: read_sketch(each, keys, members, codec) for name, each in signed.items()}
        for one, other in disputed(values):
            raise RoundError(sender, f'{one} and {other} signed different projections')
        projected = {name: row.tolist() for name, row in summing.found.projected.items()}
        sent = {name: values[name] for name in projected}  # what was refused has no projections
        return too_long(sketch, projected, sent)

    def _verdict(
        self, request: protocol.DecryptRequest, reason: str = '', **fields: object
    ) -> Effects:
        none: dict[str, object] = {'refused': (), 'unaccounted': (), 'nonce': b''}
        found = none | {'accepted': not reason, 'inspected': False, 'bounded': False} | fields
        return self.channel.send(protocol.Verdict, request.id, reason=reason, **found)

    def _inspected(self, summing: VerifiedSum) -> Effects:
        """Name whose updates no honest hospital makes, and take none of them ever again."""
        request, effects = summing.checked.request, self._refuse_malformed(summing)
        found, sketch = summing.found, summing.sketch
        if request.sketches and sketch is not None:
            try:
                effects += self._refuse_updates(self._too_long(summing, sketch))
            except FdrlError as error:
                return self._refuse(request, str(error))
        refused = tuple(sorted(self.state.refused & set(request.survivors)))
        notes = tuple(f'{name}: {why}' for name, why in sorted(found.unaccounted.items()))
        verdict = self._verdict(
            request,
            inspected=True,
            bounded=bool(request.sketches),
            nonce=sketch.nonce if sketch else b'',
            refused=refused,
            unaccounted=tuple(sorted(found.unaccounted)),
        )
        return verdict + effects + Effects(notes=notes)

    def _refuse_malformed(self, summing: VerifiedSum) -> Effects:
        """Take no more updates of whose was malformed, before anybody is told that it was."""
        return self._refuse_updates(summing.found.refused)

    def _refuse_updates(self, names: Collection[str]) -> Effects:
        new = sorted(set(names) - self.state.refused)
        if not new:
            return Effects()
        self.state.refuse(new)
        told = f'takes no updates of {", ".join(new)} until an operator forgives'
        return Effects(notes=(told,))

    def _refuse(self, request: protocol.DecryptRequest, reason: str) -> Effects:
        round, attempt = request.id
        verdict = self._verdict(request, reason)
        if (round, reason) == self._refused:
            return verdict
        self._refused = (round, reason)
        self._refusals += 1
        if not worth_logging(self._refusals):  # words that vary must not fill the disk either
            return verdict
        self.channel.journal.append('refuse', round=round, attempt=attempt, reason=reason)
        return verdict + Effects(notes=(f'refused to decrypt round {round}: {reason}',))

    # 2. Request the updates as their hospitals signed them, and add them.

    def _pull(self, now: float) -> Effects:
        """Ask the aggregator for more of the updates, or decrypt when all are here."""
        summing = self._summing
        if summing is None or self._busy:
            return Effects()
        request = summing.checked.request
        if summing.is_whole and is_inspection(request):
            return Effects()
        if summing.is_whole:
            self._summing = None
            # Nobody asked to inspect these, if one is malformed: that would be a free guess.
            effects = self._refuse_malformed(summing)
            return effects + self._begin(lambda: self._decrypt(summing), request)
        pulled = Effects()
        for first, count in summing.wanted(now):
            chunks = {'to': 'aggregator', 'first': first, 'count': count}
            pulled += self.channel.send(protocol.Wanted, request.id, **chunks)
        return pulled

    def _take_relay(self, message: protocol.Relay, now: float) -> Effects:
        summing = self._summing
        if summing is None or message.id != summing.checked.request.id:
            raise RoundError(message.sender, f'updates of {message.id} that were not asked for')
        try:
            summing.take(message)
        except FdrlError as error:
            self._summing = None
            return self._refuse(summing.checked.request, str(error))
        if summing.is_whole and is_inspection(summing.checked.request):
            return self._inspected(summing)
        return self._pull(now)

    # 3. Decrypt that sum once, and take off the masks.

    def _begin(self, work: Callable[[], Released], request: protocol.DecryptRequest) -> Effects:
        """Do on the worker what ends the round, unless it is refused."""
        self._busy = True

        def decrypt(
            report: Report, stopped: Stopped
        ) -> Released | tuple[protocol.DecryptRequest, FdrlError]:
            try:
                released = work()
                _ = released.digest
                return released
            except FdrlError as error:
                # Once the sum is kept, a refusal would lose it: a restart validates it again.
                if self.state.summed() is not None:
                    raise
                return request, error

        return Effects(jobs=(Job('decrypt', decrypt),))

    def _decrypt(self, summing: VerifiedSum) -> Released:
        """
        Take off the masks, decrypt once, validate.

        :raises FdrlError: if the request is refused; a later one may bring what it lacked.
        """
        summing.check_sum()
        checked, codec, roster = summing.checked, self._codec, self.channel.roster
        request, survivors = checked.request, checked.request.survivors
        round, attempt = request.id
        secrets = restored_secrets(checked)
        leftovers = [
            leftover_masks(checked, codec, *secrets, bucket) for bucket in summing.buckets
        ]
        if sketch := summing.sketch:
            if long := self._too_long(summing, sketch):
                raise RoundError(request.sender, f'the updates of {", ".join(long)} are too long')
            self._check_sketches(checked, *secrets, sketch)
        # One decryption per round, durably decided before it happens: were this process killed
        # here, it would decrypt the very same sum again, and no other.
        digest = self._public.digest
        if not self.state.choose_sum(round, request.sum_hash, digest, codec.scheme.most_rounds):
            return self._rolled_back(request, 'another sum of this round was begun')
        journal = self.channel.journal
        if (journal.newest_round('decrypt') or 0) < round:
            journal.append('decrypt', round=round, attempt=attempt, sum=request.sum_hash)
        before = self.state.released.weights
        buckets, sums = summing.buckets, zip(*summing.sums, strict=True)
        sizes = [[roster.member(name).size for name in bucket] for bucket in buckets]
        found = [self._average(round, *each) for each in zip(sums, leftovers, sizes, strict=True)]
        left_out = [
            f'{why}: {", ".join(bucket)}'
            for bucket, why in zip(buckets, found, strict=True)
            if isinstance(why, str)
        ]
        told = f'left out {len(left_out)} of {len(buckets)} sums: {"; ".join(left_out)}'
        averages = [None if isinstance(each, str) else each for each in found]
        average = combine_some(self._settings.combine, averages, sizes)
        if average is None:
            return self._rolled_back(request, shortened(told))
        given = RoundSum(round, before, self._shared, average, self.state.step_state)
        try:
            stepped = self._settings.step(given)
            check_weights(stepped.weights, before.size)
        except PolicyError as error:
            return self._rolled_back(request, f'the server step made no policy: {error}')
        hashes = b''.join(checked.hashes[name] for name in survivors)
        made = stepped.weights
        declared = tuple(roster.member(name).size for name in survivors)
        why = told if left_out else ''
        summed = Released(round, attempt, made, survivors, hashes, False, why, declared)
        self.state.keep_summed(summed, summing.secure, stepped.state)
        return self._validated(summed)

    def _average(
        self,
        round: int,
        sums: tuple[bytes, ...],
        leftover: NDArray[np.int64],
        sizes: list[int],
    ) -> NDArray[np.float64] | str:
        """
        Return the average of the updates in one sum, or why it is left out.

        One hospital can move its sum out of range: that costs its bucket the round, not all.

        :param sums: of each chunk.
        :param sizes: declared n_i of each summed hospital.
        """
        codec, released = self._codec, self.state.released
        try:
            slots = codec.unmask(np.stack(list(map(self._secret.decrypt, sums))), leftover)
            average = codec.average(slots, sizes, self.channel.roster.n_max)
        except CryptoError as error:
            return f'the sum is not one of honest updates ({error})'
        if self._settings.test_buckets and self.channel.roster.buckets:
            given = RoundSum(round, released.weights, self._shared, average)
            if not self._settings.validate(fed_avg(given).weights).passed:
                return 'fails on public patients'
        return average

    def _check_sketches(
        self,
        checked: CheckedRequest,
        seeds: dict[str, bytes],
        mask_secrets: dict[str, bytes],
        sketch: Sketch,
    ) -> None:
        """
        Check what survivors alone signed of their masks, now that those are known.

        :raises RoundError: if one lied.
        """
        request, keys, members = checked.request, checked.keys, checked.members
        lies = false_sketches(request.sketches, keys, members, seeds, mask_secrets, sketch)
        if names := [lie.guilty for lie in lies]:
            raise RoundError(request.sender, f'{", ".join(names)} signed false projections')

    # 4. Validate the new policy on public patients.

    def _validated(self, summed: Released) -> Released:
        """Return the summed policy if it passes the test, else the older weights."""
        validation = self._settings.validate(summed.weights)
        return replace(
            summed,
            weights=summed.weights if validation.passed else self.state.released.weights,
            rolled_back=not validation.passed,
            reason=shortened('; '.join(filter(None, (validation.reason, summed.reason)))),
        )

    def _rolled_back(self, request: protocol.DecryptRequest, reason: str) -> Released:
        """End the round with the older weights."""
        round, attempt = request.id
        return Released(round, attempt, self.state.released.weights, (), b'', True, reason)

    # 5. Release the policy of the round.

    def _release(self, released: Released, used: dict[str, bytes] | None = None) -> Effects:
        """Keep and publish the effects of a round, in one step with the order that it obeys."""
        before = self.state.released
        self.state.release(released, used or {})
        self._summing, self._parts = None, RequestParts()
        note_order(self.channel, self._store)
        self._note_release(before)
        did = 'rolled back' if released.rolled_back else 'released the policy of'
        note = f'{did} round {released.round}: {released.reason}'
        # First the heads: hospitals release their own policies on acknowledged ones alone.
        return self._acknowledge() + self._publish_policy() + Effects(notes=(note,))

    def _acknowledge(self) -> Effects:
        released = self.state.released
        _, paths = released.tree
        return self._watch.acknowledge(self.channel, (released.round, released.attempt), paths)

    def _publish_policy(self) -> Effects:
        released = self.state.released
        return self.channel.send(
            protocol.GlobalPolicy,
            (released.round, released.attempt),
            weights=encode_weights(released.weights),
            digest=released.digest,
            contributors=released.contributors,
            updates_root=released.tree[0],
            rolled_back=released.rolled_back,
            secure=self.state.secure,
            reason=released.reason,
        )

    def _note_release(self, before: Released) -> None:
        """Write into the journal whose updates made the newest policy, after which one."""
        released = self.state.released
        names, data = released.contributors, released.update_hashes
        updates = split(data, DIGEST, names, self.channel.name, 'update hashes')
        contributors = {
            name: {'size': size, 'update': updates[name], 'ledger': self._watch.head(name)}
            for name, size in zip(names, released.sizes, strict=True)
        }
        self.channel.journal.append(
            'release',
            round=released.round,
            attempt=released.attempt,
            contributors=contributors,
            before=before.digest,
            policy=released.digest,
            rolled_back=released.rolled_back,
            reason=released.reason,
        )

    # What operators order.

    def _forgive(self, order: protocol.Order) -> Effects:
        """
        Take updates of a hospital again that had sent a malformed one.

        :raises RoundError: if its updates are not refused.
        """
        used = take_order(order, self.channel, self._store)
        if order.hospital not in self.state.refused:
            self._store.replace((), used)
            raise RoundError(order.sender, f'no update of {order.hospital[:80]!r} was refused')
        used |= unnoted(order, self.channel, (self.round, 0))
        self._store.replace((), used | self.state.forgiving(order.hospital))
        note_order(self.channel, self._store)
        return Effects(notes=(f'{order.sender} forgave {order.hospital}',))

    def _roll_back(self, order: protocol.Order) -> Effects:
        """
        End the present round with the weights of an older one, signed anew.

        :raises RoundError: if its policy is not there, or a sum is being decrypted.
        """
        used = take_order(order, self.channel, self._store)
        operator, older = order.sender, order.to_round
        policy = self.state.policy(older)
        if self._busy or policy is None or older >= self.round:
            self._store.replace((), used)
            why = 'a sum is being decrypted: order again after this round'
            raise RoundError(
                operator, why if self._busy else f'there is no older policy of round {older}'
            )
        round = self.round + 1
        used |= unnoted(order, self.channel, (round, 0), f'roll back to round {older}')
        reason = f'rolled back to the policy of round {older} by {operator}'
        return self._release(Released(round, 0, policy.weights, (), b'', True, reason), used)
