# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The report of the FDRL paper's experiments: claims first, then figures, tables, provenance."""

from collections import Counter
from collections.abc import Iterable
import hashlib
from pathlib import Path

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.fdrl_paper import draw_figures
from fdrl_ros.experiments.reports.command import command_of
from fdrl_ros.experiments.reports.page import Notice, Page, Picture, Section
from fdrl_ros.experiments.reports.text_table import NOT_PRIVATE
from fdrl_ros.experiments.studies.fdrl_paper.claims import (
    NOT,
    PARTLY,
    REPRODUCED,
    UNMEASURABLE,
    UNMEASURED,
)
from fdrl_ros.experiments.studies.fdrl_paper.settings import FdrlSettings
from fdrl_ros.experiments.studies.fdrl_paper.tables import claims_grid, surgery_grid, tables
from fdrl_ros.experiments.studies.leakage.summary import verdicts as leakage_verdicts
from fdrl_ros.experiments.studies.leakage.tables import leakage_tables
from fdrl_ros.experiments.study import commits_of, digest_of

RULES = (
    'Every verdict follows one rule for its kind of claim. A claimed change is reproduced if its '
    'whole interval (95 %) is beyond half of what is claimed; else partly if it has the claimed '
    'sign beyond chance; else not measurable if the interval holds half of the claim, or if it is '
    'a ratio whose denominator cannot be told from 0; else not reproduced. A claimed level, '
    'margin or trend is reproduced or not if the whole interval lies on one side of it; else not '
    'measurable. A claimed growth of cost is reproduced if the time grows by no more than '
    'size^0.25 beyond it; a time on another machine is not comparable. Other readings are marked '
    'and not counted.'
)


def verdicts(summary: Json) -> str:
    """Count the verdicts in the paper's own setting in one sentence."""
    own = [each for each in summary['claims'] if each['own']]
    count = Counter(each['verdict'] for each in own)
    every = (REPRODUCED, PARTLY, NOT, UNMEASURABLE, UNMEASURED)
    words = [f'{count[each]} {each}' for each in every if count[each]]
    return f"{len(own)} claims in the paper's own setting: {', '.join(words)}"


def digest_of_files(paths: Iterable[Path]) -> str:
    """Return SHA-256 over files' names and contents, in the order of their names."""
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(f'{path.name} {path.stat().st_size}\n'.encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def fdrl_page(directory: Path, summary: Json) -> Page:
    """
    Draw the figures into a study's directory and make its report.

    :raises OSError: if a figure cannot be written.
    """
    settings = FdrlSettings.from_mapping(summary['settings'])
    shown = draw_figures(summary, directory, settings)
    figures = {name: Picture(directory / f'{name}.png', words) for name, words in shown.items()}
    about = (
        'Experiments of Hafeez et al. 2025 (arXiv 2505.12153), in a world of 5 numbers and 3 '
        'actions made after its section IV: records are single transitions, each of a patient of '
        'its own. The paper published neither code nor data, so methods are compared, not '
        'digits. Noise here is seeded, so nothing of this is private.'
    )
    if summary['quick']:
        about += ' Few seeds, models or patients: a look, no claim.'
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
    kept = ('leakage/parts', 'rounds', 'policies', 'surface/cells', 'records', 'cost')
    parts = [part for name in kept for part in (directory / name).glob('*.json')]
    return Page(
        'The experiments of the FDRL paper',
        about,
        [
            Section(
                'Claims and verdicts',
                [Notice(NOT_PRIVATE), verdicts(summary) + '.', RULES, claims_grid(summary)],
            ),
            *(Section(title, [figures[name]]) for name, title in names.items()),
            Section('Policies, hospitals, cost', list(tables(summary, settings))),
            *surgical,
            Section(
                'Attacks from every seat',
                [
                    *(f'{each}.' for each in leakage_verdicts(summary['leakage'])),
                    *leakage_tables(summary['leakage']),
                ],
            ),
        ],
        {
            'command': command_of(directory, 'fdrl reproduce fdrl'),
            'seeds': ', '.join(map(str, summary['seeds'])),
            'settings': ', '.join(f'{k}={v}' for k, v in summary['settings'].items()),
            'digest of the settings': digest_of(summary['settings']),
            'code of the parts': ', '.join(commits_of(parts)),
            'SHA-256 of the parts': digest_of_files(parts),
            'SHA-256 of the figures': digest_of_files(directory.glob('*.png')),
        },
    )
