# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Reports of studies: which file of results makes a directory that of a study, and what it shows.

To report another study, add a row to :data:`KINDS`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from fdrl_ros.errors import PluginError
from fdrl_ros.experiments.json_file import from_json, Json
from fdrl_ros.experiments.reports.command import command_of
from fdrl_ros.experiments.reports.page import Command, Content, Notice, Page, Picture, Section
from fdrl_ros.experiments.reports.text_table import Grid, NOT_PRIVATE, plain
from fdrl_ros.experiments.study import HEADER
from rich.table import Table

_QUICK = 'A quick look: few seeds, models or patients. It shows the form and claims nothing.'


@dataclass(frozen=True)
class Kind:
    """
    A kind of study.

    :param title: of its report.
    :param about: what was asked and how.
    :param command: that measures it, without what its user chose.
    :param tables: module and name of the function that makes its tables of a summary; the
        function of a whole page, of a directory and a summary, if `whole`.
    :param sentences: module and name of the function of what came out; none if empty.
    :param pictures: file patterns of the figures, and what each shows.
    :param private: whether noise is drawn securely, unless the summary says so itself.
    """

    title: str
    about: str
    command: str
    tables: str
    sentences: str = ''
    pictures: Mapping[str, str] = field(default_factory=dict)
    private: bool = True
    whole: bool = False

    def page(self, directory: Path, summary: Json) -> Page:
        """
        Make the report of a study's directory.

        :raises PluginError: if a library is missing that the study needs.
        :raises KeyError: if the summary lacks something.
        """
        if self.whole:
            made: Page = _function(self.tables)(directory, summary)
            return made
        said = map(sentence, _function(self.sentences)(summary)) if self.sentences else ()
        notices = [Notice(_QUICK)] if summary.get('quick') else []
        if not summary.get('private', self.private):
            notices.append(Notice(NOT_PRIVATE))
        notices += [Notice(f'FAULT: {each}') for each in summary.get('faults', ())]
        shown = [
            Picture(path, words)
            for pattern, words in self.pictures.items()
            for path in sorted(directory.glob(pattern))
        ]
        again = command_of(directory, self.command)
        parts = [
            Section('What came out', [*notices, *said]),
            Section('Tables', grids_of(_function(self.tables)(summary))),
            Section('Pictures', shown),
            Section('How to do it again', [Command(again), _RESUMES]),
        ]
        return Page(
            self.title,
            self.about,
            [each for each in parts if each.content],
            {**measured_by(directory), **provenance(summary)},
            made_here=False,
        )


_RESUMES = (
    'In the same directory it reads what is finished; in another one it measures all of it anew.'
)


