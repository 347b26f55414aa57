# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plot of the study of mastery: rows at home in the default cells, and all cells."""

from pathlib import Path

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.drawing import draw_points, drawing, style_of
from fdrl_ros.experiments.reports.names import reader_name
import numpy as np

SIZE = (12.0, 9.6)

ROWS = ('federated', 'alone', 'global', 'public_start')
"""Those of the panels of cells."""


def draw_mastery(summary: Json, path: Path) -> None:
    """
    Draw the rows of each default cell, and over gap and records how the main ones do.

    :param summary: as :func:`fdrl_ros.experiments.studies.mastery.study.run_mastery` returns it.
    :raises OSError: if the file cannot be written.
    """
    levels, cells = summary['levels'], summary['cells']
    caption = 'Means over seeds with 95 % intervals; own unseen patients of each hospital.'
    with drawing(path, SIZE, caption) as figure:
        every = figure.subplots(len(levels), 3, squeeze=False)
        for axes, (level, found) in zip(every, levels.items(), strict=True):
            names = sorted(found['home'], key=lambda name: found['home'][name]['mean'])
            places = np.arange(len(names))
            for place, name in zip(places, names, strict=True):
                one = found['home'][name]
                style = style_of(name)
                axes[0].plot(100 * one['mean'], place, **style)
                if one['low'] is not None:
                    ends = 100 * one['low'], 100 * one['high']
                    axes[0].plot(ends, (place, place), color=style['color'])
            axes[0].set_yticks(places, [reader_name(name) for name in names], fontsize=7)
            axes[0].set_title(f'H = {level}: all rows')
            axes[0].set_xlabel('success, %')
            own = [each for each in cells if f'{each["heterogeneity"]:g}' == level]
            for panel, what, fixed, value, words in (
                (axes[1], 'gap', 'patients', 500, 'gap (500 patients of each hospital)'),
                (axes[2], 'patients', 'gap', 1.0, 'patients of each hospital (gap 1)'),
            ):
                shown = [each for each in own if each[fixed] == value]
                for name in ROWS:
                    where = [each[what] for each in shown]
                    rows = [each['home'][name] for each in shown]
                    style = {'label': reader_name(name), **style_of(name)}
                    draw_points(panel, where, rows, 100.0, fmt='-', **style)
                panel.set_xlabel(words)
                panel.set_ylabel('success, %')
            axes[2].set_xscale('log')
        figure.legend(*every[0, 1].get_legend_handles_labels(), loc='outside upper right', ncols=4)
