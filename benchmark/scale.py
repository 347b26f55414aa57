# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How long a round of hundreds of hospitals takes, beside Flower's secure aggregation.

    tools/in_workspace python benchmark/scale.py --json scale.json

Each figure comes from a process of its own. A round is the second one of a federation whose
parties are all real and all in one process: keys, shares, masks, encryption, bounds, signatures
and their checks, settling, adding, decrypting, releasing. Only training is a known step, and
state lies in memory. Flower's own code plays its round (`crypto_flower.py`) with as many others
for each hospital; it neither encrypts nor signs, and bounds nothing. Processor time is that of
the whole process. `growth` is the processor time of twice as many hospitals over that of as many.

`round_200_two_cores_s` is the time from one policy to the next in `fdrl train --engine ray --cores
2`, by the journal: with training of a few milliseconds and all files on the disk.

`hospital_10000_ms` and `hospital_10000_bytes` are one hospital's processor time and what it sends
in a round with 10,000 (`scale_hospital.py`), without its training.

`zenoh_over_local` is the time of a round of three hospitals over links (`fdrl link`: a process for
each party, a router, mutual TLS) over that of the same round in one process, both with training of
a few milliseconds and their files on the disk: from one policy to the next, by the journal.

`link_50_kb_ms` and `link_20_mb_ms` are the median times that so many bytes take from one party
over the router to another one.

Flower is not measured unless it is installed (`requirements/flower.txt`), two cores not without
`requirements/ray.txt`, links not without `requirements/zenoh.txt`.
"""

import argparse
from collections.abc import Callable
import json
from pathlib import Path
import subprocess
import sys
from typing import Any

from benchmarking import as_process, circumstances, has, progress, Row, Skipped, Table, write
import crypto_flower
from crypto_work import SEED
from fdrl_ros.crypto.masking.neighbourhoods import (
    default_neighbours,
    fewest_neighbours,
    MOST_COMPLETE,
)
from fdrl_ros.errors import PluginError

WORK = Path(__file__).with_name('scale_work.py')
SIZES = (100, 200, 500, 1000)
QUICK = (10, 20)
GOALS = {
    'round_200_two_cores_s': 12.0,
    'round_1000_s': 120.0,
    'round_1000_two_cores_s': 120.0,
    'memory_1000_mb': 6000.0,
}
CORES = 2
"""Of the rounds on several cores."""
GROWTH = 2.3
THOUSANDS, MOST_BYTES, MOST_MS = 10_000, 200_000.0, 60.0
"""Hospitals around one, and what it may send and compute in a round, B and ms."""
ROUNDS = 30
"""Of three hospitals, over links and in one process."""
CARRIED = (('50_kb', 50_000, 200), ('20_mb', 20_000_000, 10))
"""What is carried from one party over a router to another: name, bytes, and how often."""
LATER = 0.3
"""What a round over links may take beside 1.5 times that in one process, second."""
PACKAGES = ('numpy', 'tenseal', 'cryptography', 'flwr', 'ray', 'eclipse-zenoh')
FLOWER = 'Flower SecAgg+, as many others, no HE, no signatures, s'

Found = dict[str, float]


class Processes:
    """
    Measures, each time in a fresh process.

    :param longest: that one may take, second.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._found: dict[tuple[object, ...], Found | str] = {}

    def measure(self, what: str, *numbers: int) -> Found:
        """
        Measure something, or return what was found before.

        :raises Skipped: if it takes too long, or failed.
        """
        key = (what, *numbers)
        if key not in self._found:
            progress(' '.join(map(str, key)))
            self._found[key] = self._run(key)
        found = self._found[key]
        if isinstance(found, str):
            raise Skipped(found)
        return found

    def _run(self, key: tuple[object, ...]) -> Found | str:
        words = [sys.executable, str(WORK), *map(str, key)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=self._longest)
        except subprocess.TimeoutExpired:
            return f'it takes more than {self._longest:g} s'
        if done.returncode:
            return (done.stderr.splitlines() or ['no word'])[-1]
        found: Found = json.loads(done.stdout)
        return found


