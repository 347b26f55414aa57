# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What the benchmarks share: everything measured in turns, the table, and the figures as JSON.

One turn of everything, then the next, so that a machine that slows down slows everybody.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
import importlib.metadata
import importlib.util
import json
import linecache
import os
from pathlib import Path
import platform
import re
import signal
import statistics
import sys
import time
from types import FrameType
from typing import Any

if importlib.util.find_spec('fdrl_ros') is None:
    sys.path.append(str(Path(__file__).parents[1]))

Work = Callable[[], float]
"""Do some work and return how many units of it were done."""

_SCALE = {'us': 1e6, 'ms': 1e3, 's': 1.0, 'min': 1.0 / 60.0}

PROCESS = {
    'OMP_NUM_THREADS': '1',
    'OPENBLAS_NUM_THREADS': '1',
    'MKL_NUM_THREADS': '1',
    # glibc keeps freed memory: the peers gain by it up to a factor of two, ours next to nothing.
    'MALLOC_MMAP_THRESHOLD_': '1073741824',
    'MALLOC_TRIM_THRESHOLD_': '2147483648',
}
"""What must be set before a process starts, for ours and the peers alike."""


class Skipped(Exception):
    """Something cannot be measured here; the message says why."""


def has(package: str) -> bool:
    """Say whether a package is installed."""
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


@dataclass
class Measurement:
    """
    One figure: what is repeated, and what came out in each repeat.

    :param prepare: makes the work; raises :class:`Skipped` when that cannot be.
    :param unit: of the figure; 's-1' counts units a second, the others time one unit.
    """

    prepare: Callable[[], Work]
    unit: str
    samples: list[float] = field(default_factory=list)
    reason: str = ''

    @property
    def median(self) -> float:
        """Return the middle of the repeats."""
        return statistics.median(self.samples)

    def add(self, work: Work, seconds: float) -> None:
        """Repeat the work for so long, and keep the figure."""
        done, start = 0.0, time.perf_counter()
        while True:
            done += work()
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                break
        self.samples.append(
            done / elapsed if self.unit == 's-1' else _SCALE[self.unit] * elapsed / done
        )


class Timed(Measurement):
    """A figure whose work looks at the clock itself: it returns the seconds that one unit took."""

    def add(self, work: Work, seconds: float) -> None:
        """Repeat the work for so long, and keep the mean of what it returns."""
        taken, end = [work()], time.perf_counter() + seconds
        while time.perf_counter() < end:
            taken.append(work())
        self.samples.append(_SCALE[self.unit] * statistics.fmean(taken))


@dataclass(frozen=True)
class Row:
    """
    One line of the table; `goal` is met when the value is at least, or at most, that.

    :param ratio: 'own/peer' divides our figure by the peer's of the same turn, 'peer/own' the
        other way; without it the value is our figure.
    """

    name: str
    own: str
    peer: str | None
    peer_words: str
    goal: float | None
    at_least: bool = True
    ratio: str = ''


def measure(
    all_of_them: Mapping[str, Measurement], repeats: int, seconds: float, *, warm: bool = True
) -> Mapping[str, Measurement]:
    """
    Prepare everything, then let everything have its turn, several times.

    :param warm: whether everything is done once before, without being measured.
    """
    ready = {}
    for name, each in all_of_them.items():
        progress(f'preparing {name}')
        try:
            ready[name] = each.prepare()
        except Skipped as reason:
            each.reason = str(reason)
    for name, work in ready.items() if warm else ():
        progress(f'warming {name}')
        work()
    for repeat in range(repeats):
        for name, work in ready.items():
            progress(f'repeat {repeat + 1} of {repeats}: {name}')
            all_of_them[name].add(work, seconds)
    return all_of_them


def entry(row: Row, found: Mapping[str, Measurement]) -> dict[str, Any]:
    """
    Return one row as it is written.

    :raises Skipped: if it, or the peer that it is divided by, was not measured.
    """
    own, peer = found[row.own], found[row.peer] if row.peer else None
    reason = own.reason or (row.ratio and peer is not None and peer.reason)
    if reason:
        raise Skipped(reason)
    value, unit, spread = own.median, own.unit, own.samples
    if row.ratio and peer is not None:
        pairs = zip(own.samples, peer.samples, strict=True)
        spread = [a / b if row.ratio == 'own/peer' else b / a for a, b in pairs]
        value, unit = statistics.median(spread), '1'
    known = peer is not None and not peer.reason
    return {
        'value': value,
        'unit': unit,
        'peer': row.peer_words or None,
        'peer_value': peer.median if known and peer is not None else None,
        'minimum': min(spread),
        'maximum': max(spread),
    }


