# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What people do on the page: who may do it, the journal of it, and then the doing.

Each act is on the disk, with the name of who asked, before it is sent; its result is written after
that, and nobody waits until the disk has it. Acts that only stop something wait for no disk.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, UTC
from enum import IntEnum
import errno
import fcntl
import hashlib
import json
import os
from pathlib import Path
import threading
import time
from typing import Any, Final

from fdrl_ros.errors import FdrlError, JournalDamagedError, os_errors_as, StoreError
from fdrl_ros.federation.protocol.orders import ADDRESSEES
from fdrl_ros.page.sessions import Role, Session
from fdrl_ros.runtime.closeable import Closeable
from fdrl_ros.selector.candidates.supervision import Command

JOURNAL: Final = 'page_acts.jsonl'
"""Name of the journal in its directory."""

STOP_OPERATION: Final = 'stop_operation'

STATE_COMMANDS: Final = {
    'enable': 'enable',
    'disable': 'disable',
    'pause_arm': 'pause',
    'resume_arm': 'resume',
    'home': 'home',
}
"""Acts that are commands of CRTK to the arm, and their words there."""

PINS: Final = ('pin', 'unpin')

ROOM: Final = (*map(str, Command), *PINS, *STATE_COMMANDS, STOP_OPERATION)
"""Acts in an operating room, of surgeons and operators."""

ORDERS: Final = tuple(ADDRESSEES)
"""Acts of the federation, of operators; each is an order that is signed."""

SIGNED: Final = (Command.HAND_BACK, *ORDERS)
"""Acts that need an operator's key on this host."""

_NAMED: Final = (Command.LOCK, Command.VETO, Command.ALLOW, *PINS)
_OF_HOSPITALS: Final = ('admit', 'withdraw', 'forgive')
CALMING: Final = (
    *(Command.TAKE_OVER, Command.LOCK, Command.VETO),
    *('pause_arm', 'disable', STOP_OPERATION, 'pause', 'stop'),
)
"""Acts that only stop something: neither a full disk, a busy journal nor a flood of acts keeps
anybody from them, and the page offers them while its data is old."""

MOST_RECENT: Final = 20
"""Acts of a session within :data:`WINDOW`; further ones are refused."""

WINDOW: Final = 10.0
"""Second."""

HURRY: Final = 0.02
"""Longest wait for the journal before an act that stops something is done without, second."""

_LONGEST: Final = 200  # letters of a word in a request
_LAST_ROUND: Final = 10**9


class Status(IntEnum):
    """Status codes of HTTP."""

    DONE = 200
    FORBIDDEN = 403
    REFUSED = 409
    MALFORMED = 422
    TOO_MANY = 429
    UNANSWERED = 504


class Unanswered(FdrlError):
    """Nobody answered in time: whether the act was done is not known."""


@dataclass(frozen=True)
class Act:
    """
    What is to be done.

    :param name: one of :data:`ROOM` or :data:`ORDERS`.
    :param robot: of an act in a room.
    :param policy: of lock, veto, allow, pin and unpin.
    :param version: round or digest, of pin.
    :param hospital: of admit, withdraw and forgive.
    :param to_round: of roll_back.
    """

    name: str
    robot: str = ''
    policy: str = ''
    version: str = ''
    hospital: str = ''
    to_round: int = 0

    def __str__(self) -> str:
        """Say it in words."""
        about = (self.policy, self.version, self.hospital)
        words = [self.name.replace('_', ' '), *filter(None, about)]
        if self.name == 'roll_back':
            words.append(f'to round {self.to_round}')
        return ' '.join(words) + (f' ({self.robot})' if self.robot else '')


@dataclass(frozen=True)
class Answer:
    """What became of an act, in words for the page."""

    status: Status
    message: str