def measure(made: Table, processes: Processes, given: argparse.Namespace) -> None:
    """Measure everything, and add it to the table."""
    sizes = QUICK if given.quick else given.hospitals

    def add(
        name: str,
        value: Callable[[], float],
        unit: str = 's',
        goal: float | None = None,
        peer: Callable[[], float] | None = None,
        words: str = '',
    ) -> None:
        row = Row(name, '', None, words, GOALS.get(name, goal), False)
        try:
            known = peer() if peer else None
        except Skipped as reason:
            print(f'{words}: {reason}', file=sys.stderr)
            known = None
        try:
            made.add_one(row, value(), unit, peer_value=known)
        except Skipped as reason:
            made.add_one(row, None, unit, words=str(reason))

    def degree(count: int) -> int:
        """Return with how many others each of so many hospitals masks; 0: with all."""
        if given.neighbours >= 0:
            return 0 if given.neighbours >= count - 1 else given.neighbours
        if not given.one_honest_server:
            return default_neighbours(count)
        return fewest_neighbours(count, withstands_lies=False) if count > MOST_COMPLETE else 0

    def spent(what: str, count: int, name: str) -> Callable[[], float]:
        return lambda: processes.measure(what, count, degree(count))[name]

    def peer(count: int, name: str) -> Callable[[], float]:
        def measured() -> float:
            if not has('flwr'):
                raise Skipped(f'flwr is missing: {crypto_flower.INSTALL}')
            return processes.measure('flower', count, degree(count))[name]

        return measured

    def on_cores(count: int) -> Callable[[], float]:
        def measured() -> float:
            if not has('ray'):
                raise Skipped('ray is missing: pip install -r requirements/ray.txt')
            return processes.measure('ray', count, CORES)['wall']

        return measured

    for count in sizes:
        ours, theirs = spent('round', count, 'wall'), peer(count, 'wall')
        add(f'round_{count}_s', ours, 's', None, theirs, FLOWER)
        ours, theirs = spent('round', count, 'cpu'), peer(count, 'cpu')
        add(f'round_{count}_cpu_s', ours, 's', None, theirs, FLOWER.replace(', s', ', CPU s'))
        if degree(count) == default_neighbours(count):
            add(f'round_{count}_two_cores_s', on_cores(count))
        add(f'memory_{count}_mb', spent('round', count, 'mb'), 'MB')
        add(f'neighbours_{count}', lambda count=count: degree(count) or count - 1, '1')
    twice = [count for count in sizes if 2 * count in sizes]
    for count in twice:
        name = 'growth' if count == twice[-1] else f'growth_from_{count}'
        add(
            name,
            lambda count=count: (
                spent('round', 2 * count, 'cpu')() / spent('round', count, 'cpu')()
            ),
            '1',
            GROWTH,
            lambda count=count: peer(2 * count, 'cpu')() / peer(count, 'cpu')(),
            f'the same of Flower, {count} to {2 * count}',
        )
    around = QUICK[-1] if given.quick else THOUSANDS
    one = f'hospital_{around}'

    def part(name: str) -> float:
        return processes.measure('hospital', around, degree(around))[name]

    add(f'{one}_bytes', lambda: part('sent'), 'B', MOST_BYTES)
    add(f'{one}_received_bytes', lambda: part('received'), 'B')
    add(f'{one}_ms', lambda: 1e3 * part('cpu'), 'ms', MOST_MS)
    rounds = 3 if given.quick else ROUNDS

    def linked() -> float:
        if not has('eclipse-zenoh'):
            raise Skipped(str(PluginError('fdrl link', 'eclipse-zenoh is missing')))
        return processes.measure('zenoh', rounds)['wall']

    def local() -> float:
        return processes.measure('local', rounds)['wall']

    try:
        goal = 1.5 + LATER / local()
    except Skipped:
        goal = None
    words = 'the same round in one process, s'
    add('zenoh_over_local', lambda: linked() / local(), '1', goal)
    add('zenoh_round_s', linked, 's', None, local, words)
    for name, size, times in CARRIED:

        def carried(size: int = size, times: int = times) -> float:
            if not has('eclipse-zenoh'):
                raise Skipped(str(PluginError('fdrl link', 'eclipse-zenoh is missing')))
            return 1e3 * processes.measure('wire', size, times)['median']

        add(f'link_{name}_ms', carried, 'ms')


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description='Measure rounds of many hospitals.')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures here too')
    parser.add_argument(
        '--hospitals',
        type=lambda words: tuple(map(int, words.split(','))),
        default=SIZES,
        help=f'numbers of them, with commas ({",".join(map(str, SIZES))})',
    )
    parser.add_argument(
        '--neighbours',
        type=int,
        default=-1,
        help='others that a hospital masks with; 0: all (as many as a new federation has)',
    )
    parser.add_argument(
        '--one-honest-server',
        action='store_true',
        help='as many as the weaker promise takes, for which one server must be honest',
    )
    parser.add_argument(
        '--longest', type=float, default=900.0, help='that a process may take, second (900)'
    )
    parser.add_argument('--quick', action='store_true', help='a few hospitals, for the form')
    given = parser.parse_args()
    if given.json and not given.json.absolute().parent.is_dir():
        parser.error(f'--json {given.json}: there is no such folder')
    if min(given.hospitals) < 3 or given.neighbours < -1 or not given.longest > 0.0:
        parser.error('expected three hospitals or more, --neighbours >= -1, --longest above 0')
    given.repeats, given.seconds = 1, 0.0
    return given


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    as_process()
    run: dict[str, Any] = circumstances(given, SEED, PACKAGES, bind=False)
    run['one_honest_server'] = given.one_honest_server
    names = [f'round_{count}_cpu_s' for count in (*given.hospitals, *QUICK)]
    made = Table([*names, 'zenoh_over_local'], run)
    try:
        measure(made, Processes(given.longest), given)
    except KeyboardInterrupt:
        sys.exit('\ninterrupted: nothing is written')
    progress('')
    made.end()
    if given.json:
        write(given.json, made.written)


if __name__ == '__main__':
    main()
