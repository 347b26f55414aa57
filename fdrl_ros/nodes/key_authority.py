# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The key authority's node: answers requests to decrypt, and publishes each released policy."""

from fdrl_ros.deployment.parties.key_authority import open_key_authority
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.federation.key_authority.key_authority import KeyAuthority
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.nodes.common.diagnostics import Health
from fdrl_ros.nodes.parties.party_node import PartyNode
from fdrl_ros.runtime.subprocess_runner import SeparateObject
import fdrl_ros.srv as srv

VALIDATION = 'fdrl_ros.deployment.parties.policy_validation:PublicValidation'
"""The test of a new policy, which loads the world that it tests in."""


class KeyAuthorityNode(PartyNode):
    """Moves the key authority's messages."""

    executable = 'key_authority'
    groups = ('encryption', 'validation', 'world')
    sends = (
        protocol.EncryptionKey,
        protocol.GlobalPolicy,
        protocol.LedgerHeads,
        protocol.Verdict,
        protocol.Wanted,
    )

    def addressees(self) -> list[str]:
        """Return who relays updates."""
        return ['aggregator']

    def begin(self) -> None:
        """Offer to decrypt, and to take orders; the policy or the verdict has a topic."""
        super().begin()
        self.serve(srv.Decrypt, f'{self.settings.federation}/decrypt', protocol.DecryptRequest)
        self.serve(srv.Order, '~/order', protocol.Order)

    def make_party(self, prepared: object, store: Store) -> KeyAuthority:
        """Put the key authority together."""
        plan = self.plan()
        start = load_policy(self.layout.pretrained).weights
        # In a process of its own: this one holds the secret key and loads nothing of the world.
        validation = SeparateObject(VALIDATION, plan, start)
        self.keep(validation.close)
        validate = self.stopwatch.timed('validate', validation)
        return open_key_authority(self.layout, plan, store, validate=validate)

    def health(self) -> Health:
        """Add the newest released round."""
        health, party = super().health(), self.party
        if not isinstance(party, KeyAuthority) or self.fault:
            return health
        return Health(health.level, f'released round {party.round}', health.values)


NODE = KeyAuthorityNode
