# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A party's link over a Zenoh session, for whatever drives the party."""

from collections.abc import Callable
from functools import partial

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.deployment.link.credentials import LinkFiles
from fdrl_ros.deployment.link.party_link import PartyLink
from fdrl_ros.deployment.link.transport import Session
from fdrl_ros.errors import MessageError
from fdrl_ros.federation.protocol.channel import Takes
from fdrl_ros.federation.protocol.message import Message
from fdrl_ros.runtime.closeable import Closeable

Post = Callable[[Callable[[], object]], object]


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
        take: Callable[[Message], object],
        refuse: Callable[[MessageError], object],
        say: Callable[[str], object],
    ) -> None:
        """
        Begin to listen.

        :param session: of :func:`~fdrl_ros.deployment.link.transport.open_client`; it is closed
            with this.
        :param post: has something called in the party's thread; all else is called there.
        :param take: gets each message for the party, in order.
        :param refuse: gets what no party sent.
        :param say: told that the link is cut or back.
        """
        self._session, self._take, self._refuse, self._say = session, take, refuse, say
        self._link = PartyLink(files.name, roster, takes, files.group_key(), session.put)
        self._connected = True
        self.send = self._link.send
        session.listen(
            self._link.keys, lambda key, payload: post(partial(self._hear, key, payload))
        )

    def tick(self, now: float) -> None:
        """Say and ask what is due; several times a second."""
        connected = self._session.connected
        if connected is not self._connected:
            self._connected = connected
            self._say(f'the link to the router is {"back" if connected else "cut"}')
            if connected:
                self._link.rejoin()
        self._link.tick(now)

    def close(self) -> None:
        """Leave."""
        self._session.close()

    def _hear(self, key: str, payload: bytes) -> None:
        try:
            messages = self._link.heard(key, payload)
        except MessageError as error:
            self._refuse(error)
            return
        for message in messages:
            self._take(message)
