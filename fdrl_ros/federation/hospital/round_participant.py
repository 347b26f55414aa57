# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
One hospital's part in one attempt: keys, shares, masks, a signature, a reveal (FDRL Eq. 6).

After Bonawitz et al. 2017. Everything follows from the round's seed and from what the others
say, so a hospital that starts again in the middle says the same once more.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fdrl_ros.crypto.masking.masks import net_mask
from fdrl_ros.crypto.masking.round_secret import AttemptSecrets
from fdrl_ros.crypto.masking.share_sealing import (
    deal,
    KeyList,
    open_shares,
    seal_shares,
    SealError,
)
from fdrl_ros.crypto.masking.sharing import SharePair
from fdrl_ros.errors import RoundError
from fdrl_ros.federation.hospital.round_log import RoundLog, Sent
from fdrl_ros.federation.hospital.round_seeds import RoundSeeds
from fdrl_ros.federation.protocol.attempt import (
    check_set,
    key_list,
    keys_of,
    sealed_in,
    settle_digest,
    setup_digest,
    Try,
)
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import (
    Delivery,
    Envelope,
    hash_of_seed,
    MaskedUpdate,
    Message,
    Phase,
    Reveal,
    RoundKey,
    RoundStatus,
    Settle,
    Shares,
)
from fdrl_ros.federation.protocol.pull import FIRST, numbers
from fdrl_ros.privacy.ledger.chain import Head
import numpy as np

AGGREGATOR = 'aggregator'


@dataclass(frozen=True, repr=False)
class Setup:
    """
    What an update is masked under, and the shares that its masks can be taken off with.

    :param digest: of keys and members, 32 bytes.
    :param members: who mask with each other, this hospital too, in the order of the names.
    :param shares: of each member whose sealed shares could be opened.
    """

    digest: bytes
    members: tuple[str, ...]
    shares: dict[str, SharePair]