class Table:
    """
    The figures, printed one below the other, and kept for the file.

    :param names: of all figures that may come, for the width of the column.
    :param run: what every figure tells of how it came.
    """

    def __init__(self, names: Sequence[str], run: dict[str, Any]) -> None:
        self.written: dict[str, Any] = {}
        self._run = run
        self._width = max(24, *(len(name) + 1 for name in names))
        print(
            f'{"name":{self._width}}{"median":>11} {"unit":4}{"min":>11}{"max":>11}'
            f'{"goal":>10}       {"peer":>9}'
        )

    def add(self, row: Row, found: Mapping[str, Measurement]) -> None:
        """Add what was measured in turns, or say why it was not."""
        try:
            made = entry(row, found)
        except Skipped as reason:
            self._left_out(row.name, str(reason))
            return
        self._add_row(row.name, made, f'{made["minimum"]:>11.4g}{made["maximum"]:>11.4g}', row)

    def add_one(
        self,
        row: Row,
        value: float | None,
        unit: str,
        *,
        words: str = '',
        peer_value: float | None = None,
    ) -> None:
        """
        Add a figure that was measured once.

        :param words: why it was not, if there is none.
        """
        if value is None:
            self._left_out(row.name, words)
            return
        peer = row.peer_words or None
        made = {'value': value, 'unit': unit, 'peer': peer, 'peer_value': peer_value}
        self._add_row(row.name, made, ' ' * 22, row)

    def end(self) -> None:
        """Explain the signs."""
        print('"missed" is said of a goal; "peer" is the median of the peer in this run.')

    def _add_row(self, name: str, made: dict[str, Any], spread: str, row: Row) -> None:
        self.written[name] = made | self._run
        value, goal = made['value'], ''
        met = True
        if row.goal is not None:
            met = value >= row.goal if row.at_least else value <= row.goal
            goal = f'{">=" if row.at_least else "<="} {row.goal:g}'
        figure = '-' if made['peer_value'] is None else f'{made["peer_value"]:.4g}'
        line = (
            f'{name:{self._width}}{value:>11.4g} {made["unit"]:4}{spread}'
            f'{goal:>10}{"" if met else " missed":7}'
        )
        if made['peer'] or spread.strip():
            line += f' {figure:>9}  {made["peer"] or ""}'
        print(line)

    def _left_out(self, name: str, reason: str) -> None:
        print(f'{name:{self._width}}    not measured: {reason}')


def progress(words: str) -> None:
    """Say on standard error what is being done."""
    end = '' if sys.stderr.isatty() else '\n'
    print(f'\r\033[K{words}' if end == '' else words, end=end, file=sys.stderr, flush=True)


def show_shares(title: str, shares: Sequence[tuple[str, float]]) -> None:
    """Print where the time goes."""
    print(f'Where the time goes, {title}:')
    for place, share in shares:
        print(f'  {share:6.1%}  {place}')


def write(path: Path, written: dict[str, Any]) -> None:
    """Write the figures."""
    path.write_text(json.dumps(written, indent=2) + '\n', 'utf-8')


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back what C code writes to standard output, such as a library's warnings."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def as_process() -> None:
    """Start this process anew, unless it was started with all of :data:`PROCESS`."""
    if any(os.environ.get(name) != value for name, value in PROCESS.items()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | PROCESS)


def one_core() -> str:
    """Stay on one core, where the system lets us, and say so."""
    if not hasattr(os, 'sched_setaffinity'):
        return 'not bound to a core'
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return f'bound to core {core}'


def processor() -> str:
    """Return what the system calls the processor."""
    listed = Path('/proc/cpuinfo')
    lines = listed.read_text('utf-8').splitlines() if listed.exists() else []
    names = [line.partition(':')[2].strip() for line in lines if line.startswith('model name')]
    return names[0] if names else platform.processor()