def parse_act(body: object, robots: tuple[str, ...]) -> Act:
    """
    Read an act out of the JSON of a request.

    :param robots: those that there are.
    :raises ValueError: saying what is wrong with it.
    """
    if not isinstance(body, dict):
        raise ValueError('expected an object with `act`')
    name = body.get('act')
    if name not in (*ROOM, *ORDERS):
        raise ValueError(f'there is no act {str(name)[:40]!r}')
    wanted = {'act'}
    if name in ROOM:
        wanted.add('robot')
    if name in _NAMED:
        wanted.add('policy')
    if name == 'pin':
        wanted.add('version')
    if name in _OF_HOSPITALS:
        wanted.add('hospital')
    if name == 'roll_back':
        wanted.add('to_round')
    given = {key for key, value in body.items() if value not in (None, '')}
    if missing := sorted(wanted - given):
        raise ValueError(f'{name} needs {" and ".join(missing)}')
    if more := sorted(str(each)[:40] for each in given - wanted):
        raise ValueError(f'{name} takes no {" or ".join(more)}')
    to_round = body.get('to_round', 0) if name == 'roll_back' else 0
    if type(to_round) is not int or not 0 <= to_round <= _LAST_ROUND:
        raise ValueError('to_round: expected the number of a round')
    words = {each: body[each] for each in wanted - {'act', 'to_round'}}
    for key, value in words.items():
        if not isinstance(value, str) or len(value) > _LONGEST:
            raise ValueError(f'{key}: expected a text of at most {_LONGEST} letters')
    if name in ROOM and words['robot'] not in robots:
        raise ValueError(f'there is no robot {words["robot"][:40]!r} here')
    return Act(name, to_round=to_round, **words)


