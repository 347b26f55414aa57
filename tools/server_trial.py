# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Compare optimisers of the server on the study of mastery: success by hospital, paired by seed.

For example, after `make setup`, with rates that were chosen on other seeds (docs/protocol.md):

  tools/in_workspace python tools/server_trial.py --seeds 1,2,3,4,5 fedavg=1 fedavgm=1:0.5

The optimiser `scaffold` is FedAvg with control variates of hospitals (docs/adr/0007): each adds
its number, the rate, times c - c_i to its noised gradients, where c_i is the mean of those that
it took in the round before, and c the mean of all c_i.

What is measured is kept in a file, a line for each part, and not measured again. All optimisers
of a seed have the same records, public start, noise and unseen patients.
"""

import argparse
from dataclasses import replace
import json
from pathlib import Path
from typing import Any

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.intervals import Interval, interval, paired
from fdrl_ros.experiments.studies.mastery.learning import (
    ByHospital,
    calibrated,
    collect,
    federate,
    Learned,
    planned,
    trainers_of,
)
from fdrl_ros.experiments.studies.mastery.settings import (
    base_plan,
    Cell,
    FULL,
    plan_of,
    Recipe,
    Sizes,
)
from fdrl_ros.experiments.studies.mastery.study import (
    Bench,
    learn_starts,
    start_parts,
    study_of_starts,
)
from fdrl_ros.federation.plain import PlainFederation
from fdrl_ros.learner.trainer import Trainer
from fdrl_ros.runtime.progress import NOBODY
import numpy as np

PUBLIC, SCAFFOLD = 'public start', 'scaffold'


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--seeds', default='101,102')
    parser.add_argument('--rounds', default='3,10')
    parser.add_argument('--records', type=int, default=100, help='patients of each hospital')
    parser.add_argument('--patients', type=int, default=400, help='unseen ones of each hospital')
    parser.add_argument('--public', type=int, default=6000, help='patients of the public start')
    parser.add_argument('--steps', type=int, default=20000, help='of its learning')
    parser.add_argument('--heterogeneity', type=float, default=1.0)
    parser.add_argument('--directory', type=Path, default=Path('runs/server_trial'))
    parser.add_argument('optimizers', nargs='+', help='name=rate or name=rate:momentum')
    chosen = parser.parse_args()
    cell = Cell(chosen.heterogeneity, 1.0, chosen.records)
    keys = [
        (int(seed), int(rounds), each)
        for seed in chosen.seeds.split(',')
        for rounds in chosen.rounds.split(',')
        for each in chosen.optimizers
    ]
    path = chosen.directory / f'h_{cell.heterogeneity:g}_of_{cell.patients}.jsonl'
    found = kept(path)
    for seed in dict.fromkeys(seed for seed, *_ in keys):
        missing = [key for key in keys if key[0] == seed and key not in found]
        if missing:
            sizes = replace(FULL, public=chosen.public, steps=chosen.steps)
            measure(cell, seed, missing, chosen.patients, path, sizes)
    show(kept(path), keys)


def kept(path: Path) -> dict[tuple[int, int, str], dict[str, float]]:
    """Return the success by hospital of what was measured."""
    lines = path.read_text('utf-8').splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(each['seed'], each['rounds'], each['optimizer']): each['success'] for each in rows}


def measure(
    cell: Cell,
    seed: int,
    keys: list[tuple[int, int, str]],
    patients: int,
    path: Path,
    sizes: Sizes,
) -> None:
    """Let the hospitals of a seed learn with each optimiser, and keep how patients fared."""
    plan = base_plan()
    study = study_of_starts(path.parent / 'starts', 1)
    start = learn_starts(study, start_parts(plan, [seed], sizes, ['cloning']), NOBODY)
    weights = start[seed]['cloning']
    plan = plan_of(plan, cell, seed)
    bench, records = Bench(plan, patients), collect(plan, lambda: False)
    everybody = dict.fromkeys(records, weights)
    bench.try_everywhere(PUBLIC, plan.network, everybody, weights)
    for _, rounds, each in keys:
        name, _, numbers = each.partition('=')
        rate, _, momentum = numbers.partition(':')
        server = {'optimizer': name, 'rate': float(rate), 'momentum': float(momentum or 0.9)}
        server = {} if name == SCAFFOLD else server
        changes = {'home': {'epochs': 0}, 'rounds': {'rounds': rounds}, 'server': server}
        if name == SCAFFOLD:
            learned = controlled(plan, Recipe(changes), records, weights, float(rate))
        else:
            learned = federate(plan, Recipe(changes), records, weights, 'global')
        bench.try_learned(each, learned)
        success = {
            what: {hospital: own['success'] for hospital, own in bench.found['home'][what].items()}
            for what in (each, PUBLIC)
        }
        row = {'seed': seed, 'rounds': rounds, 'optimizer': each, 'epsilon': learned.epsilon}
        row |= {'success': success[each], PUBLIC: success[PUBLIC]}
        with path.open('a', encoding='utf-8') as file:
            file.write(json.dumps(row) + '\n')


def controlled(
    plan: Plan, recipe: Recipe, records: ByHospital, start: np.ndarray, rate: float
) -> Learned:
    """Let hospitals learn together as `federate` does, with control variates."""
    plan = calibrated(planned(plan, recipe), next(iter(records.values())))
    with trainers_of(plan, records, 'global', start) as trainers:
        variates = [ControlVariate(each, rate) for each in trainers.values()]
        federation = PlainFederation(trainers, start, plan.network.layout)
        for _ in range(plan.rounds.rounds):
            shared = federation.play()
            for each in variates:
                each.end_round()
            common = np.mean([each.own for each in variates], axis=0)
            for each in variates:
                each.common = common
        epsilon = max(each.ledger.epsilon() for each in trainers.values())
    return Learned(plan.network, dict.fromkeys(records, shared), shared, epsilon)


class ControlVariate:
    """A hospital's control variate: it is made of gradients that are noised and charged."""

    def __init__(self, trainer: Trainer, rate: float) -> None:
        """Have a trainer add `rate` (common - own) to each gradient."""
        size = trainer.dqn.size
        self.own, self.common = np.zeros(size), np.zeros(size)
        self._sum, self._count = np.zeros(size), 0
        private_gradient = trainer.private_gradient

        def corrected(*arguments: Any) -> np.ndarray:
            gradient = private_gradient(*arguments)
            self._sum += gradient
            self._count += 1
            return gradient + rate * (self.common - self.own)

        trainer.private_gradient = corrected  # type: ignore[method-assign]

    def end_round(self) -> None:
        """Take the mean gradient of the round as the hospital's own."""
        self.own = self._sum / self._count
        self._sum, self._count = np.zeros_like(self.own), 0


def show(
    found: dict[tuple[int, int, str], dict[str, float]], keys: list[tuple[int, int, str]]
) -> None:
    """Print success in %, by hospital and of all, and the lead over the first optimiser."""
    seeds = list(dict.fromkeys(seed for seed, *_ in keys))
    first = keys[0][2]
    for rounds, each in dict.fromkeys((rounds, each) for _, rounds, each in keys):
        rows = [found[seed, rounds, each] for seed in seeds]
        base = [found[seed, rounds, first] for seed in seeds]
        by_hospital = ' | '.join(
            told(interval([100.0 * row[name] for row in rows])) for name in rows[0]
        )
        means = [100.0 * sum(row.values()) / len(row) for row in rows]
        others = [100.0 * sum(row.values()) / len(row) for row in base]
        lead = told(paired(means, others))
        print(f'| {rounds} | {each} | {by_hospital} | {told(interval(means))} | {lead} |')


def told(found: Interval) -> str:
    """Return mean and ends of an interval."""
    if found['low'] is None:
        return f'{found["mean"]:.1f}'
    return f'{found["mean"]:.1f} [{found["low"]:.1f}, {found["high"]:.1f}]'


if __name__ == '__main__':
    main()
