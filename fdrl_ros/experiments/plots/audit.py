# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plot of an audit: claimed and proven epsilon of every seed, and the scores of canaries."""

from pathlib import Path
from typing import Any

from fdrl_ros.experiments.reports.table import DISCLAIMER
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
import numpy as np

SIZE = (11.0, 4.2)
DOTS = 130
STYLES = {
    'claimed': ('_', 'black', 'claimed by the accountant'),
    'gaussian': ('s', 'tab:orange', 'proven if noise is isotropic and Gaussian'),
    'bound': ('o', 'tab:blue', 'proven, whatever the mechanism is'),
    'attainable': ('x', 'gray', 'mean proof on a flawless mechanism'),
}
"""Marker, colour and words of each number."""


def draw_audit(summary: dict[str, Any], path: Path) -> None:
    """
    Draw what was claimed and what was proven.

    :param summary: as :func:`fdrl_ros.experiments.studies.audit.run_audit` returns it.
    :raises OSError: if the file cannot be written.
    """
    figure = Figure(SIZE, layout='constrained')
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    parts = summary['parts']
    places = np.arange(len(parts))
    for name, (marker, colour, words) in STYLES.items():
        values = [each[name] for each in parts]
        size = 14 if marker == '_' else 6
        left.plot(
            places, values, marker, color=colour, label=words, markersize=size, markeredgewidth=2
        )
    left.set_xticks(places, [str(each['seed']) for each in parts])
    left.set_xlabel('seed')
    left.set_ylabel(f'epsilon at delta = {parts[0]["delta"]:g}')
    left.set_ylim(0.0, 1.35 * max(each[name] for each in parts for name in STYLES))
    left.set_title('Epsilon, claimed and proven')
    left.legend(fontsize=7, loc='upper left')
    scores = parts[0]['scores']
    edges = np.array(scores['edges'])
    for name, colour in (('others', 'tab:gray'), ('members', 'tab:red')):
        right.stairs(scores[name], edges, fill=True, alpha=0.5, color=colour, label=name)
    right.set_xlabel('log of how much likelier a member is (nats)')
    right.set_ylabel('canaries')
    right.set_title(f'Scores of canaries, seed {parts[0]["seed"]}')
    right.legend(fontsize=7)
    chosen = summary['settings']['audit']
    figure.supxlabel(
        f'{parts[0]["canaries"]} canaries among {parts[0]["patients"]} patients, confidence '
        f'{100.0 * (1.0 - chosen["failure"]):g} % a seed. {DISCLAIMER}',
        fontsize=7,
        color='dimgray',
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DOTS)
