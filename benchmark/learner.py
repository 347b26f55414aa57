# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How fast private learning is, beside plain PyTorch, Opacus and Stable-Baselines3.

    python benchmark/learner.py --json learner.json

All is measured in one process on one core with one thread, in turns: one turn of everything, then
the next, so that a machine that slows down slows everybody. Our figures hold all that a hospital
pays: Poisson sampling, noise from a secret key, a block reserved in the ledger on disk before each
local epoch, a checkpoint after it, and the tight epsilon at the end of a round. The peers come
from `pip install -r requirements/benchmark.txt`.
"""

import argparse
from collections.abc import Callable, Mapping
import os
from pathlib import Path
import statistics
import tempfile
import time
from typing import Any

import accounting
from benchmarking import (
    as_process,
    check,
    circumstances,
    measure,
    Measurement,
    options,
    progress,
    Row,
    show_shares,
    Skipped,
    Table,
    where_time_goes,
    Work,
    write,
)
import learner_peers as peers
from learner_work import (
    cart_pole_steps,
    hospitals_steps,
    LARGE,
    peak_of,
    private_steps,
    SEED,
    SMALL,
)


def measurements(folder: Path) -> dict[str, Measurement]:
    """
    Return everything that is measured in turns.

    :param folder: for ledgers and checkpoints.
    """

    def by_torch(private: bool, dueling: bool = True, size: Any = SMALL) -> Callable[[], Work]:
        return lambda: peers.torch_steps(size, dueling=dueling, private=private)

    known = accounting.measurements()
    return {
        'private': Measurement(lambda: private_steps(SMALL, folder), 'us'),
        'plain': Measurement(by_torch(False), 'us'),
        'plain mlp': Measurement(by_torch(False, dueling=False), 'us'),
        'opacus': Measurement(by_torch(True), 'us'),
        'opacus mlp': Measurement(by_torch(True, dueling=False), 'us'),
        'patients': Measurement(lambda: private_steps(SMALL, folder, 'patient'), 'us'),
        'cloning': Measurement(lambda: private_steps(SMALL, folder, 'patient', CLONING), 'us'),
        'weighted': Measurement(lambda: private_steps(SMALL, folder, 'patient', WEIGHTED), 'us'),
        'large': Measurement(lambda: private_steps(LARGE, folder), 'us'),
        'large plain': Measurement(by_torch(False, size=LARGE), 'us'),
        'large opacus': Measurement(by_torch(True, size=LARGE), 'us'),
        'hospitals': Measurement(lambda: hospitals_steps(SMALL, folder), 's-1'),
        'sequential': Measurement(lambda: peers.opacus_hospitals(SMALL, dueling=True), 's-1'),
        'sequential mlp': Measurement(lambda: peers.opacus_hospitals(SMALL, dueling=False), 's-1'),
        'online': Measurement(lambda: cart_pole_steps(folder), 's-1'),
        'sb3': Measurement(peers.stable_baselines_steps, 's-1'),
    } | {each: known[each] for each in ACCOUNTING}


ACCOUNTING = ('query', 'opacus rdp', 'tight', 'library', 'growing')
"""What of accounting.py is measured too."""

CLONING, WEIGHTED = 'behaviour_cloning', 'advantage_weighted'
DQN = 'double DQN, patient level, us'
PLAIN = 'torch SGD, not private, dueling, us'
PLAIN_MLP = 'torch SGD, not private, not dueling, us'
OPACUS = 'Opacus hooks, dueling, us'
OPACUS_MLP = 'Opacus hooks, not dueling, us'
LEVEL = 'transition level, us'
IN_TURN = 'Opacus hooks, one by one, dueling, s-1'
IN_TURN_MLP = 'Opacus hooks, one by one, not dueling, s-1'
SB3 = 'Stable-Baselines3 DQN, not private, s-1'
ROWS = (
    Row('dp_step_us', 'private', 'plain', PLAIN, None),
    Row('dp_step_over_plain_step', 'private', 'plain', PLAIN, 0.67, False, 'own/peer'),
    Row('dp_step_over_plain_mlp', 'private', 'plain mlp', PLAIN_MLP, 0.67, False, 'own/peer'),
    Row('speedup_over_opacus', 'private', 'opacus', OPACUS, 9.0, True, 'peer/own'),
    Row('speedup_over_opacus_mlp', 'private', 'opacus mlp', OPACUS_MLP, 9.0, True, 'peer/own'),
    Row('patient_step_us', 'patients', 'private', LEVEL, None),
    Row('patient_over_transition_step', 'patients', 'private', LEVEL, 1.5, False, 'own/peer'),
    Row('cloning_over_dqn_step', 'cloning', 'patients', DQN, None, False, 'own/peer'),
    Row('weighted_over_dqn_step', 'weighted', 'patients', DQN, None, False, 'own/peer'),
    Row('dueling_step_us', 'large', 'large plain', PLAIN, None),
    Row('dueling_step_over_plain_step', 'large', 'large plain', PLAIN, None, False, 'own/peer'),
    Row('speedup_over_opacus_dueling', 'large', 'large opacus', OPACUS, 7.0, True, 'peer/own'),
    Row('thirty_hospitals_steps_per_s', 'hospitals', 'sequential', IN_TURN, None),
    Row('thirty_hospitals_speedup', 'hospitals', 'sequential', IN_TURN, 25.0, True, 'own/peer'),
    Row(
        'thirty_hospitals_speedup_mlp',
        'hospitals',
        'sequential mlp',
        IN_TURN_MLP,
        25.0,
        True,
        'own/peer',
    ),
    Row('cart_pole_steps_per_s', 'online', 'sb3', SB3, None),
    Row('speedup_over_sb3', 'online', 'sb3', SB3, 5.0, True, 'own/peer'),
    *(row for row in accounting.ROWS if {row.own, row.peer} <= {*ACCOUNTING}),
)
MEMORY = Row('memory_per_hospital_mb', '', None, 'Opacus, its process, MB', 500.0, at_least=False)
"""The most that a process takes which trains one hospital with the larger network."""


def table(
    found: Mapping[str, Measurement],
    memory: Mapping[str, tuple[float | None, str]],
    run: dict[str, Any],
) -> dict[str, Any]:
    """
    Print the table and return what goes into the file.

    :param memory: of the process of 'own' and of 'opacus', MB; or none, and why.
    :param run: what every figure tells of how it came.
    """
    made = Table([row.name for row in (*ROWS, MEMORY)], run)
    for row in ROWS:
        made.add(row, found)
    value, words = memory['own']
    made.add_one(MEMORY, value, 'MB', words=words, peer_value=memory['opacus'][0])
    made.end()
    return made.written


def peak(who: str, folder: Path) -> tuple[float | None, str]:
    """Return how much memory a process takes, or none, and why."""
    progress(f'memory: {who}')
    try:
        return peak_of(who, folder), ''
    except Skipped as reason:
        return None, str(reason)


def syncing(folder: Path) -> float:
    """Return what it takes to write 4 KiB durably, ms: a block of steps does so a few times."""
    spent = []
    with open(folder / 'synced', 'wb') as file:
        for _ in range(20):
            file.write(bytes(4096))
            file.flush()
            begun = time.perf_counter()
            os.fsync(file.fileno())
            spent.append(time.perf_counter() - begun)
    return 1e3 * statistics.median(spent)


def splits(folder: Path) -> dict[str, list[tuple[str, float]]]:
    """Return where the time of private learning goes."""
    works = {
        'a private step': lambda: private_steps(SMALL, folder),
        'a private step at patient level': lambda: private_steps(SMALL, folder, 'patient'),
        'a private step, dueling 47-128-128-25': lambda: private_steps(LARGE, folder),
        '30 hospitals in turn': lambda: hospitals_steps(SMALL, folder),
        'CartPole': lambda: cart_pole_steps(folder),
    }
    shares = {}
    for name, prepare in works.items():
        progress(f'where the time goes: {name}')
        shares[name] = where_time_goes(prepare(), 3.0)
    return shares


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = options('Measure the speed of private learning.')
    parser.add_argument(
        '--folder',
        type=Path,
        default=Path(),
        help='on a disk; ledgers are written in a temporary folder in it (this folder)',
    )
    given = parser.parse_args()
    check(parser, given)
    if not given.folder.is_dir():
        parser.error(f'--folder {given.folder}: there is no such folder')
    return given


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    as_process()
    run = circumstances(given, SEED, ('gymnasium', 'numpy', *peers.PACKAGES))
    with tempfile.TemporaryDirectory(dir=given.folder, prefix='benchmark_') as name:
        folder = Path(name)
        run['sync_ms'] = syncing(folder)
        print(f'Writing 4 KiB durably takes {run["sync_ms"]:.2g} ms here.')
        found = measure(measurements(folder), given.repeats, given.seconds)
        memory = {who: peak(who, folder) for who in ('own', 'opacus')}
        shares = splits(folder)
    progress('')
    written = table(found, memory, run)
    for title, share in shares.items():
        show_shares(title, share)
    if given.json:
        write(given.json, written)


if __name__ == '__main__':
    main()
