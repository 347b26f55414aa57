# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How fast the simulated operating room is, beside panda-gym and a bare PyBullet loop.

    python benchmark/env.py --json env.json

All is measured in one process on one core, in turns: one turn of everything, then the next, so
that a machine that slows down slows everybody. Steps a second include resets. Our envs replay
what the expert does, so that tissue is touched; panda-gym is given random actions that were
drawn before, without its wrappers. A step is what each env makes of it: 12 physics steps at 240 Hz
in ours and in the bare loop, 20 at 500 Hz in panda-gym. The peers come from
`pip install -r requirements/benchmark.txt`.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
import importlib.metadata
import json
import os
from pathlib import Path
import platform
import statistics
import sys
import time
from typing import Any

from fdrl_ros.env.actions import SUBSTEPS
import peers
from sampling import memory_growth, where_time_goes
from workloads import (
    batched_operations,
    inverse,
    operations,
    physiology,
    resets,
    SEED,
    Skipped,
    Work,
)


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
        done, start = 0, time.perf_counter()
        while True:
            done += work()
            elapsed = time.perf_counter() - start
            if elapsed >= seconds:
                break
        scale = {'us': 1e6, 'ms': 1e3}
        self.samples.append(
            done / elapsed if self.unit == 's-1' else scale[self.unit] * elapsed / done
        )


@dataclass(frozen=True)
class Row:
    """One line of the table; `goal` is met when the value is at least, or at most, that."""

    name: str
    own: str
    peer: str | None
    peer_words: str
    goal: float | None
    at_least: bool = True
    ratio: bool = False


def measurements() -> dict[str, Measurement]:
    """Return everything that is measured in turns."""
    return {
        'dynamic': Measurement(lambda: operations('dynamic'), 's-1'),
        'panda': Measurement(peers.panda_steps, 's-1'),
        'kinematic': Measurement(lambda: operations('kinematic'), 's-1'),
        'bullet': Measurement(peers.bullet_steps, 's-1'),
        'batched': Measurement(batched_operations, 's-1'),
        'mixed': Measurement(lambda: batched_operations('all'), 's-1'),
        'reset': Measurement(lambda: resets(False), 'ms'),
        'reset given': Measurement(lambda: resets(True), 'ms'),
        'panda reset': Measurement(peers.panda_resets, 'ms'),
        'ik': Measurement(inverse, 'us'),
        'bullet ik': Measurement(peers.bullet_inverse, 'us'),
        'physiology': Measurement(physiology, 'us'),
    }


PANDA = 'panda-gym PandaReach-v3'
BARE = f'bare PyBullet: KUKA, {SUBSTEPS} x stepSimulation'
ROWS = (
    Row('dynamic_steps_per_s', 'dynamic', 'bullet', BARE, 5000.0),
    Row('dynamic_over_panda_gym', 'dynamic', 'panda', f'{PANDA}, s-1', 3.0, ratio=True),
    Row('kinematic_steps_per_s', 'kinematic', 'panda', PANDA, 20000.0),
    Row('batched_steps_per_s', 'batched', 'panda', f'{PANDA}, one env', 100000.0),
    Row(
        'mixed_steps_per_s',
        'mixed',
        'panda',
        f'{PANDA}, one env',
        100000.0,
    ),
    Row('reset_ms', 'reset', 'panda reset', f'{PANDA} reset', 0.3, at_least=False),
    Row('reset_given_patient_ms', 'reset given', 'panda reset', f'{PANDA} reset', 0.3, False),
    Row('ik_us', 'ik', 'bullet ik', 'PyBullet calculateInverseKinematics, KUKA', 30.0, False),
    Row('physiology_us', 'physiology', None, '', 5.0, at_least=False),
)

GROWTH_GOAL = 5.0
"""Most that 100,000 resets may leave in memory, MB."""


def measure(repeats: int, seconds: float) -> dict[str, Measurement]:
    """Prepare everything, then let everything have its turn, several times."""
    all_of_them, ready = measurements(), {}
    for name, each in all_of_them.items():
        progress(f'preparing {name}')
        try:
            ready[name] = each.prepare()
        except Skipped as reason:
            each.reason = str(reason)
    for work in ready.values():
        work()
    for repeat in range(repeats):
        for name, work in ready.items():
            progress(f'repeat {repeat + 1} of {repeats}: {name}')
            all_of_them[name].add(work, seconds)
    return all_of_them


def entry(row: Row, found: dict[str, Measurement]) -> dict[str, Any]:
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
        spread = [mine / theirs for mine, theirs in zip(own.samples, peer.samples, strict=True)]
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


