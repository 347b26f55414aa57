# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Who looks at the page: one-time links, and the sessions that they begin.

Tokens are 256 random bits from the system's secure source. Only their hashes are kept, so neither
memory nor a log holds what would let somebody in.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
import hashlib
import secrets
import threading
from typing import Final

from fdrl_ros.errors import FdrlError

LIFE: Final = 12 * 3600.0
"""A session ends so long after it began, second."""

MOST_SESSIONS: Final = 100
"""Sessions at once; the oldest ends for a new one."""

NAME_LENGTH: Final = 60
"""Most letters of a person's name."""


class Role(StrEnum):
    """What a person may do."""

    VIEWER = 'viewer'
    SURGEON = 'surgeon'
    OPERATOR = 'operator'


class EntryRefused(FdrlError):
    """A token lets nobody in; the message says what to do."""


@dataclass(frozen=True)
class Person:
    """Who acts, and in which role."""

    name: str
    role: Role


@dataclass
class Session:
    """
    One browser of a person.

    :param csrf: token that every act carries besides the cookie.
    :param began: second.
    """

    person: Person
    csrf: str
    began: float
    recent: list[float] = field(default_factory=list)
    """When the newest acts were asked for, second."""


@dataclass(frozen=True)
class _Link:
    person: Person
    expires: float


class Sessions:
    """
    Links that are good once, and the sessions behind them.

    :param clock: tells seconds that only grow; passed in for tests.
    :param lifetime: of a link, second.
    :param draw: makes a token.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        lifetime: float,
        draw: Callable[[], str] = lambda: secrets.token_urlsafe(32),
    ) -> None:
        self._clock, self._lifetime, self._draw = clock, lifetime, draw
        self._links: dict[bytes, _Link] = {}
        self._sessions: dict[bytes, Session] = {}
        self._lock = threading.Lock()

    def invite(self, person: Person) -> str:
        """Return the token of a link that lets a person in once."""
        token = self._draw()
        with self._lock:
            now = self._clock()
            self._links = {key: each for key, each in self._links.items() if each.expires > now}
            self._links[_hash(token)] = _Link(person, now + self._lifetime)
        return token

    def enter(self, token: str) -> tuple[str, Session]:
        """
        Use a link up.

        :returns: what the cookie holds, and the session.
        :raises EntryRefused: if the token is wrong, used or expired.
        """
        with self._lock:
            now = self._clock()
            link = self._links.pop(_hash(token), None)
            if link is None or link.expires <= now:
                raise EntryRefused(
                    'this link is wrong, used or expired: each works once and for a few minutes; '
                    'ask who runs `fdrl watch` for a new one'
                )
            cookie = self._draw()
            session = Session(link.person, self._draw(), now)
            self._sessions[_hash(cookie)] = session
            if len(self._sessions) > MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            return cookie, session

    def find(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie; None if there is none, or it has ended."""
        if not cookie:
            return None
        with self._lock:
            key = _hash(cookie)
            session = self._sessions.get(key)
            if session is not None and self._clock() - session.began > LIFE:
                del self._sessions[key]
                return None
            return session

    def signed_in(self, name: str) -> bool:
        """Return whether a person has a session that has not ended."""
        with self._lock:
            now = self._clock()
            return any(
                each.person.name == name and now - each.began <= LIFE
                for each in self._sessions.values()
            )

    def leave(self, cookie: str) -> None:
        """End the session of a cookie."""
        with self._lock:
            self._sessions.pop(_hash(cookie), None)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode('utf-8', 'replace')).digest()