class ActJournal(Closeable):
    """
    The acts of the page in lines that are only ever added, each with the hash of the one before.

    So a change within it shows; what is cut off its end does not, as nobody signs it. Several
    pages may write one file.

    :param path: made if it is not there, readable by its owner alone.
    :param clock: tells seconds since 1970 (UTC).
    :raises StoreError: if it cannot be written.
    :raises JournalDamagedError: if a line of it was changed.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._end, self._before = 0, ''
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with os_errors_as(StoreError, f'cannot write {path}'), ExitStack() as opened:
            self._file = opened.enter_context(open(os.open(path, flags, 0o600), 'r+b', 0))
            with self._locked():
                self._read_on()
            opened.pop_all()

    def append(self, *, wait: bool = True, hurry: bool = False, **fields: Any) -> None:
        """
        Write a line.

        :param wait: until it is on the disk; else a power cut may lose it, the end of this
            process does not.
        :param hurry: whether to give up if others write for longer than :data:`HURRY`.
        :raises StoreError: if that cannot be.
        :raises JournalDamagedError: if another process changed a line.
        """
        with os_errors_as(StoreError, f'cannot write {self._path}'), self._locked(hurry):
            self._read_on()
            stamp = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec='milliseconds')
            line = json.dumps({'time': stamp, **fields, 'before': self._before}).encode() + b'\n'
            try:
                if self._file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if wait:
                    os.fdatasync(self._file.fileno())
            except OSError:
                self._file.truncate(self._end)  # half a line would look like a change
                raise
            self._end, self._before = self._end + len(line), _hash(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @contextmanager
    def _locked(self, hurry: bool = False) -> Iterator[None]:
        """Keep other threads and processes from writing."""
        deadline = time.monotonic() + HURRY
        if not self._lock.acquire(timeout=HURRY if hurry else -1):
            raise BlockingIOError(errno.EAGAIN, 'another act is being written')
        try:
            while True:
                try:
                    fcntl.flock(self._file, fcntl.LOCK_EX | (fcntl.LOCK_NB if hurry else 0))
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.001)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        finally:
            self._lock.release()

    def _read_on(self) -> None:
        """Follow the lines that others wrote; cut off half a line, which never counted."""
        size = os.fstat(self._file.fileno()).st_size
        if size == self._end:
            return
        self._file.seek(0)
        self._end, self._before = _follow(self._file.read(), self._path)
        if self._end < size:
            self._file.truncate(self._end)


def verify_acts(path: Path) -> int:
    """
    Check that no line of a journal of acts was changed or taken out.

    :returns: how many lines it has.
    :raises StoreError: if it cannot be read.
    :raises JournalDamagedError: naming the first line that does not follow the one before.
    """
    with os_errors_as(StoreError, f'cannot read {path}'):
        data = path.read_bytes()
    _follow(data, path)
    return data.count(b'\n')


def _follow(data: bytes, path: Path) -> tuple[int, str]:
    """Walk the lines of a journal; return where the last whole one ends, and its hash."""
    before, end = '', 0
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        if not line.endswith(b'\n'):
            break
        try:
            said = json.loads(line)['before']
        except (ValueError, KeyError, TypeError):
            said = None
        if said != before:
            raise JournalDamagedError(
                f'{path}: line {number} does not follow the one before: it was changed, or '
                'lines are missing; put the file aside, and keep it'
            )
        before, end = _hash(line), end + len(line)
    return end, before


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


class Acts:
    """
    Judges acts, writes them down, and has them carried out.

    :param journal: of the acts.
    :param carry_out: does an act, and returns what holds then, in words; an FdrlError says why it
        was not done, an :class:`Unanswered` that this is not known.
    :param note: tells everybody who looks.
    :param clock: tells seconds that only grow.
    :param unable: acts that this server cannot do, and why, in words.
    """

    def __init__(
        self,
        journal: ActJournal,
        carry_out: Callable[[Act, Session], str],
        note: Callable[[str], None],
        clock: Callable[[], float],
        unable: Mapping[str, str],
    ) -> None:
        self._journal, self._carry_out, self._note = journal, carry_out, note
        self._clock, self._unable = clock, unable
        self._lock = threading.Lock()

    def allowed(self, role: Role) -> list[str]:
        """Return the names of the acts that a role may do here."""
        may = {Role.VIEWER: (), Role.SURGEON: ROOM, Role.OPERATOR: (*ROOM, *ORDERS)}[role]
        return [each for each in may if each not in self._unable]

    def lacking(self, role: Role) -> str:
        """Return why who may take over here cannot hand back; empty where that is no question."""
        may = Command.TAKE_OVER in self.allowed(role)
        why = self._unable.get(Command.HAND_BACK, '') if may else ''
        return f'Nobody can hand back from here: {why}.' if why else ''

    def perform(self, session: Session, body: object, robots: tuple[str, ...]) -> Answer:
        """Do what a request asks for; it blocks until that is done or refused."""
        person, act, why = session.person, None, ''
        try:
            act = parse_act(body, robots)
        except ValueError as error:
            why = str(error)
        may = act is not None and act.name in self.allowed(person.role)
        calming = act is not None and may and act.name in CALMING
        if not calming and self._too_many(session):
            return Answer(Status.TOO_MANY, f'more than {MOST_RECENT} acts in {WINDOW:g} s: wait')
        if act is None:
            self._write(session, 'malformed', why)
            return Answer(Status.MALFORMED, why)
        if not may:
            name = act.name.replace('_', ' ')
            words = f'a {person.role} may not {name}'
            if act.name in self._unable:
                words = f'{name}: {self._unable[act.name]}'
            self._write(session, 'forbidden', words, act)
            return Answer(Status.FORBIDDEN, words)
        written = self._write(session, 'asked', '', act)
        if not written and not calming:
            return Answer(Status.REFUSED, 'not done: the journal of acts cannot be written')
        try:
            message = self._carry_out(act, session)
        except Unanswered as error:
            self._write(session, 'unanswered', str(error), act)
            return Answer(Status.UNANSWERED, str(error))
        except FdrlError as error:
            self._write(session, 'refused', str(error), act)
            self._note(f'{person.name} ({person.role}): {act}: refused: {error}')
            return Answer(Status.REFUSED, str(error))
        self._write(session, 'done', message, act)
        self._note(f'{person.name} ({person.role}): {act}')
        unwritten = '' if written else '; the journal of acts could not be written'
        return Answer(Status.DONE, message + unwritten)

    def _too_many(self, session: Session) -> bool:
        """Count an act; return whether it is one too many."""
        with self._lock:
            now = self._clock()
            session.recent[:] = [each for each in session.recent if now - each < WINDOW]
            if len(session.recent) >= MOST_RECENT:
                return True
            session.recent.append(now)
            return False

    def _write(self, session: Session, result: str, message: str, act: Act | None = None) -> bool:
        """
        Write a line; return whether it is in the journal.

        What is asked for is on the disk then, unless the act stops something: that waits for none.
        """
        about = asdict(act) if act else {}
        about = {('act' if key == 'name' else key): each for key, each in about.items() if each}
        person = session.person
        calming = act is not None and act.name in CALMING
        try:
            self._journal.append(
                wait=result == 'asked' and not calming,
                hurry=calming,
                name=person.name,
                role=person.role,
                **about,
                result=result,
                message=message,
            )
        except (StoreError, JournalDamagedError):
            return False
        return True
