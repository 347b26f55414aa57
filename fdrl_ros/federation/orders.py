# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the operator ordered the aggregator to do, kept durably."""

import json

from fdrl_ros.crypto.roster import Roster
from fdrl_ros.errors import RoundError
from fdrl_ros.federation.store import Store


class Orders:
    """Whether rounds are paused or over, and which hospitals are admitted to them."""

    def __init__(self, roster: Roster, store: Store) -> None:
        """Go on from the orders in `store`; without any, all hospitals are admitted."""
        self._store = store
        self._names = [member.name for member in roster.hospitals]
        self._withdrawn = set(json.loads(store.get('withdrawn') or b'[]'))

    @property
    def admitted(self) -> list[str]:
        """Return the names of the admitted hospitals, in the roster's order."""
        return [name for name in self._names if name not in self._withdrawn]

    @property
    def paused(self) -> bool:
        """Whether no round may begin or go on."""
        return self._store.get('paused') == b'yes'

    @paused.setter
    def paused(self, value: bool) -> None:
        self._store.put('paused', b'yes' if value else b'no')

    @property
    def over(self) -> bool:
        """Whether no round may ever begin again."""
        return self._store.get('stopped') == b'yes'

    def stop(self) -> None:
        """Let no round begin any more."""
        self._store.put('stopped', b'yes')

    def admit(self, hospital: str, *, admitted: bool) -> None:
        """
        Admit or withdraw a hospital.

        :raises RoundError: if the roster does not name it.
        """
        if hospital not in self._names:
            raise RoundError(hospital, 'the roster names no such hospital')
        (self._withdrawn.discard if admitted else self._withdrawn.add)(hospital)
        self._store.put('withdrawn', json.dumps(sorted(self._withdrawn)).encode())
