# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Tables of the leakage study, for the terminal and as Markdown."""

from collections.abc import Iterator
from typing import NamedTuple

from fdrl_ros.experiments.intervals import interval_words
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.leakage.summary import SEATS


class Grid(NamedTuple):
    """A table: title, headings and rows of text."""

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [self.headings, ('---',) * len(self.headings), *self.rows]
        return f'## {self.title}\n\n' + '\n'.join(f'| {" | ".join(row)} |' for row in lines) + '\n'


def leakage_tables(summary: Json) -> Iterator[Grid]:
    """Yield the tables of every regime."""
    for name, regime in summary['regimes'].items():
        yield _seats(name, regime, len(summary['seeds']))
    yield _inversion(summary)
    yield _effectiveness(summary)


def _seats(name: str, regime: Json, seeds: int) -> Grid:
    rows: list[tuple[str, ...]] = []
    for seat, words in SEATS.items():
        attacks = regime['seats'][seat]
        for attack in sorted(attacks, key=lambda each: -attacks[each]['auc']['mean']):
            each = attacks[attack]
            cells = (interval_words(each['auc'], '.3f'), interval_words(each['tpr'], '.3f'))
            rows.append((words, attack, *cells, interval_words(each['plr'], '.4f')))
    for side, words in (('federated', 'bound, a hospital'), ('central', 'bound, centralised')):
        found = regime['bounds'][side]
        limits = found['pair']
        most = (f'{limits["auc"]:.3f}', f'{limits["tpr"]:.3f}', f'{limits["information"]:.4f}')
        rows.append((words, f'epsilon {found["epsilon"]:.3g}, s = {found["s"]:.3g}', *most))
    title = f'{name}: {regime["what"]}; {seeds} seeds, mean [95 % interval]'
    return Grid(title, ('seat', 'attack', 'AUC', 'TPR at 1 % FPR', 'PLR, bits'), rows)


def _inversion(summary: Json) -> Grid:
    rows = []
    for name, regime in summary['regimes'].items():
        for update, each in regime['inversion'].items():
            cells = (interval_words(each[what], '.3f') for what in ('recall', 'chance'))
            rows.append((name, update, *cells))
    title = 'Gradient inversion over all 1,728 (s, a): share of the records that is named'
    return Grid(title, ('regime', 'update', 'recall', 'chance'), rows)


def _effectiveness(summary: Json) -> Grid:
    rows = []
    for name, regime in summary['regimes'].items():
        for tau, each in regime['effectiveness'].items():
            divergence = regime['divergence'][tau]
            cells = [interval_words(divergence[side], '.3g') for side in ('federated', 'central')]
            cells += [
                interval_words(each[which]['change_percent'], '+.0f')
                for which in ('epsilon', 'epsilon_paper')
            ]
            rows.append((name, tau, *cells))
    headings = (
        'regime',
        'tau',
        'D_KL federated, nats',
        'D_KL centralised, nats',
        'OPE change, %, true epsilon',
        "OPE change, %, the paper's epsilon",
    )
    return Grid(
        'D_KL (Eq. 19, 20) and OPE (Eq. 24): federated against centralised', headings, rows
    )
