# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The key authority's node: answers requests to decrypt, and publishes each released policy."""

from collections.abc import Callable, Mapping

from fdrl_ros.crypto.he.schemes import EncryptionSettings
from fdrl_ros.deployment.parties.key_authority import (
    derive_encryption,
    open_key_authority,
    server_step,
    VALIDATION,
)
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.federation.key_authority.key_authority import KeyAuthority
from fdrl_ros.federation.key_authority.state import Validation
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.nodes.common.diagnostics import Health
from fdrl_ros.nodes.parties.server_node import ServerNode
from fdrl_ros.runtime.subprocess_runner import SeparateObject
from fdrl_ros.runtime.worker_thread import Take
import fdrl_ros.srv as srv
import numpy as np
from numpy.typing import NDArray


class KeyAuthorityNode(ServerNode):
    """Moves the key authority's messages."""

    executable = 'key_authority'
    groups = ('server', 'encryption', 'validation', 'world')

    def addressees(self, kind: type[protocol.Message]) -> list[str]:
        """Return who relays updates, and whose ledgers are acknowledged."""
        return ['aggregator'] if kind is protocol.Wanted else super().addressees(kind)

    def begin(self) -> None:
        """Offer to decrypt, and to take orders; the policy or the verdict has a topic."""
        super().begin()
        self.serve(srv.Decrypt, '~/decrypt', protocol.DecryptRequest)
        self.serve(srv.Order, '~/order', protocol.Order)

    def prepare(self, report: Take, stopped: Callable[[], bool]) -> EncryptionSettings:
        """Derive what all encrypt by, elsewhere if that loads the world."""
        return derive_encryption(self.layout, self.plan(), stopped)

    def make_party(self, prepared: EncryptionSettings, store: Store) -> KeyAuthority:
        """Put the key authority together."""
        plan = self.plan()
        start = load_policy(self.layout.pretrained).weights
        # In a process of its own: this one holds the secret key and loads nothing of the world.
        validation = self.stopwatch.timed('validate', self.separate(VALIDATION, plan, start))
        self._tested: Mapping[str, float] = {}
        self._success: dict[str, str] = {}

        def validate(weights: NDArray[np.float32]) -> Validation:
            found: Validation = validation(weights)
            self._tested = found.shares if found.passed else {}
            return found

        return open_key_authority(
            self.layout,
            plan,
            store,
            validate=validate,
            encryption=prepared,
            step=server_step(plan, start, self.separate),
        )

    def send(self, message: protocol.Message) -> None:
        """Publish; tell on how many public patients a policy that is released succeeded."""
        if isinstance(message, protocol.GlobalPolicy) and not message.rolled_back:
            tested, self._tested = self._tested, {}
            if tested:
                self._success = {'tested round': str(message.envelope.round)}
                named = {f'success {name}'.rstrip(): str(each) for name, each in tested.items()}
                self._success |= named
        super().send(message)

    def separate(self, place: str, *arguments: object) -> SeparateObject:
        """Make an object in a process of its own, which ends with this node's party."""
        made = SeparateObject(place, *arguments)
        self.keep(made.close)
        return made

    def health(self) -> Health:
        """Add the newest released round."""
        health, party = super().health(), self.party
        if not isinstance(party, KeyAuthority) or self.fault:
            return health
        values = {**health.values, **self._success}
        return Health(health.level, f'released round {party.round}', values)


NODE = KeyAuthorityNode
