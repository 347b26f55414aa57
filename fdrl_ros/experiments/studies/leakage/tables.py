# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tables of the leakage study, for the terminal and as Markdown."""

from collections.abc import Iterator

from fdrl_ros.experiments.intervals import interval_words
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.text_table import Grid
from fdrl_ros.experiments.studies.leakage.summary import EPSILONS, SEATS
from fdrl_ros.privacy.stated import stated

FORMS = {'auc': '.3f', 'tpr': '.3f', 'plr': '.4f'}
_WORDS = {'auc': 'AUC', 'tpr': 'TPR at 1 % FPR', 'plr': 'PLR, bits'}
_LIMITS = {'auc': 'auc', 'tpr': 'tpr', 'plr': 'information'}


def overview(summary: Json, metric: str) -> Grid:
    """
    Return what the attack of the highest AUC finds in each seat, and the bounds, by regime.

    :param metric: 'auc', 'tpr' or 'plr'.
    """
    regimes, form = summary['regimes'], FORMS[metric]
    rows: list[tuple[str, ...]] = []
    for seat, words in SEATS.items():
        cells = []
        for regime in regimes.values():
            attack = regime['strongest'][seat]
            found = interval_words(regime['seats'][seat][attack][metric], form)
            cells.append(f'{found}, {attack}' if metric == 'auc' else found)
        rows.append((words, *cells))
    for side, words in (('federated', 'bound, a hospital'), ('central', 'bound, centralised')):
        limits = (each['bounds'][side]['pair'][_LIMITS[metric]] for each in regimes.values())
        rows.append((words, *(f'{each:{form}}' for each in limits)))
    title = f'{_WORDS[metric]}: {len(summary["seeds"])} seeds, mean [95 % interval]'
    return Grid(title, ('seat', *regimes), rows)


def leakage_tables(summary: Json) -> Iterator[Grid]:
    """Yield an overview, then the tables of every regime."""
    yield from (overview(summary, metric) for metric in FORMS)
    for name, regime in summary['regimes'].items():
        yield _seats(name, regime, len(summary['seeds']))
    yield inversion(summary)
    yield effectiveness(summary)


def _seats(name: str, regime: Json, seeds: int) -> Grid:
    rows: list[tuple[str, ...]] = []
    for seat, words in SEATS.items():
        attacks = regime['seats'][seat]
        for attack in sorted(attacks, key=lambda each: -attacks[each]['auc']['mean']):
            each = attacks[attack]
            found = (interval_words(each[metric], form) for metric, form in FORMS.items())
            rows.append((words, attack, *found))
    for side, words in (('federated', 'bound, a hospital'), ('central', 'bound, centralised')):
        spent = regime['bounds'][side]
        most = (f'{spent["pair"][_LIMITS[metric]]:{form}}' for metric, form in FORMS.items())
        rows.append((words, f'epsilon {stated(spent["epsilon"])}, s = {spent["s"]:.3g}', *most))
    title = f'{name}: {regime["what"]}; {seeds} seeds, mean [95 % interval]'
    return Grid(title, ('seat', 'attack', *_WORDS.values()), rows)


def inversion(summary: Json) -> Grid:
    """Return how many records are named from an update, beside chance."""
    rows = []
    for name, regime in summary['regimes'].items():
        for update, each in regime['inversion'].items():
            prior = regime['prior']['step' if update.startswith('one step') else 'round']
            cells = (each['recall'], each['chance'], prior)
            rows.append((name, update, *(interval_words(cell, '.3f') for cell in cells)))
    title = 'Gradient inversion over all 1,728 (s, a): share of the records that is named'
    return Grid(
        title, ('regime', 'update', 'recall', 'any pair', 'likeliest pairs, no update seen'), rows
    )


def effectiveness(summary: Json) -> Grid:
    """Return D_KL by temperature, and how federation changes OPE by either epsilon."""
    rows = []
    for name, regime in summary['regimes'].items():
        for tau, each in regime['effectiveness'].items():
            divergence = regime['divergence'][tau]
            cells = [interval_words(divergence[side], '.3g') for side in ('federated', 'central')]
            cells += [interval_words(each[which]['change_percent'], '+.0f') for which in EPSILONS]
            rows.append((name, tau, *cells))
    headings = (
        'regime',
        'tau',
        'D_KL federated, nats',
        'D_KL centralised, nats',
        *(f'OPE change, %, {words}' for words in EPSILONS.values()),
    )
    return Grid(
        'D_KL (Eq. 19, 20) and OPE (Eq. 24): federated against centralised', headings, rows
    )
