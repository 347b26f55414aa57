# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Open a party's end of the signed conversation."""

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.federation.journal.journal import FILE, Journal
from fdrl_ros.federation.protocol.channel import Channel
from fdrl_ros.federation.protocol.store import Store


def open_channel(layout: Layout, name: str, store: Store) -> Channel:
    """
    Open a party's end of the signed conversation with its key, and its journal.

    The journal is closed with the store.

    :raises RosterError: if the roster is not valid now, older than one used before, or does not
        name the party.
    :raises PassphraseError: if the passphrase is missing, wrong, or not needed.
    :raises KeyFileError: if the key is missing, damaged, or not that of the roster.
    :raises JournalError: if the journal was changed or cut, or is open elsewhere.
    """
    identity, roster = layout.credentials(name)
    journal = Journal(layout.party(name) / FILE, identity, roster.federation, store)
    store.before_closing(journal.close)
    return Channel(identity, roster, store, journal)
