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
from collections.abc import Mapping
import sys
from typing import Any

from benchmarking import (
    check,
    circumstances,
    has,
    measure,
    Measurement,
    memory_growth,
    options,
    progress,
    Row,
    show_shares,
    Skipped,
    Table,
    where_time_goes,
    write,
)
import env_work
from env_work import batched_operations, inverse, operations, physiology, resets, SEED
from fdrl_ros.surgery.gym.actions import SUBSTEPS


def measurements() -> dict[str, Measurement]:
    """Return everything that is measured in turns."""
    return {
        'dynamic': Measurement(lambda: operations('dynamic'), 's-1'),
        'panda': Measurement(env_work.panda_steps, 's-1'),
        'kinematic': Measurement(lambda: operations('kinematic'), 's-1'),
        'bullet': Measurement(env_work.bullet_steps, 's-1'),
        'batched': Measurement(batched_operations, 's-1'),
        'mixed': Measurement(lambda: batched_operations('all'), 's-1'),
        'reset': Measurement(lambda: resets(False), 'ms'),
        'reset given': Measurement(lambda: resets(True), 'ms'),
        'panda reset': Measurement(env_work.panda_resets, 'ms'),
        'ik': Measurement(inverse, 'us'),
        'bullet ik': Measurement(env_work.bullet_inverse, 'us'),
        'physiology': Measurement(physiology, 'us'),
    }


PANDA = 'panda-gym PandaReach-v3'
BARE = f'bare PyBullet: KUKA, {SUBSTEPS} x stepSimulation'
ROWS = (
    Row('dynamic_steps_per_s', 'dynamic', 'bullet', BARE, 5000.0),
    Row('dynamic_over_panda_gym', 'dynamic', 'panda', f'{PANDA}, s-1', 3.0, ratio='own/peer'),
    Row('kinematic_steps_per_s', 'kinematic', 'panda', PANDA, 20000.0),
    Row('batched_steps_per_s', 'batched', 'panda', f'{PANDA}, one env', 100000.0),
    Row('mixed_steps_per_s', 'mixed', 'panda', f'{PANDA}, one env', 100000.0),
    Row('reset_ms', 'reset', 'panda reset', f'{PANDA} reset', 0.3, at_least=False),
    Row('reset_given_patient_ms', 'reset given', 'panda reset', f'{PANDA} reset', 0.3, False),
    Row('ik_us', 'ik', 'bullet ik', 'PyBullet calculateInverseKinematics, KUKA', 30.0, False),
    Row('physiology_us', 'physiology', None, '', 5.0, at_least=False),
)

GROWTH = Row('memory_growth_mb', '', None, '', 5.0, at_least=False)
"""What 100,000 resets leave in memory, MB."""


def table(
    found: Mapping[str, Measurement], growth: tuple[float | None, str], run: dict[str, Any]
) -> dict[str, Any]:
    """
    Print the table and return what goes into the file.

    :param growth: of the memory, MB; or none, and why.
    :param run: what every figure tells of how it came.
    """
    made = Table([row.name for row in ROWS], run)
    for row in ROWS:
        made.add(row, found)
    value, words = growth
    made.add_one(GROWTH, value, 'MB', words=words)
    made.end()
    return made.written


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = options('Measure the speed of the simulated world.')
    parser.add_argument('--resets', type=int, default=100_000, help='that may leak (100000)')
    given = parser.parse_args()
    check(parser, given)
    if given.resets < 0:
        parser.error('expected --resets >= 0')
    return given


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    run = circumstances(given, SEED, ('gymnasium', 'numpy', 'panda-gym', 'pybullet'))
    if not has('panda-gym'):
        print(env_work.MISSING, file=sys.stderr)
    found = measure(measurements(), given.repeats, given.seconds)
    growth: tuple[float | None, str] = None, '--resets 0'
    if given.resets:
        try:
            growth = memory_growth(resets(True), resets(False), given.resets, progress), ''
        except Skipped as reason:
            growth = None, str(reason)
    splits = {
        'dynamic': where_time_goes(operations('dynamic'), 3.0),
        'kinematic': where_time_goes(operations('kinematic'), 3.0),
        'batched': where_time_goes(batched_operations(), 3.0),
        'mixed': where_time_goes(batched_operations('all'), 3.0),
    }
    progress('')
    written = table(found, growth, run)
    for name, shares in splits.items():
        show_shares(name, shares)
    if given.json:
        write(given.json, written)


if __name__ == '__main__':
    main()
