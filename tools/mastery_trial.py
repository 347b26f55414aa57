# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Try settings of the study of mastery on a choosing seed: one part, some rows, a table.

For example, after `make setup`:

  tools/in_workspace python tools/mastery_trial.py --rows alone,federated learner.epochs=24

Settings are those of a plan and change all rows; what a row changes itself stays as it is. Public
starts are kept in runs/mastery_trial, so the next trial with the same ones is quick.
"""

import argparse
from pathlib import Path
import time

from fdrl_ros.experiments.studies.mastery.evaluation import MEASURES
from fdrl_ros.experiments.studies.mastery.settings import base_plan, Cell, FULL, plan_of
from fdrl_ros.experiments.studies.mastery.study import (
    learn_starts,
    LEARNING,
    measure_cell,
    measure_robust,
    start_parts,
    study_of_starts,
)
from fdrl_ros.experiments.study import digest_of, Work
from fdrl_ros.runtime.progress import NOBODY
import numpy as np
import yaml

USUAL = 'alone,global,own_layers,personal,federated,pooled,pooled_without_privacy'


def main() -> None:
    """Read the settings, run the part, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--seed', type=int, default=901)
    parser.add_argument('--heterogeneity', type=float, default=0.5)
    parser.add_argument('--gap', type=float, default=1.0)
    parser.add_argument('--records', type=int, default=500)
    parser.add_argument('--patients', type=int, default=400, help='unseen ones of each hospital')
    parser.add_argument('--rows', default=USUAL, help=f'that learn; by default {USUAL}')
    parser.add_argument('--robust', action='store_true', help='try disturbances too')
    parser.add_argument('settings', nargs='*', help='group.name=value')
    chosen = parser.parse_args()
    changes: dict[str, dict[str, object]] = {}
    for each in chosen.settings:
        place, _, value = each.partition('=')
        group, _, name = place.partition('.')
        changes.setdefault(group, {})[name] = yaml.safe_load(value)
    plan, rows = base_plan().changed(changes), chosen.rows.split(',')
    folder, started = Path('runs/mastery_trial'), time.perf_counter()
    recipes = {name: each for group in LEARNING.values() for name, each in group.items()}
    names = sorted({'cloning', *(recipes[name].start for name in rows)})
    parts = start_parts(plan, [chosen.seed], FULL, names)
    folder = folder / digest_of({each.name: each.settings for each in parts})[:12]
    study = study_of_starts(folder, plan.evaluation.workers)
    starts = learn_starts(study, parts, NOBODY)[chosen.seed]
    print(f'public starts: {time.perf_counter() - started:.0f} s')
    cell = Cell(chosen.heterogeneity, chosen.gap, chosen.records)
    plan, started = plan_of(plan, cell, chosen.seed), time.perf_counter()
    work = Work(folder, ('trial', str(cell)), NOBODY)
    bench = measure_cell(plan, starts, chosen.patients, work, rows)
    found = bench.found
    print(f'{cell}, seed {chosen.seed}: {time.perf_counter() - started:.0f} s')
    print(f'{"row":32}{"home":>7}{"away":>7}   by hospital, %' + 24 * ' ' + 'by procedure, %')
    for name, by_hospital in found['home'].items():
        own = [100 * each[MEASURES[0]] for each in by_hospital.values()]
        counts: dict[str, np.ndarray] = {}
        for each in by_hospital.values():
            for done, numbers in each['procedures'].items():
                counts[done] = counts.get(done, np.zeros(2)) + numbers
        shares = ' '.join(f'{n[:5]} {100 * c[1] / c[0]:.0f}' for n, c in sorted(counts.items()))
        away = found['away'].get(name, {}).get(MEASURES[0], float('nan'))
        print(
            f'{name:32}{np.mean(own):7.1f}{100 * away:7.1f}   '
            + ' '.join(f'{each:5.1f}' for each in own)
            + f'   {shares}  {" ".join(found.get("chosen", {}).get(name, {}).values())}'
        )
    if chosen.robust:
        for name, by_row in measure_robust(bench, chosen.patients).items():
            print(f'{name:32}', {row: round(100 * each, 1) for row, each in by_row.items()})
    print('epsilon:', {name: round(each, 3) for name, each in found['epsilon'].items()})


if __name__ == '__main__':
    main()
