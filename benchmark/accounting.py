# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How fast epsilon is known, beside Opacus and dp-accounting.

    python benchmark/accounting.py --json accounting.json

Each figure is of a history that was never asked for before: nothing of it is remembered. The
peers come from `pip install -r requirements/benchmark.txt`; they are asked for what suits them,
10,000 steps of one kind, since data that grow take them minutes.
"""

from collections.abc import Callable
import itertools
import logging
import time
from typing import Any
import warnings

from benchmarking import (
    check,
    circumstances,
    has,
    measure,
    Measurement,
    options,
    progress,
    Row,
    Skipped,
    Table,
    Timed,
    Work,
    write,
)
from fdrl_ros.privacy.accountant.accountant import Account, Charge

SEED = 0
"""Nothing is drawn."""
STEPS = 10_000
DELTA = 1e-5
NOISE, SAMPLING = 2.0, 0.64
"""Of the history of one kind: the most that a hospital of 50 patients may ask for."""
GROWN_NOISE, BATCH, BEGUN = 1.1, 64, 1000
"""Of the growing one: batches of 64 out of 1,000 records and one more each step."""
ERROR = 0.5
"""Nats that Opacus' PRV may err: at its usual 0.01 it takes minutes here."""


def growing(turn: int) -> list[Charge]:
    """Return a step of each of 10,000 sampling probabilities, other ones each turn."""
    noise = GROWN_NOISE + 1e-9 * turn
    return [Charge(noise, BATCH / (BEGUN + i), 1) for i in range(STEPS)]


def queries() -> Callable[[], float]:
    """Return work that adds a step of a new kind to a history, and times adding and asking, s."""
    histories = (iter([Account(DELTA), *growing(turn)]) for turn in itertools.count())
    charges = itertools.chain.from_iterable(histories)
    account = Account(DELTA)

    def work() -> float:
        nonlocal account
        charge = next(charges)
        if isinstance(charge, Account):
            account, charge = charge, next(charges)
        begun = time.perf_counter()
        account.add(charge)
        account.epsilon_rdp()
        return time.perf_counter() - begun

    return work


def tight() -> Work:
    """Return work that asks for the tight epsilon of 10,000 steps of one kind."""
    turns = itertools.count()

    def work() -> int:
        Account(DELTA, [Charge(NOISE + 1e-9 * next(turns), SAMPLING, STEPS)]).epsilon_pld()
        return 1

    return work


def tight_growing() -> Work:
    """Return work that asks for the tight epsilon of 10,000 steps of as many kinds."""
    turns = itertools.count()

    def work() -> int:
        Account(DELTA, growing(next(turns))).epsilon_pld()
        return 1

    return work


def tight_block() -> Work:
    """Return work that adds a block of a new kind to these, and asks for the tight epsilon."""
    account = Account(DELTA, growing(0))
    account.epsilon_pld()
    turns = itertools.count()

    def work() -> int:
        account.add(Charge(GROWN_NOISE, BATCH / (BEGUN + STEPS + next(turns)), 20))
        account.epsilon_pld()
        return 1

    return work


def opacus(name: str, **wanted: float) -> Work:
    """
    Return work that asks an accountant of Opacus for epsilon of 10,000 steps of one kind.

    :param name: 'RDP' or 'PRV'.
    :raises Skipped: if Opacus is not installed.
    """
    if not has('opacus'):
        raise Skipped('opacus is missing: pip install -r requirements/benchmark.txt')
    from opacus import accountants

    def work() -> int:
        accountant: Any = getattr(accountants, f'{name}Accountant')()
        accountant.history = [(NOISE, SAMPLING, STEPS)]
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            accountant.get_epsilon(delta=DELTA, **wanted)
        return 1

    return work


def library() -> Work:
    """
    Return work that asks dp-accounting's PLD, at an interval of 1e-3, for the same.

    :raises Skipped: if dp-accounting is not installed.
    """
    if not has('dp-accounting'):
        raise Skipped('dp-accounting is missing')
    from dp_accounting.pld import privacy_loss_distribution

    logging.getLogger('absl').setLevel(logging.ERROR)

    def work() -> int:
        step = privacy_loss_distribution.from_gaussian_mechanism(
            NOISE, sampling_prob=SAMPLING, value_discretization_interval=1e-3
        )
        step.self_compose(STEPS).get_epsilon_for_delta(DELTA)
        return 1

    return work


def measurements() -> dict[str, Measurement]:
    """Return everything that is measured in turns."""
    return {
        'query': Timed(queries, 'ms'),
        'opacus rdp': Measurement(lambda: opacus('RDP'), 'ms'),
        'tight': Measurement(tight, 's'),
        'opacus prv': Measurement(lambda: opacus('PRV', eps_error=ERROR), 's'),
        'library': Measurement(library, 's'),
        'growing': Measurement(tight_growing, 's'),
        'block': Measurement(tight_block, 'ms'),
    }


LIBRARY = 'dp-accounting PLD, one kind, s'
ROWS = (
    Row('epsilon_query_ms', 'query', 'opacus rdp', 'Opacus RDP, one kind, ms', 1.0, False),
    Row('tight_epsilon_s', 'tight', 'library', LIBRARY, 0.3, False),
    Row('tight_epsilon_beside_prv_s', 'tight', 'opacus prv', 'Opacus PRV, s', 0.3, False),
    Row('tight_epsilon_changing_s', 'growing', 'library', LIBRARY, 2.0, False),
    Row('tight_epsilon_block_ms', 'block', None, '', None, False),
)


def median(name: str, repeats: int = 5, seconds: float = 0.0) -> float:
    """
    Return one figure by itself, for other benchmarks.

    :param name: of the measurement.
    :raises Skipped: if it cannot be measured here.
    """
    measurement = measurements()[name]
    work = measurement.prepare()
    work()
    for _ in range(repeats):
        measurement.add(work, seconds)
    return measurement.median


def epsilon_query_ms() -> float:
    """Return what it takes to add a step of a new kind and ask for the Renyi bound, ms."""
    return median('query', seconds=0.2)


def tight_epsilon_s(changing: bool = False) -> float:
    """
    Return what the tight epsilon of 10,000 steps takes, s.

    :param changing: whether each has a sampling probability of its own.
    """
    return median('growing' if changing else 'tight')


def main() -> None:
    """Measure, print, write."""
    parser = options('Measure how fast epsilon is known.')
    given = parser.parse_args()
    check(parser, given)
    run = circumstances(given, SEED, ('numpy', 'scipy', 'dp-accounting', 'opacus'))
    found = measure(measurements(), given.repeats, given.seconds)
    progress('')
    made = Table([row.name for row in ROWS], run)
    for row in ROWS:
        made.add(row, found)
    made.end()
    if given.json:
        write(given.json, made.written)


if __name__ == '__main__':
    main()