def measured_by(directory: Path) -> dict[str, str]:
    """Return the commits and versions that the parts of a study name, each once."""
    found: dict[str, set[str]] = {}
    for path in directory.glob('*/*.json'):
        try:
            header = from_json(path.read_text('utf-8'))[HEADER]
            named = {'commit': header['commit']}
            named |= {f'version of {name}': each for name, each in header['versions'].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # no part
        for name, value in named.items():
            found.setdefault(name, set()).add(str(value))
    return {name: ', '.join(sorted(each)) for name, each in found.items()}


def provenance(summary: Json) -> dict[str, str]:
    """Return seeds and settings that a summary names, by name, as text."""
    told: dict[str, str] = {}
    if 'seeds' in summary:
        told['seeds'] = ', '.join(map(str, summary['seeds']))
    for name in ('settings', 'plan', 'code', 'unit', 'delta'):
        if name in summary:
            told |= _flat(name, summary[name])
    return told


def _flat(name: str, value: Any) -> dict[str, str]:
    """Return nested settings as lines: a group each."""
    if not isinstance(value, Mapping):
        return {name: str(value)}
    plain_ones = {k: v for k, v in value.items() if not isinstance(v, Mapping)}
    found = {name: ', '.join(f'{k}={v}' for k, v in plain_ones.items())} if plain_ones else {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            found |= _flat(key, inner)
    return found


def sentence(words: str) -> str:
    """Return words as a sentence."""
    return f'{words[:1].upper()}{words[1:]}' + ('' if words.endswith('.') else '.')


def grids_of(tables: Iterable[Table | Grid]) -> list[Content]:
    """Return tables for a page; what stood below one follows it."""
    found: list[Content] = []
    for each in tables:
        if isinstance(each, Grid):
            found.append(each)
            continue
        found.append(Grid.of_table(each))
        if each.caption:
            found.append(plain(each.caption))
    return found


def experiment_tables(summary: Json) -> Iterable[Table]:
    """Make the tables of an experiment over several seeds."""
    from fdrl_ros.deployment.plan import Plan
    from fdrl_ros.experiments.reports.assessment import evaluator_of
    from fdrl_ros.experiments.reports.run_table import seeds_tables

    return seeds_tables(summary, evaluator_of(Plan(summary['plan'])).scores)


def experiment_sentences(summary: Json) -> list[str]:
    """Return what an experiment over several seeds spent."""
    from fdrl_ros.experiments.reports.run_table import seeds_privacy

    return [
        seeds_privacy(summary),
        'The directory of each seed, seed_N, is a run: `fdrl report` of it shows the run alone.',
    ]


def mastery_grids(summary: Json) -> list[Grid]:
    """Make the tables of the study of mastery."""
    from fdrl_ros.experiments.reports.mastery_tables import mastery_tables

    return [Grid.of_markdown(title, text) for title, text in mastery_tables(summary).items()]


def surface_grids(summary: Json) -> list[Grid]:
    """Make the tables of PLR and accuracy over H and noise."""
    from fdrl_ros.experiments.studies.leakage.surface import surface_rows, utility_rows

    headings = ('H', *(f's = {each:g}' for each in summary['noises']))
    title = f'PLR of the released policy, bits, {summary["models"]} models [95 % interval]'
    return [
        Grid(title, headings, surface_rows(summary)),
        Grid(
            'Exact A_task, and return, of that policy; at most: of any single policy',
            ('measure', *headings, 'at most'),
            utility_rows(summary),
        ),
    ]


def selector_words(summary: Json) -> list[str]:
    """Return what came out at each H."""
    from fdrl_ros.experiments.reports.study_tables import selector_sentences

    return [
        f'H = {at["level"]:g}: {words}.'
        for at in summary['levels']
        for words in selector_sentences(at)
    ]


_STUDIES, _HERE = 'fdrl_ros.experiments.studies', 'fdrl_ros.experiments.reports.study_pages'
_TABLES = 'fdrl_ros.experiments.reports.study_tables'

KINDS: Final = {
    'experiment': Kind(
        'Training with several seeds',
        'Each seed trains a federation, each hospital alone, and compares all policies on the '
        'same unseen patients. Differences are paired by seed and patient.',
        'fdrl experiment',
        f'{_HERE}:experiment_tables',
        f'{_HERE}:experiment_sentences',
    ),
    'mastery': Kind(
        'What policies master',
        'Success on own patients, away and under disturbances, beside every baseline. Seeds and '
        'settings were fixed beforehand.',
        'fdrl experiment --plan mastery',
        f'{_HERE}:mastery_grids',
        pictures={'mastery.png': 'All rows, and over gap and records how the main ones do.'},
    ),
    'utility': Kind(
        'What privacy costs',
        "Success of one hospital's own policy on unseen patients against the epsilon of all its "
        'training, from a public start and from random weights.',
        'fdrl utility',
        f'{_TABLES}:utility_tables',
        pictures={'utility.png': 'Success against epsilon, means with 95 % intervals.'},
    ),
    'heterogeneity': Kind(
        'How far hospitals are apart',
        "Distance between hospitals' patients over H, and what a policy loses in another one.",
        'fdrl heterogeneity',
        f'{_TABLES}:heterogeneity_tables',
        f'{_TABLES}:heterogeneity_sentences',
        {'heterogeneity.png': 'Distance, success at home and abroad, and their difference.'},
    ),
    'hospitals': Kind(
        'What more hospitals bring',
        'Success of what hospitals learn together and alone, and the epsilon of a patient, '
        'against the number of hospitals; each has the same number of patients.',
        'fdrl hospitals',
        f'{_TABLES}:hospitals_tables',
        pictures={'hospitals.png': 'Success, differences and epsilon, means with 95 % intervals.'},
    ),
    'measures': Kind(
        'What each measure rewards',
        'The expert and policies that are worth nothing, by every measure of risk and adaptation.',
        'fdrl measures',
        f'{_TABLES}:measures_tables',
    ),
    'audit': Kind(
        'An audit of epsilon',
        'One hospital trains with canaries among its patients; what is released must not tell '
        'more of them than its epsilon allows.',
        'fdrl audit',
        f'{_TABLES}:audit_tables',
        f'{_TABLES}:audit_sentences',
        {'audit.png': 'Epsilon as claimed and as proven, and the scores of canaries.'},
    ),
    'attack': Kind(
        'Attacks from every seat',
        "Membership attacks and gradient inversion in the FDRL paper's world, beside the bounds "
        'that differential privacy gives.',
        'fdrl attack',
        f'{_STUDIES}.leakage.tables:leakage_tables',
        f'{_STUDIES}.leakage.summary:verdicts',
        {'attack.png': 'AUC of every attack by seat, with chance and bounds.'},
        private=False,
    ),
    'surface': Kind(
        'PLR and A_task over H and noise',
        "The released policy in the FDRL paper's world, in every cell.",
        'fdrl attack --surface',
        f'{_HERE}:surface_grids',
        private=False,
    ),
    'selector': Kind(
        'What choosing in every state is worth',
        'The selector beside every policy alone, other rules of choosing and oracles, on the same '
        'unseen patients.',
        'fdrl selector compare',
        f'{_TABLES}:selector_tables',
        f'{_HERE}:selector_words',
        {
            'selector.png': 'Return by H, and the lead of the selector.',
            'runs/*/pictures/*.png': 'One operation under the selector: state, choice, action, '
            'risk.',
        },
    ),
    'sepsis': Kind(
        'DP-DQN on ICU-Sepsis',
        'The experiments of Front. Med. 12:1590824 (2025), with its numbers beside ours.',
        'fdrl reproduce dp-dqn',
        f'{_STUDIES}.sepsis.tables:tables',
        f'{_STUDIES}.sepsis.tables:verdicts',
        {'sepsis_*.png': 'Drawn by the same command.'},
        private=False,
    ),
    'fdrl': Kind(
        'The experiments of the FDRL paper',
        '',
        'fdrl reproduce fdrl',
        f'{_STUDIES}.fdrl_paper.report:fdrl_page',
        whole=True,
    ),
    'fedst': Kind(
        'FedST on made-up surgical video',
        '',
        'fdrl reproduce fedst',
        f'{_STUDIES}.fedst.report:fedst_page',
        whole=True,
    ),
}
"""Kinds of studies by the name of the JSON file that holds the results."""


def _function(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(':')
    try:
        found: Callable[..., Any] = getattr(import_module(module), function)
    except ImportError as missing:
        raise PluginError(name, f'{missing}: pip install "fdrl_ros[torch]"') from missing
    return found