def table(
    found: dict[str, Measurement], growth: tuple[float | None, str], run: dict[str, Any]
) -> dict[str, Any]:
    """
    Print the table and return what goes into the file.

    :param growth: of the memory, MB; or none, and why.
    :param run: what every figure tells of how it came.
    """
    written: dict[str, Any] = {}
    print(f'{"name":24}{"median":>11} {"unit":4}{"min":>11}{"max":>11}{"goal":>10}  {"peer":>9}')
    for row in ROWS:
        try:
            made = entry(row, found)
        except Skipped as reason:
            print(f'{row.name:24}    not measured: {reason}')
            continue
        written[row.name] = made | run
        met = row.goal is None or (made['value'] >= row.goal) == row.at_least
        goal = '' if row.goal is None else f'{">=" if row.at_least else "<="} {row.goal:g}'
        figure = '-' if made['peer_value'] is None else f'{made["peer_value"]:.4g}'
        print(
            f'{row.name:24}{made["value"]:>11.4g} {made["unit"]:4}{made["minimum"]:>11.4g}'
            f'{made["maximum"]:>11.4g}{goal:>10}{" " if met else "!"} {figure:>9}  '
            f'{made["peer"] or ""}'
        )
    value, words = growth
    if value is None:
        print(f'{"memory_growth_mb":24}    not measured: {words}')
    else:
        missed = '!' if value > GROWTH_GOAL else ' '
        print(
            f'{"memory_growth_mb":24}{value:>11.4g} {"MB":26}{f"<= {GROWTH_GOAL:g}":>10}{missed}'
        )
        nobody = dict.fromkeys(('peer', 'peer_value'))
        written['memory_growth_mb'] = {'value': value, 'unit': 'MB'} | nobody | run
    print('"!" marks a goal that was missed; "peer" is the median of the peer in this run.')
    return written


def progress(words: str) -> None:
    """Say on standard error what is being done."""
    end = '' if sys.stderr.isatty() else '\n'
    print(f'\r\033[K{words}' if end == '' else words, end=end, file=sys.stderr, flush=True)


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


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description='Measure the speed of the simulated world.')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures here too')
    parser.add_argument('--repeats', type=int, default=5, help='turns of everything (5)')
    parser.add_argument('--seconds', type=float, default=1.0, help='of each in a turn (1)')
    parser.add_argument('--resets', type=int, default=100_000, help='that may leak (100000)')
    given = parser.parse_args()
    if given.repeats < 1 or not 0.0 < given.seconds < 3600.0 or given.resets < 0:
        parser.error('expected --repeats >= 1, --seconds above 0, --resets >= 0')
    if given.json and not given.json.absolute().parent.is_dir():
        parser.error(f'--json {given.json}: there is no such folder')
    return given


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    bound = one_core()
    load = ', '.join(f'{each:.1f}' for each in os.getloadavg())
    versions = ', '.join(
        f'{each} {importlib.metadata.version(each)}'
        for each in ('gymnasium', 'numpy', 'panda-gym', 'pybullet')
        if peers.has(each)
    )
    machine = f'{processor()}, {platform.machine()}, {bound}; load before: {load}'
    software = f'Python {platform.python_version()}, {versions}'
    print(f'{machine}.\n{software}. {given.repeats} turns of {given.seconds:g} s each.')
    if not peers.has('panda-gym'):
        print(peers.MISSING, file=sys.stderr)
    found = measure(given.repeats, given.seconds)
    growth: tuple[float | None, str] = None, '--resets 0'
    if given.resets:
        try:
            growth = memory_growth(given.resets, progress), ''
        except Skipped as reason:
            growth = None, str(reason)
    splits = {
        'dynamic': where_time_goes(operations('dynamic'), 3.0),
        'kinematic': where_time_goes(operations('kinematic'), 3.0),
        'batched': where_time_goes(batched_operations(), 3.0),
        'mixed': where_time_goes(batched_operations('all'), 3.0),
    }
    progress('')
    run = {
        'repeats': given.repeats,
        'seconds': given.seconds,
        'seed': SEED,
        'machine': machine,
        'software': software,
    }
    written = table(found, growth, run)
    for name, shares in splits.items():
        print(f'Where the time goes, {name}:')
        for place, share in shares:
            print(f'  {share:6.1%}  {place}')
    if given.json:
        given.json.write_text(json.dumps(written, indent=2) + '\n', 'utf-8')


if __name__ == '__main__':
    main()
