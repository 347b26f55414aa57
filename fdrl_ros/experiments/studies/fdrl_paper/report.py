# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The report of the FDRL paper's experiments: claims first, then figures, tables, provenance."""

from collections import Counter
from pathlib import Path

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.fdrl_paper import draw_figures
from fdrl_ros.experiments.reports.page import Page, Picture, Section
from fdrl_ros.experiments.studies.fdrl_paper.claims import (
    NOT,
    PARTLY,
    REPRODUCED,
    UNMEASURABLE,
)
from fdrl_ros.experiments.studies.fdrl_paper.settings import FdrlSettings, FEWEST_SEEDS
from fdrl_ros.experiments.studies.fdrl_paper.tables import claims_grid, surgery_grid, tables
from fdrl_ros.experiments.studies.leakage.tables import leakage_tables
from fdrl_ros.experiments.study import digest_of

RULES = (
    'Every verdict follows one rule for its kind of claim. A claimed change is reproduced if it '
    'has the claimed sign beyond chance (95 %) and its interval holds the claimed size or it is '
    'larger; partly if it is smaller; not otherwise. A claimed level or margin is '
    'reproduced or not if the whole interval lies on one side of it. A ratio whose denominator '
    'cannot be told from 0 is not measurable.'
)


def verdicts(summary: Json) -> str:
    """Count the verdicts in one sentence."""
    count = Counter(each['verdict'] for each in summary['claims'])
    words = [f'{count[each]} {each}' for each in (REPRODUCED, PARTLY, NOT, UNMEASURABLE)]
    return f'{len(summary["claims"])} readings of the claims: {", ".join(words)}'


def write_report(directory: Path, summary: Json, settings: FdrlSettings, command: str) -> None:
    """
    Draw the figures and write ``fdrl.html`` and ``fdrl.md``.

    :param command: that repeats all of it.
    :raises StoreError: if a file cannot be written.
    """
    shown = draw_figures(summary, directory, settings)
    figures = {name: Picture(directory / f'{name}.png', words) for name, words in shown.items()}
    few = len(summary['seeds']) < FEWEST_SEEDS
    about = (
        'Experiments of Hafeez et al. 2025 (arXiv 2505.12153), in a world of 5 numbers and 3 '
        'actions made after its section IV: records are single transitions, each of a patient of '
        'its own. The paper published neither code nor data, so methods are compared, not '
        'digits. Noise here is seeded, so nothing of this is private.'
    )
    if few:
        about += f' Fewer than {FEWEST_SEEDS} seeds: a look, no claim.'
    names = {
        'fig3': 'Figure 3: round by round',
        'fig4': 'Figure 4: noise against accuracy and privacy',
        'fig5': 'Figure 5: four measures',
        'fig6': 'Figure 6: heterogeneity and noise',
        'fig7': 'Figure 7: what federation changes',
        'records': 'Where federation begins to pay',
    }
    surgical = []
    if 'surgery' in summary:
        surgical = [Section('In surgery', [surgery_grid(summary['surgery'])])]
    page = Page(
        'The experiments of the FDRL paper',
        about,
        [
            Section('Claims and verdicts', [verdicts(summary) + '.', RULES, claims_grid(summary)]),
            *(Section(title, [figures[name]]) for name, title in names.items()),
            Section('Policies, hospitals, cost', list(tables(summary, settings))),
            *surgical,
            Section('Attacks from every seat', list(leakage_tables(summary['leakage']))),
        ],
        {
            'command': command,
            'seeds': ', '.join(map(str, summary['seeds'])),
            'settings': ', '.join(f'{k}={v}' for k, v in summary['settings'].items()),
            'digest of the settings': digest_of(summary['settings']),
        },
    )
    page.write(directory / 'fdrl')
