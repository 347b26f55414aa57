# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Hospitals that spend their budget until they are killed, for tests of the ledger.

The forker is a process that has imported everything and forks a hospital in milliseconds. Each
hospital reserves block after block and notes each one in a file of witnesses once it might have
drawn the noise. SIGKILL loses no bytes that were written, so the notes need no syncing.
"""

from collections.abc import Callable
from contextlib import suppress
import ctypes
from functools import partial
import os
from pathlib import Path
import select
import signal
import struct
import subprocess
import sys
import traceback
from types import TracebackType
from typing import Self

import fdrl_ros
from fdrl_ros.errors import LedgerLockedError
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_rdp
from fdrl_ros.privacy.ledger.account import AccountedLedger, missing_entry, parts
from fdrl_ros.privacy.ledger.chain import Head, Owner
from fdrl_ros.privacy.ledger.content import read_content
from fdrl_ros.privacy.ledger.file import note_path
from fdrl_ros.privacy.ledger.ledger import Ledger

OWNER = {'hospital': 'hospital_1', 'unit': 'patient', 'delta': 1e-5, 'budget': 1e6}
CHARGE = {'noise_multiplier': 2.0, 'sampling_probability': 0.128, 'steps': 20}
BLOCKS = 3
"""Blocks of a round."""

ACCOUNTED = '.accounted'
"""Ending of a ledger that charges the account in its folder."""

LOCKED = 3
"""Exit status of a hospital whose ledger was open elsewhere."""

_TRACE_ME, _SYSCALL = 0, 24  # of ptrace(2)
_NEVER = 10**6  # more system calls than a hospital makes
_NOTE = struct.Struct('<q')


class HospitalForker:
    """The parent's end: starts hospitals, kills them, learns how they ended."""

    def __init__(self) -> None:
        root = str(Path(fdrl_ros.__file__).parent.parent)
        self._beats, beat = os.pipe()
        os.set_blocking(self._beats, False)
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(beat)],
            pass_fds=[beat],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, 'PYTHONPATH': root},
            bufsize=0,
        )
        os.close(beat)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the forker; its hospitals end with it."""
        self._process.kill()
        self._process.communicate()
        os.close(self._beats)

    def killed_after(self, path: Path, blocks: int, seconds: float) -> None:
        """Let a hospital draw some blocks and live on for a while, then kill it."""
        pid = self._ask(f'live {path}')
        for _ in range(blocks):
            select.select([self._beats], [], [])
            os.read(self._beats, 1)
        ended, _, _ = select.select([self._process.stdout], [], [], seconds)
        assert not ended, f'a hospital ended by itself: {self._answer()}'
        os.kill(pid, signal.SIGKILL)
        assert self._answer() == -signal.SIGKILL
        with suppress(BlockingIOError):
            while os.read(self._beats, 4096):
                pass

    def killed_before_call(self, path: Path, call: int, blocks: int) -> bool:
        """
        Let a hospital reserve some blocks, and kill it before its system call of that number.

        A file changes in system calls alone, so all their numbers are all that a kill can leave.

        :returns: whether it made so many; if not, it ended well.
        """
        status = self._ask(f'trace {path} {call} {blocks}')
        assert status in (0, -signal.SIGKILL), status
        return status != 0

    def at_once(self, path: Path, count: int, blocks: int) -> list[int]:
        """Let some hospitals open one ledger at the same time; return their exit statuses."""
        first = self._ask(f'crowd {path} {count} {blocks}')
        return sorted([first, *(self._answer() for _ in range(count - 1))])

    def _ask(self, line: str) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b'\n')
        return self._answer()

    def _answer(self) -> int:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, 'the forker ended'
        return int(line)


def notes_of(path: Path) -> Path:
    """Return where the hospitals of a ledger note what they drew."""
    return path.with_suffix('.drawn')


def account_of(path: Path) -> Path:
    """Return the account of an accounted ledger."""
    return path.with_name('shared')


def drawn(path: Path) -> list[int]:
    """Return the numbers of the blocks whose noise may have been drawn, in order."""
    notes = notes_of(path)
    content = notes.read_bytes() if notes.exists() else b''
    return [number for (number,) in _NOTE.iter_unpack(content)]


def check(path: Path, before: Head | None) -> Head | None:
    """
    Compare a ledger, untouched, with what was drawn.

    :param before: its head at an earlier check.
    :returns: its head, None where it was not begun.
    """
    done = drawn(path)
    assert done == list(range(len(done))), 'a block was drawn twice or left out'
    if not path.exists():
        assert not done and before is None
        return None
    record = read_content(path)
    assert record.problems() == []
    assert before is None or not record.chain.contradiction(before)
    assert not record.in_use
    reserved = [BLOCKS * entry.round + entry.block for entry in record.chain.entries]
    assert reserved[: len(done)] == done, 'under-reported'
    assert len(reserved) - len(done) in (0, 1), 'over-reported by more than one block'
    if note_path(path).exists():
        account = read_content(account_of(path))
        assert account.problems() == [] and not missing_entry(account.chain, record.chain)
    return record.chain.head


def check_accounts(forker: HospitalForker, folder: Path, every: int) -> int:
    """
    Kill a hospital before its system calls, and check the account that two ledgers charge.

    The first ledger is in the account before; the second had spent two blocks without one.

    :param every: how far apart the calls are.
    :returns: how many calls a life has.
    """
    call = 0
    while True:
        place = folder / str(call)
        place.mkdir()
        first, path = (place / f'{name}{ACCOUNTED}' for name in ('first', 'second'))
        assert not forker.killed_before_call(first, _NEVER, blocks=1)
        with Ledger(path, Owner(**OWNER)) as ledger:
            _spend(path, ledger, 2)
        killed = forker.killed_before_call(path, call, blocks=2)
        head = check(path, None)
        assert not forker.killed_before_call(path, _NEVER, blocks=1)
        assert head is not None and check(path, head)
        # What a kill left in the account alone was found again.
        account = read_content(account_of(path)).chain
        assert [part.blocks for part in parts(account)] == [1, len(drawn(path))]
        if not killed:
            return call
        call += every


def _spend(path: Path, ledger: Ledger, blocks: int, beat: int = -1) -> None:
    """Go on after the last block that was drawn, as a trainer does from its checkpoint."""
    first = len(drawn(path))
    notes = os.open(notes_of(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in range(first, first + blocks):
        round, block = divmod(number, BLOCKS)
        ledger.reserve(
            round=round, block=block, charge=Charge(**CHARGE), inputs=b'weights of %d' % number
        )
        os.write(notes, _NOTE.pack(number))
        if beat >= 0:
            os.write(beat, b'.')
    os.close(notes)


def _opened(path: Path) -> Ledger:
    owner = Owner(**OWNER)
    if path.suffix == ACCOUNTED:
        return AccountedLedger(path, owner, account_of(path))
    return Ledger(path, owner)


def _live(path: Path, blocks: int, beat: int = -1) -> None:
    with _opened(path) as ledger:
        _spend(path, ledger, blocks, beat)


def _fork(life: Callable[[], None]) -> int:
    """Start a hospital; its exit status tells how it ended."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        life()
        status = 0
    except LedgerLockedError:
        status = LOCKED
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _end(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _trace(path: Path, call: int, blocks: int) -> int:
    """Run a hospital from one system call to the next, and kill it before one of them."""
    system = ctypes.CDLL(None, use_errno=True)

    def life() -> None:
        system.ptrace(_TRACE_ME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        _live(path, blocks)

    pid = _fork(life)
    stops = 0  # one at the beginning and one at the end of each call
    while True:
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        if stops == 2 * call + 1:
            os.kill(pid, signal.SIGKILL)
            return _end(pid)
        stops += 1
        if system.ptrace(_SYSCALL, pid, None, None):
            raise OSError(ctypes.get_errno(), 'ptrace')


def _crowd(path: Path, count: int, blocks: int) -> list[int]:
    """Let hospitals open a ledger at once; who could spends when all others know their lot."""
    begin, start = os.pipe()
    said, say = os.pipe()
    hold, release = os.pipe()

    def life() -> None:
        for each in (start, release):
            os.close(each)
        os.read(begin, 1)  # until the parent closes the other end
        try:
            ledger = Ledger(path, Owner(**OWNER))
        finally:
            os.write(say, b'.')
        with ledger:
            os.read(hold, 1)
            _spend(path, ledger, blocks)

    children = [_fork(life) for _ in range(count)]
    os.close(start)
    for _ in children:
        assert os.read(said, 1)
    os.close(release)
    for each in (begin, said, say, hold):
        os.close(each)
    return [_end(pid) for pid in children]


def _tell(answer: int) -> None:
    os.write(1, b'%d\n' % answer)


def _serve_requests(beat: int) -> None:
    # Else each hospital would live mostly in its first look at the budget.
    epsilon_rdp([Charge(**CHARGE)], OWNER['delta'])
    for line in sys.stdin:
        what, path, *numbers = line.split()
        given = [int(each) for each in numbers]
        if what == 'live':
            pid = _fork(partial(_live, Path(path), 10**9, beat))
            _tell(pid)
            _tell(_end(pid))
        elif what == 'trace':
            _tell(_trace(Path(path), *given))
        else:
            for status in _crowd(Path(path), *given):
                _tell(status)


if __name__ == '__main__':
    _serve_requests(int(sys.argv[1]))