class Part:
    """What a hospital has heard in one attempt, and what it says there, each thing once."""

    def __init__(self, channel: Channel, seeds: RoundSeeds, log: RoundLog, of: Try) -> None:
        """
        Know nothing yet.

        :param seeds: where the secrets of the round come from.
        :param log: of what was promised before.
        """
        self._channel = channel
        self._roster = channel.roster
        self._name = channel.name
        self._seeds = seeds
        self._log = log
        self._of = of
        self._keys: dict[str, RoundKey] = {}
        self._delivery: Delivery | None = None
        self._settles: dict[str, Settle] = {}
        self._setup: Setup | None = None
        self._told = self._signed = b''
        self._list: KeyList | None = None
        self._said: set[str] = set()
        self._lists: dict[str, tuple[str, ...]] = {}
        # Of senders who may be gone by now.
        for message in log.heard(of):
            if isinstance(message, RoundKey):
                self._keys[message.envelope.sender] = message
            elif isinstance(message, Delivery):
                self._delivery = message

    # What the others say.

    def take_lists(self, status: RoundStatus) -> None:
        """
        Keep the lists of this attempt; the first that are told count.

        :raises RoundError: if one is another than before.
        """
        if not Phase.SHARE <= status.phase <= Phase.SUM:
            return  # what is said of it then is for people
        for what in ('keyed', 'members', 'survivors'):
            names = getattr(status, what)
            if what == 'members' and status.phase == Phase.SHARE:
                continue
            if names and self._lists.setdefault(what, names) != names:
                raise RoundError(
                    status.envelope.sender, f'changed the {what} of an attempt to {names}'
                )

    def take_key(self, message: RoundKey) -> None:
        """
        Keep another hospital's keys; the first that it says in an attempt count.

        :raises MessageError: if they make no mask, were copied, or are others than before.
        """
        sender = message.envelope.sender
        keys = keys_of(message, self._keys.values())
        if keys != keys_of(self._keys.setdefault(sender, message), ()):
            raise RoundError(sender, 'other round keys than before in the same attempt')

    def take_delivery(self, message: Delivery) -> None:
        """
        Keep the shares that are for this hospital.

        :raises RoundError: if they are others than before.
        """
        before = self._delivery or message
        if (before.senders, before.sealed) != (message.senders, message.sealed):
            raise RoundError(message.envelope.sender, 'other shares than before in this attempt')
        self._delivery = message

    def take_settle(self, message: Settle) -> None:
        """
        Keep another survivor's signature on the survivor set.

        :raises RoundError: if this hospital was told of another one: somebody lies.
        """
        sender = message.envelope.sender
        self._settles.setdefault(sender, message)
        if self._told and message.settle_digest != self._told:
            raise RoundError(sender, 'signed other survivors than this hospital was told of')

    def contradictions(self, keys: KeyList, status: RoundStatus) -> list[str]:
        """Return what others said that cannot be if this hospital was told the truth."""
        found = []
        if status.survivors:
            setup = setup_digest(keys, status.members)
            self._told = settle_digest(setup, status.survivors)
            found += [
                f'{name} signed other survivors than this hospital was told of'
                for name, each in self._settles.items()
                if each.settle_digest != self._told
            ]
        if self._setup is not None and len(self._setup.shares) < len(self._setup.members):
            missing = sorted(set(self._setup.members) - self._setup.shares.keys())
            found.append(f'the shares of {", ".join(missing)} cannot be opened')
        return found

    # What this hospital says.

    def first(self, what: str) -> bool:
        """Tell whether something is to be said for the first time in this process."""
        if what in self._said:
            return False
        self._said.add(what)
        return True

    def say_key(self) -> tuple[Message, ...]:
        """Publish this attempt's public keys."""
        return (self._seal_key(),) if self.first('key') else ()

    def share(self, keys: KeyList) -> tuple[Message, ...]:
        """Hand out the shares of this attempt's two secrets."""
        if not self.first('shares'):
            return ()
        sealed = seal_shares(self._secrets, keys)
        joined = b''.join(sealed[name] for name in sorted(sealed))
        return (self._channel.seal(Shares, *self._of, keys_digest=keys.digest, sealed=joined),)

    def send(self, sent: Sent) -> tuple[Message, ...]:
        """Send the first chunks of what is durably noted; the others are asked for."""
        update = self._log.update
        if update is None or not self.first('update'):
            return ()
        ledger = Head(update.result.ledger_entries, update.result.ledger_head)
        self._note('sent', update=sent.update_hash, ledger=ledger)
        return self.chunks(sent, 0, FIRST)

    def chunks(self, sent: Sent, first: int, count: int) -> tuple[Message, ...]:
        """Sign chunks of what is durably noted."""
        return tuple(
            self._channel.seal(MaskedUpdate, *self._of, **self._log.fields(sent, number))
            for number in numbers(first, count, len(sent.chunks))
        )

    def settle(self, setup: Setup, survivors: tuple[str, ...]) -> tuple[Message, ...]:
        """
        Sign the survivor set: one in an attempt.

        :raises RoundError: if it is none, or another was signed or settled before.
        """
        settled = settle_digest(setup.digest, survivors)
        if self._signed and self._signed != settled:
            raise RoundError(AGGREGATOR, f'other survivors than were signed: {survivors}')
        sent = None if self._signed else self._log.sent(self._of)
        if sent is None or sent.setup_digest != setup.digest:
            return ()
        check_set(survivors, setup.members, self._roster.quorum, AGGREGATOR)
        before = self._log.revealed(self._of[0])
        if before and set(before) != set(survivors):
            raise RoundError(AGGREGATOR, f'the round was settled for {", ".join(before)}')
        self._log.note_settled(self._of, survivors)
        self._signed = settled
        self._note('signed', survivors=survivors)
        return (
            self._channel.seal(
                Settle, *self._of, settle_digest=settled, update_hash=sent.update_hash
            ),
        )

    def reveal(self, setup: Setup, survivors: tuple[str, ...]) -> tuple[Message, ...]:
        """
        Reveal shares for a survivor set that enough survivors signed: one set in a round.

        Of each member one share, in their order: of the self seed of who survived, of the mask
        secret of who did not; never both.

        :raises RoundError: if shares were revealed for another set before.
        """
        settled = settle_digest(setup.digest, survivors)
        signed = {name for name, each in self._settles.items() if each.settle_digest == settled}
        if 'reveal' in self._said or self._signed != settled:
            return ()
        if len((signed & set(survivors)) | {self._name}) < self._roster.threshold:
            return ()
        self._log.note_revealed(self._of[0], survivors)
        self.first('reveal')
        dropped = tuple(name for name in setup.members if name not in survivors)
        self._note('revealed', seeds=survivors, masks=dropped)
        shares = (
            pair.self_seed if name in survivors else pair.mask_secret
            for name, pair in sorted(setup.shares.items())
        )
        reveal = self._channel.seal(
            Reveal,
            *self._of,
            settle_digest=settled,
            missing=tuple(name for name in setup.members if name not in setup.shares),
            shares=b''.join(shares),
        )
        return (reveal,)

    def _note(self, kind: str, **fields: Any) -> None:
        round, attempt = self._of
        self._channel.journal.append(kind, round=round, attempt=attempt, **fields)

    def _seal_key(self) -> RoundKey:
        secrets = self._secrets
        return self._channel.seal(
            RoundKey,
            *self._of,
            mask_key=secrets.mask.public,
            sealing_key=secrets.sealing.public,
            seed_hash=hash_of_seed(secrets.self_seed),
        )

    # What it rests on.

    @cached_property
    def _secrets(self) -> AttemptSecrets:
        round, attempt = self._of
        return self._seeds.of(round).attempt(attempt)

    def key_list(self, keyed: Collection[str], terms: bytes) -> KeyList | None:
        """
        Return the list that shares are made along, or None while a key of it is missing.

        :param terms: digest of terms, roster and policy, as this hospital has them.
        :raises CryptoError: if it is none that shares can be made along.
        """
        if self._list is not None and set(keyed) == self._list.keys.keys():
            return self._list
        others = [name for name in keyed if name != self._name]
        if any(name not in self._keys for name in others):
            return None
        envelope = Envelope(self._roster.federation, *self._of, self._name, 0)
        halves = self._secrets.mask.public, self._secrets.sealing.public
        own = RoundKey(envelope, *halves, hash_of_seed(self._secrets.self_seed))
        keys = [own, *(self._keys[name] for name in others)]
        self._list = key_list(self._roster, keys, self._of, terms)
        return self._list

    def setup(self, keys: KeyList, status: RoundStatus) -> Setup | None:
        """
        Open what the other members sealed for this one, or return None before it is delivered.

        :param status: names the members who mask with each other.
        :raises RoundError: if what was delivered is not of these members, or too little of it
            can be opened to ever take the masks off again.
        """
        members, sender = tuple(sorted(status.members)), status.envelope.sender
        if self._setup is None and self._delivery is not None:
            check_set(members, keys.members, self._roster.quorum, sender)
            shares = self._open(keys, members, self._delivery)
            self._log.keep_heard(self._of, [*self._keys.values(), self._delivery])
            self._setup = Setup(setup_digest(keys, members), members, shares)
        if self._setup is not None and members != self._setup.members:
            raise RoundError(sender, f'changed the members to {members}')
        return self._setup

    def _open(
        self, keys: KeyList, members: tuple[str, ...], delivery: Delivery
    ) -> dict[str, SharePair]:
        sender, others = delivery.envelope.sender, [name for name in members if name != self._name]
        if sorted(delivery.senders) != others:
            raise RoundError(sender, f'delivered shares of {delivery.senders}')
        sealed = sealed_in(delivery.sealed, delivery.senders, sender)
        shares = {self._name: deal(self._secrets, keys)[self._name]}
        for name in others:
            try:
                shares[name] = open_shares(self._secrets, keys, name, sealed[name])
            except SealError:
                continue  # whoever sealed them sealed wrong, or was told of other keys
        if len(shares) < self._roster.quorum:
            unread = ', '.join(name for name in others if name not in shares)
            raise RoundError(sender, f'the shares of {unread} cannot be opened: other keys?')
        return shares

    def mask(self, setup: Setup, shape: tuple[int, int], modulus: int) -> np.ndarray:
        """Return the pair masks with all other members plus the self mask, of that shape."""
        flat = net_mask(
            self._secrets,
            {name: self._keys[name].mask_key for name in setup.members if name != self._name},
            count=shape[0] * shape[1],
            modulus=modulus,
            setup=setup.digest,
        )
        return flat.reshape(shape)