def circumstances(
    given: argparse.Namespace, seed: int, packages: Sequence[str], *, bind: bool = True
) -> dict[str, Any]:
    """
    Print what every figure tells of how it came, and return it.

    :param bind: whether to bind this process to one core; not where others are measured.
    """
    bound = one_core() if bind else f'{os.cpu_count()} cores'
    load = ', '.join(f'{each:.1f}' for each in os.getloadavg())
    versions = ', '.join(
        f'{each} {importlib.metadata.version(each)}' for each in packages if has(each)
    )
    machine = f'{processor()}, {platform.machine()}, {bound}; load before: {load}'
    software = f'Python {platform.python_version()}, {versions}'
    turns = f' {given.repeats} turns of {given.seconds:g} s each.' if given.seconds else ''
    print(f'{machine}.\n{software}.{turns}')
    return {
        'repeats': given.repeats,
        'seconds': given.seconds,
        'seed': seed,
        'machine': machine,
        'software': software,
    }


def options(description: str) -> argparse.ArgumentParser:
    """Return the options that every benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures here too')
    parser.add_argument('--repeats', type=int, default=5, help='turns of everything (5)')
    parser.add_argument('--seconds', type=float, default=1.0, help='of each in a turn (1)')
    return parser


def check(parser: argparse.ArgumentParser, given: argparse.Namespace) -> None:
    """Refuse options that cannot be."""
    if given.repeats < 1 or not 0.0 < given.seconds < 3600.0:
        parser.error('expected --repeats >= 1, --seconds above 0')
    if given.json and not given.json.absolute().parent.is_dir():
        parser.error(f'--json {given.json}: there is no such folder')


PERIOD = 0.0007
"""Between two looks at where the time goes, s."""

SHOWN = 8
"""Places that are named, the busiest first."""

PACKAGE = str(Path(importlib.util.find_spec('fdrl_ros').origin).parent) + os.sep


def resident() -> float:
    """
    Return the memory that this process holds now, MB.

    :raises Skipped: where the system does not say.
    """
    try:
        pages = int(Path('/proc/self/statm').read_text('ascii').split()[1])
    except OSError:
        raise Skipped('this system has no /proc/self/statm') from None
    return pages * os.sysconf('SC_PAGE_SIZE') / 1e6


def peak() -> float:
    """
    Return the most memory that this process ever held, MB.

    :raises Skipped: where the system does not say.
    """
    from fdrl_ros.runtime.stopwatch import peak_memory

    if (held := peak_memory()) is None:
        raise Skipped('this system does not tell the most memory of a process')
    return held


def memory_growth(given: Work, drawn: Work, count: int, progress: Callable[[str], None]) -> float:
    """
    Return what so many resets leave in memory, MB.

    :param given: resets with a given patient, which half of them are.
    :param drawn: resets with one that is drawn.
    """
    for _ in range(1000):
        given(), drawn()
    before = resident()
    for turn in range(count // 2):
        if turn % 2500 == 0:
            progress(f'memory: {2 * turn} of {count} resets')
        given(), drawn()
    return resident() - before


def where_time_goes(work: Work, seconds: float) -> list[tuple[str, float]]:
    """
    Look at the running work now and then, which slows it little, and return shares by place.

    A place is a module of this package, or a call of it into PyBullet.
    """
    places: dict[tuple[str, int | None], float] = {}
    last = 0.0

    def look(_signal: int, frame: FrameType | None) -> None:
        nonlocal last
        # A long call into C, as a write to disk, is seen once, at its end, and counts in full.
        now = time.perf_counter()
        since, last = now - last, now
        while frame is not None and not frame.f_code.co_filename.startswith(PACKAGE):
            frame = frame.f_back
        if frame is not None:
            place = frame.f_code.co_filename, frame.f_lineno
            places[place] = places.get(place, 0.0) + since

    work()
    last = time.perf_counter()
    old = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, PERIOD, PERIOD)
    try:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, old)
    shares: dict[str, float] = {}
    whole = sum(places.values())
    for (file, number), spent in places.items():
        called = re.search(r'pybullet\.([a-z]\w+)\(', linecache.getline(file, number or 0))
        place = f'PyBullet {called[1]}' if called else file.removeprefix(PACKAGE)
        shares[place] = shares.get(place, 0.0) + spent / whole
    return sorted(shares.items(), key=lambda each: -each[1])[:SHOWN]
