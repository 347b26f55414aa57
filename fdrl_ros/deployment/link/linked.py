# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A party's link over a Zenoh session, for whatever drives the party."""

from collections.abc import Callable
from functools import partial
import math
import threading
from typing import Final

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.deployment.link.credentials import LinkFiles
from fdrl_ros.deployment.link.party_link import PartyLink, Taken
from fdrl_ros.deployment.link.streams import FairBound
from fdrl_ros.deployment.link.transport import Session
from fdrl_ros.errors import MessageError
from fdrl_ros.federation.protocol.channel import Takes
from fdrl_ros.federation.protocol.message import Message, Order
from fdrl_ros.runtime.closeable import Closeable

Post = Callable[[Callable[[], object]], object]

MOST_PENDING: Final = 2**28
"""Bytes that came and wait for the party at most; see :class:`.streams.FairBound`."""

OVERHEAD: Final = 1000
"""Bytes that count for each of them besides its own."""

EXPLAIN: Final = 30.0
"""Time between two looks why there is no way to the router, second."""


class Linked(Closeable):
    """Sends and hears, and catches up when the way to the router was cut and is back."""

    def __init__(
        self,
        files: LinkFiles,
        roster: Roster,
        takes: Takes,
        session: Session,
        *,
        post: Post,
        take: Callable[[Message], MessageError | None],
        refuse: Callable[[MessageError], object],
        say: Callable[[str], object],
        hear: Callable[[str, Taken], object] = lambda server, answer: None,
    ) -> None:
        """
        Begin to listen.

        :param session: of :func:`~fdrl_ros.deployment.link.transport.open_client`; it is closed
            with this.
        :param post: has something called in the party's thread; all else is called there.
        :param take: gets each message for the party, in order; returns why it was refused.
        :param refuse: gets what no party sent.
        :param say: told that the link is cut or back.
        :param hear: gets what a server says of this operator's orders.
        """
        self._session, self._take, self._refuse, self._say = session, take, refuse, say
        self._link = PartyLink(files.name, roster, takes, files.group_key(), session.put, hear)
        self._post, self._lock, self._pending = post, threading.Lock(), FairBound(MOST_PENDING)
        self._connected, self._told, self._explained = True, '', -math.inf
        self.send = self._link.send
        session.listen(self._link.keys, self._arrived)

    def tick(self, now: float) -> None:
        """Say and ask what is due; several times a second."""
        connected = self._session.connected
        if connected is not self._connected:
            self._connected = connected
            self._say(f'the link to the router is {"back" if connected else "cut"}')
            if connected:
                self._link.rejoin()
                self._told = ''
        if not connected and now - self._explained >= EXPLAIN:
            self._explained = now
            threading.Thread(target=self._explain, name='why no link', daemon=True).start()
        self._link.tick(now)

    def _explain(self) -> None:
        """Say why there is no way to the router, each reason once; to look takes seconds."""
        reason = self._session.trouble()
        if reason and reason != self._told:
            self._told = reason
            self._post(partial(self._say, f'no link to the router: {reason}'))

    def close(self) -> None:
        """Leave."""
        self._session.close()

    def _arrived(self, key: str, payload: bytes) -> None:
        """Queue what came, in a thread of Zenoh; what is too much is lost, and asked for again."""
        with self._lock:
            if not self._pending.add(self._link.sender(key), len(payload) + OVERHEAD):
                return
        self._post(partial(self._hear, key, payload))

    def _hear(self, key: str, payload: bytes) -> None:
        with self._lock:
            self._pending.remove(self._link.sender(key), len(payload) + OVERHEAD)
        try:
            messages = self._link.heard(key, payload)
        except MessageError as error:
            self._refuse(error)
            return
        for message in messages:
            refusal = self._take(message)
            if isinstance(message, Order):
                self._link.answer(message, '' if refusal is None else refusal.detail)
