# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Poison a federation of 30 hospitals, with and without grouped sums: success of the others.

For example, after `make setup`, on other seeds than those that rules were chosen on
(docs/protocol.md):

  tools/in_workspace python tools/poison_trial.py --seeds 1,2,3,4,5 mean geometric_median:2

What is measured is kept, a file for each seed and attack, and not measured again. All of a seed
have the same records, public start, noise, buckets and unseen patients.
"""

import argparse
from pathlib import Path

from fdrl_ros.audit.poison import ATTACKS
from fdrl_ros.experiments.intervals import interval_words
from fdrl_ros.experiments.json_file import Json, write_json
from fdrl_ros.experiments.studies.poison import (
    BUCKETS,
    Defence,
    is_real,
    NOBODY_POISONS,
    run_poison,
    scene_of,
    TENTH,
    THIRD,
)
from fdrl_ros.runtime.progress import Caller, Progress

DEFENCES = ('mean', 'median', 'trimmed_mean', 'geometric_median', 'geometric_median:2')
BY_A_THIRD = (
    'sign_flip',
    'scaled',
    'label_flip_scaled',
    'adaptive_sign_flip',
    'adaptive_label_flip',
)


def main() -> None:
    """Measure what is missing, print the table and write summary.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument('--seeds', default='101,102')
    parser.add_argument('--patients', type=int, default=40, help='unseen ones of each hospital')
    parser.add_argument('--attacks', default=','.join(ATTACKS))
    parser.add_argument('--workers', type=int, default=1)
    parser.add_argument(
        '--real', action='store_true', help='compare one federation with the parties of the field'
    )
    parser.add_argument('--directory', type=Path, default=Path('runs/poison_trial'))
    parser.add_argument(
        'defences',
        nargs='*',
        default=DEFENCES,
        help='RULE, RULE:NORM or RULE:NORM:tested; mean has one sum, other rules have buckets',
    )
    chosen = parser.parse_args()
    defences = [defence_of(each) for each in chosen.defences]
    names = chosen.attacks.split(',')
    seeds = [int(each) for each in chosen.seeds.split(',')]
    if chosen.real:
        scene, defence = scene_of(seeds[0], chosen.directory, chosen.patients), defences[-1]
        same = is_real(scene, names[0], TENTH, defence)
        words = 'the very same policy' if same else 'ANOTHER POLICY'
        print(f'seed {seeds[0]}, {names[0]}, {defence.name}: {words} by the parties of the field')
        return
    if 'mean' not in chosen.defences:
        parser.error('mean has to be among the defences: all others are compared with it')
    attacks = [(NOBODY_POISONS, 0)]
    attacks += [(name, TENTH) for name in names]
    attacks += [(name, THIRD) for name in names if name in BY_A_THIRD]
    summary = run_poison(
        chosen.directory,
        seeds,
        attacks,
        defences,
        chosen.patients,
        Caller(tell, lambda: False),
        chosen.workers,
    )
    write_json(chosen.directory / 'summary.json', summary)
    show(summary)


def defence_of(words: str) -> Defence:
    """Read a defence."""
    rule, *more = words.split(':')
    norm = float(more[0]) if more else 0.0
    return Defence(rule, 0 if rule == 'mean' else BUCKETS, norm, 'tested' in more[1:])


def tell(progress: Progress) -> None:
    """Print what is done."""
    print(f'{progress.what} {progress.who}: {progress.done} of {progress.total}', flush=True)


def show(summary: Json) -> None:
    """
    Print success of the hospitals that do not poison, in %, and how much of the clean one is kept.

    Below, of the procedure of the backdoor alone, the difference to success if nobody poisons.
    """
    names = list(summary['attacks'][0]['defences'])
    print(f'| attack | hospitals | {" | ".join(names)} |')
    print('|---' * (len(names) + 2) + '|')
    for entry in summary['attacks']:
        found = entry['defences'].values()
        cells = [
            f'{interval_words(each["success"])}, {each["kept"]["mean"]:.0%}' for each in found
        ]
        print(f'| {entry["attack"]} | {entry["attackers"]} | {" | ".join(cells)} |')
    print('The procedure with the backdoor, points against the clean return:')
    for entry in summary['attacks']:
        leads = [interval_words(each['lead_in_backdoor']) for each in entry['defences'].values()]
        print(f'| {entry["attack"]} | {entry["attackers"]} | {" | ".join(leads)} |')


if __name__ == '__main__':
    main()
