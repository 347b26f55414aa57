# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Heat maps of actions by policy and severity, with their spread over seeds (DP-DQN Figure 4)."""

from typing import Any

from fdrl_ros.worlds.icu_sepsis.model import LEVELS
from fdrl_ros.worlds.icu_sepsis.study.actions import spread
from fdrl_ros.worlds.icu_sepsis.values import BANDS
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
import numpy as np

_TOLD = 0.5
"""Percent above which the spread of a share is written."""


def draw_actions(figure: Figure, summary: dict[str, Any]) -> None:
    """Draw policies down, bands across; a red frame where the paper has most actions."""
    maps = summary['heat_maps']
    figure.set_size_inches(9.6, 3.1 * len(maps))
    grid = figure.subplots(len(maps), len(BANDS), squeeze=False)
    for line, (name, bands) in zip(grid, maps.items(), strict=True):
        for axes, band in zip(line, BANDS, strict=True):
            _draw_map(axes, bands[band]['shares'])
            peak = summary['paper']['peaks'].get(name, {}).get(band)
            if peak:
                vasopressor, fluid = peak
                place = (vasopressor - 0.5, fluid - 0.5)
                axes.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor='red', linewidth=1.8))
            runs = '' if bands[band]['shares']['low'] is None else ', % ± 95 % interval'
            axes.set_title(f'{name}: {band} SOFA{runs}', fontsize=8)
            axes.set_xlabel('vasopressor level', fontsize=8)
            axes.set_ylabel('fluid level', fontsize=8)


def _draw_map(axes: Axes, found: dict[str, Any]) -> None:
    shares = 100.0 * np.reshape(found['mean'], (LEVELS, LEVELS))
    wide = spread(found)
    spreads = None if wide is None else 100.0 * wide.reshape(LEVELS, LEVELS)
    axes.imshow(shares, cmap='Blues', origin='lower', vmin=0.0)
    for fluid, vasopressor in np.ndindex(LEVELS, LEVELS):
        value = shares[fluid, vasopressor]
        words = f'{value:.0f}'
        if spreads is not None and spreads[fluid, vasopressor] >= _TOLD:
            words += f'\n±{spreads[fluid, vasopressor]:.0f}'
        ink = 'white' if value > 0.6 * shares.max() else 'black'
        axes.text(vasopressor, fluid, words, ha='center', va='center', color=ink, fontsize=6.5)
