# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a hospital durably notes of its rounds: its update, what it sent, what it signed."""

import json

from fdrl_ros.errors import MessageError, RoundError
from fdrl_ros.federation.local_update import LocalUpdate
from fdrl_ros.federation.message import GlobalPolicy
from fdrl_ros.federation.store import Store

HASH = 32
"""Bytes of the hash of an update."""


class RoundLog:
    """
    The memory that a hospital's promises rest on.

    An update is trained once a round and masked anew in each attempt; a survivor set is signed
    once a round; a policy must be made of an update that was really sent.
    """

    def __init__(self, store: Store, n_parameters: int) -> None:
        """Go on from what the store holds."""
        self._store = store
        saved = store.get('update')
        self.update = LocalUpdate.from_bytes(saved, n_parameters) if saved else None

    @property
    def round(self) -> int:
        """Return the round of the newest update: nothing before it matters any more."""
        return self.update.round if self.update else 0

    def keep(self, update: LocalUpdate) -> None:
        """Note the result of local training, before anything of it is sent."""
        self._store.put('update', update.to_bytes())
        self.update = update

    def note_sent(self, round: int, update_hash: bytes) -> None:
        """Note what is about to be sent."""
        sent = self._store.get(f'sent {round}') or b''
        self._store.put(f'sent {round}', sent + update_hash)

    def note_settled(self, round: int, survivors: tuple[str, ...]) -> None:
        """Note the survivor set that is about to be signed."""
        self._store.put(f'settled {round}', json.dumps(sorted(survivors)).encode())

    def settled(self, round: int) -> tuple[str, ...]:
        """Return the survivor set that was signed in a round; empty if none was."""
        return tuple(json.loads(self._store.get(f'settled {round}') or b'[]'))

    def check(self, policy: GlobalPolicy, name: str) -> None:
        """
        Refuse a policy that left this hospital out, or summed what it never sent.

        :param name: of this hospital.
        :raises MessageError: if so.
        """
        sender, round = policy.envelope.sender, policy.envelope.round
        if len(policy.update_hashes) != HASH * len(policy.contributors):
            raise MessageError(sender, 'not one update hash per contributor')
        if name in policy.contributors:
            at = HASH * policy.contributors.index(name)
            sent = self._store.get(f'sent {round}') or b''
            known = {sent[i : i + HASH] for i in range(0, len(sent), HASH)}
            if policy.update_hashes[at : at + HASH] not in known:
                raise RoundError(sender, f'round {round} summed an update that was never sent')
        elif self.settled(round) and not policy.rolled_back:
            raise RoundError(sender, f'round {round} left this hospital out')
