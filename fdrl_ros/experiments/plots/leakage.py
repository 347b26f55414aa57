# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plot of the leakage study: AUC of every attack by seat, a panel for each regime."""

from pathlib import Path

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.drawing import COLOURS, drawing, LIMIT, NEUTRAL
from fdrl_ros.experiments.studies.leakage.study import CONTROL
from fdrl_ros.experiments.studies.leakage.summary import SEATS

WIDTH, HEIGHT = 3.4, 3.6
"""Inches of a panel."""

ATTACKS = (
    'loss',
    'calibrated loss',
    'lira loss',
    'alignment',
    'calibrated alignment',
    'lira alignment',
    f'{CONTROL} loss',
)


def draw_leakage(summary: Json, path: Path) -> None:
    """
    Draw AUC with intervals by seat, chance, and the bounds where epsilon is finite.

    :param summary: as :func:`fdrl_ros.experiments.studies.leakage.summary.summarise` returns it.
    :raises OSError: if the file cannot be written.
    """
    regimes = summary['regimes']
    caption = (
        'Area under the ROC of membership attacks: means over seeds with 95 % intervals. Dotted: '
        'chance. Dashed: what differential privacy bounds, for a hospital (black) and centralised '
        '(gray).'
    )
    with drawing(path, (WIDTH * len(regimes) + 1.5, HEIGHT), caption) as figure:
        panels = figure.subplots(1, len(regimes), squeeze=False, sharey=True)[0]
        for axes, (name, regime) in zip(panels, regimes.items(), strict=True):
            axes.set_title(name, fontsize=9)
            axes.set_xlabel('AUC', fontsize=8)
            axes.axvline(0.5, linestyle=':', color=NEUTRAL)
            for side, colour in (('federated', 'black'), ('central', 'gray')):
                bound = regime['bounds'][side]['pair']['auc']
                if bound < 1.0:
                    axes.axvline(bound, **{**LIMIT, 'color': colour})
            for row, seat in enumerate(SEATS):
                for place, attack in enumerate(ATTACKS):
                    found = regime['seats'][seat].get(attack)
                    if found is None:
                        continue
                    at, auc = row + 0.1 * (place - 3), found['auc']
                    label = attack if (row, name) == (2, next(iter(regimes))) else None
                    axes.plot(auc['mean'], at, 'o', color=COLOURS[place], ms=3, label=label)
                    if auc['low'] is not None:
                        ends = auc['low'], auc['high']
                        axes.plot(ends, (at, at), color=COLOURS[place], linewidth=1)
            axes.set_yticks(range(len(SEATS)), list(SEATS.values()), fontsize=7)
        panels[0].invert_yaxis()
        figure.legend(loc='outside right upper', fontsize=6)
