# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The sum as the key authority makes it itself, chunk by chunk, of what the hospitals signed.

It holds one chunk of each survivor at a time, and what is summed already.
"""

from collections.abc import Callable
import hashlib

from fdrl_ros.crypto.he.encryption import PublicContext
from fdrl_ros.errors import MessageError, RoundError
from fdrl_ros.federation.key_authority.request import Checked
from fdrl_ros.federation.protocol.attempt import attempt_of
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.message import hash_of_sums, MaskedUpdate, Relay
from fdrl_ros.federation.protocol.pull import Ask, Pull


class Summing:
    """
    Checks and adds the updates that a request is about, in the order in which it asks for them.

    Of each survivor the first chunk, then of each the second, and so on.
    """

    def __init__(
        self,
        checked: Checked,
        channel: Channel,
        public: PublicContext,
        base_digest: bytes,
        watch: Callable[[MaskedUpdate], None],
    ) -> None:
        """
        Begin with nothing.

        :param base_digest: of the policy that the updates have to start from.
        :param watch: refuses updates whose privacy ledger is not in order.
        """
        self.checked = checked
        self.sums: list[bytes] = []
        self._channel = channel
        self._public = public
        self._base_digest = base_digest
        self._watch = watch
        self._column: list[bytes] = []
        self._hashes = [hashlib.sha256() for _ in checked.survivors]
        self._pull = Pull()

    @property
    def is_whole(self) -> bool:
        """Whether every chunk was added."""
        return len(self.sums) == self._public.scheme.ciphertexts

    def go_on(self, checked: Checked) -> bool:
        """Take another request for the very same updates, if it is one; what is here counts."""
        old, new = self.checked, checked
        same = (old.setup, old.survivors, old.request.update_hashes)
        if same != (new.setup, new.survivors, new.request.update_hashes):
            return False
        self.checked = checked
        self._pull.hurry()
        return True

    def wanted(self, now: float) -> list[Ask]:
        """Return what to ask the aggregator for."""
        every = self._public.scheme.ciphertexts * len(self.checked.survivors)
        return self._pull.next(range(self._here), every, now)

    def take(self, relay: Relay) -> None:
        """
        Add chunks, if they are the next ones.

        :raises FdrlError: if one is not what the request and its hospital say.
        """
        if relay.first != self._here or self.is_whole:
            return  # it was asked for twice
        for update in relay.updates:
            self._add(update)
        if self.is_whole:
            self._check_whole()

    @property
    def _here(self) -> int:
        """Number of chunks that were taken."""
        return len(self.sums) * len(self.checked.survivors) + len(self._column)

    def _add(self, update: MaskedUpdate) -> None:
        checked, place = self.checked, len(self._column)
        name, sender = checked.survivors[place], checked.request.envelope.sender
        at = (update.envelope.sender, update.chunk, update.chunks)
        if at != (name, len(self.sums), self._public.scheme.ciphertexts):
            raise RoundError(sender, f'chunk {at[1]} of {at[2]} of {at[0]} is out of place')
        self._channel.verify(update, 'hospital')
        if attempt_of(update.envelope) != attempt_of(checked.request.envelope):
            raise RoundError(name, f'signed for attempt {attempt_of(update.envelope)}')
        if (update.base_digest, update.setup_digest) != (self._base_digest, checked.setup):
            raise RoundError(name, 'trained from another policy, or masked for other members')
        self._watch(update)
        self._hashes[place].update(hashlib.sha256(update.ciphertext).digest())
        self._column.append(update.ciphertext)
        if len(self._column) == len(checked.survivors):
            self.sums.append(self._public.add(self._column))
            self._column.clear()

    def _check_whole(self) -> None:
        """Refuse what is not the sum that was asked for."""
        request = self.checked.request
        if b''.join(each.digest() for each in self._hashes) != request.update_hashes:
            raise MessageError(request.envelope.sender, 'other updates than the request names')
        if hash_of_sums(self.sums) != request.sum_hash:
            raise MessageError(request.envelope.sender, 'its sum is not the sum of the updates')
