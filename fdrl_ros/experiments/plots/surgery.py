# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Plots of a run of surgery: the force on one patient, and what the selector chose."""

from collections.abc import Mapping

from fdrl_ros.experiments.plots.drawing import LIMIT, style_of
from fdrl_ros.experiments.reports.names import reader_name
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.patient.patient import Patient
from matplotlib.axes import Axes
import numpy as np


def draw_force(axes: Axes, profile: Mapping[str, np.ndarray], patient: Patient) -> None:
    """
    Draw the force on one patient under several policies.

    :param profile: greatest normal force of each tick, by policy, N.
    """
    for name, forces in profile.items():
        times, colour = np.arange(1, len(forces) + 1) * TICK, style_of(name)['color']
        axes.plot(times, forces, color=colour, linewidth=1.2, label=reader_name(name))
    limit = patient.procedure.force_limit
    axes.axhline(limit, label='force limit', **LIMIT)
    axes.set_xlabel('time, s')
    axes.set_ylabel('greatest normal force in a tick, N')
    axes.set_title(f'Force on patient {patient.name}')
    axes.legend()


def draw_selection(axes: Axes, chosen: Mapping[str, int]) -> None:
    """Draw how often the selector took each policy."""
    names, total = sorted(chosen, key=lambda name: chosen[name]), sum(chosen.values())
    shares = [100.0 * chosen[name] / total for name in names]
    colours = [style_of(name)['color'] for name in names]
    bars = axes.barh([reader_name(name) for name in names], shares, color=colours)
    axes.bar_label(bars, [f'{each:.1f} %' for each in shares], padding=3, fontsize=7)
    axes.set_xlim(0.0, 1.12 * max(shares))
    axes.set_xlabel('share of ticks, %')
    axes.set_title('What the selector chose')
