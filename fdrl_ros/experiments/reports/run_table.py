# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The table at the end of a run, for people, and that of several seeds."""

from collections.abc import Mapping, Sequence
import io
import math

from fdrl_ros.experiments.evaluation import Evaluator
from fdrl_ros.experiments.intervals import interval_words
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.patient_results import compared, Scores
from fdrl_ros.experiments.reports.assessment import Assessment
from fdrl_ros.experiments.reports.names import reader_name
from fdrl_ros.experiments.reports.text_table import DISCLAIMER, make_table, NOT_PRIVATE, RELEASED
from fdrl_ros.experiments.round_recorder import setbacks
from fdrl_ros.privacy.accountant.accountant import PAPER_ORDER
from fdrl_ros.privacy.stated import stated
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

PAPER_HE_SECONDS = 0.7
"""Encryption and decryption a round in the FDRL paper, seconds."""

# Characters of a line on which any table fits.
_UNLIMITED = 10_000

GLOSSARY = 'Terms and units: docs/glossary.md'


def policy_table(policies: Mapping[str, Json], scores: Scores, width: int | None = None) -> Table:
    """
    Make the table with one row a policy.

    :param policies: name to columns, as in ``summary.json``.
    :param scores: of the task.
    :param width: characters of a line; if all columns need more, minor ones are left out.
    """
    table = _policy_table(policies, scores)
    fits = width is None or _breadth(table) <= width
    return table if fits else _policy_table(policies, scores, wide=False)


def _policy_table(policies: Mapping[str, Json], scores: Scores, *, wide: bool = True) -> Table:
    first = next(iter(policies.values()))
    headings, rows = ['policy'], [[reader_name(name)] for name in policies]
    for name, score in scores.items():
        if not score.heading or (score.minor and not wide):
            continue
        headings.append(score.heading)
        ends = wide and f'{name}_low' in scores
        if ends:
            headings.append('95 %')
        for cells, row in zip(rows, policies.values(), strict=True):
            cells.append(_cell(row[name], score.form))
            if ends:
                low, high = (_cell(row[f'{name}_{end}'], score.form) for end in ('low', 'high'))
                cells.append(f'{low} .. {high}')
    title = f'{first["patients"]} unseen patients, each in the own hospital'
    table = make_table(title, headings, rows, numbers='right')
    for line, name in zip(table.rows, policies, strict=True):
        line.style = 'bold' if name in ('global', 'home', 'selector') else ''
    return table


def group_tables(found: Assessment, width: int | None = None) -> list[Table]:
    """
    Make the tables of the results in each hospital, and of each procedure.

    :param width: characters of a line; if all policies need more, the first ones are left out.
    """
    tables = []
    for column, groups in found.groups().items():
        names = found.compared_rows()
        while True:
            table = group_table(column, groups, names)
            if width is None or len(names) == 1 or _breadth(table) <= width:
                break
            names = names[1:]
        tables.append(table)
    return tables


def group_table(column: str, groups: Mapping[str, Json], names: Sequence[str]) -> Table:
    """Make the table of success and total reward of some policies in each group of patients."""
    rows = [
        [reader_name(group), *(_both(row, name) for name in names)]
        for group, row in groups.items()
    ]
    headings = (column, *map(reader_name, names))
    title = f'Success and total reward by {column}, with 95 % intervals'
    return make_table(title, headings, rows, numbers='right')


def _breadth(table: Table) -> int:
    return Console(width=_UNLIMITED).measure(table).maximum


def _both(row: Json, name: str) -> str:
    one = row.get(name)
    if one is None:
        return ''
    high = one['mean_total_high']  # undefined, or null in a file, of a single patient
    half = None if high is None else high - one['mean_total']
    return (
        f'{one["success"]:.0%} ({one["success_low"]:.0%} .. {one["success_high"]:.0%})\n'
        f'{one["mean_total"]:.2f} +- {_cell(half, ".2f")}'
    )


def render(found: Assessment, width: int | None = None) -> Group:
    """
    Put everything together that a user sees at the end.

    :param width: characters of a line; unlimited unless given.
    """
    summary, plan = found.summary(), found.plan
    parts = _warnings(plan.federation.noise == 'secure', plan.federation.release)
    evaluator = found.evaluator
    parts.append(policy_table(summary['policies'], evaluator.scores, width))
    parts += group_tables(found, width)
    leads = found.differences()
    rivals = [name for name in evaluator.rivals() if name in leads]
    told = (_lead(evaluator, found.main, name, leads[name]) for name in rivals)
    lines = [*found.extras.lines, *told]
    parts += map(Text, lines)
    back = setbacks(found.rounds, plan.rounds.rounds)
    parts += [Text(words, style='bold red') for words in back]
    parts += [
        Text(_privacy(summary, plan.privacy.budget)),
        Text(
            f'noise sigma_m = {summary["sigma_m"]:g}, s = sigma_m C / L = {summary["s"]:.4g}; '
            f'epsilon_paper = {summary["epsilon_paper"]:.4g}, of one step at order '
            f'{PAPER_ORDER:g}, which is no privacy guarantee for this run'
        ),
        Text(
            f'{summary["rounds"]} rounds of {summary["round_seconds"]:.1f} s; of that '
            f'{summary["he_seconds"]:.3f} s encrypting, summing and decrypting '
            f'{summary["n_parameters"]} parameters (paper: {PAPER_HE_SECONDS} s); '
            f'{summary["update_bytes"] / 1000:.1f} kB sent by each hospital a round'
            + _memory(summary)
        ),
        Text(GLOSSARY),
        Text(DISCLAIMER, style='italic'),
    ]
    return Group(*parts)


def render_text(found: Assessment) -> str:
    """Return the same as plain text."""
    file = io.StringIO()
    Console(file=file, width=140, no_color=True).print(render(found))
    return file.getvalue()


def _lead(evaluator: Evaluator, main: str, name: str, lead: Mapping[str, float]) -> str:
    words = ', '.join(
        f'{evaluator.scores[each].heading} {lead[each]:+.3f} +- {lead[f"{each}_half_width"]:.3f}'
        for each in evaluator.learned
    )
    return (
        f'{reader_name(main)} minus {reader_name(name)}: {words} (95 %, these patients, one seed)'
    )


def seeds_table(combined: Json, scores: Scores) -> Group:
    """Make the tables of an experiment over several seeds, with what it spent."""
    return Group(
        *_warnings(combined['private'], combined['plan']['federation']['release']),
        *seeds_tables(combined, scores),
        Text(seeds_privacy(combined)),
        Text(GLOSSARY),
        Text(DISCLAIMER, style='italic'),
    )


def seeds_tables(combined: Json, scores: Scores) -> list[Table]:
    """Make the tables of an experiment over several seeds: means, and paired differences."""
    names = compared(scores)
    count = len(combined['seeds'])
    tables = []
    for title, heading, key in (
        (f'Mean over {count} seeds with 95 % interval (Student)', 'policy', 'policies'),
        ('Federated minus other, paired by seed and patient', 'other', 'federated_minus'),
    ):
        rows = (
            [reader_name(name), *(interval_words(row[metric], '.3f') for metric in names)]
            for name, row in combined[key].items()
        )
        tables.append(make_table(title, (heading, *names), rows, numbers='right'))
    return tables


def seeds_privacy(combined: Json) -> str:
    """Say what an experiment over several seeds spent."""
    worst = max(combined['epsilon'].values())
    words = (
        f'epsilon at most {stated(worst)} a hospital at delta {combined["delta"]:g}, '
        f'unit: {combined["unit"]}'
    )
    return words + _shared_words(combined)


def shared_patients(epsilon: float, delta: float) -> str:
    """Describe the guarantee for patients of several hospitals, whose epsilons add up."""
    return (
        f'a patient may be in several hospitals: for such a patient epsilon is at most '
        f'{stated(epsilon)}, the sum, at delta {delta:g}'
    )


def _warnings(private: bool, release: bool) -> list[RenderableType]:
    found: list[RenderableType] = [] if private else [Text(NOT_PRIVATE, style='bold red')]
    return [*found, Text(RELEASED)] if release else found


def _privacy(summary: Json, budget: float) -> str:
    spent = ', '.join(
        f'{reader_name(name)} {stated(value)}' for name, value in summary['epsilon'].items()
    )
    words = f'epsilon {spent} of {budget:g} at delta {summary["delta"]:g}, unit: {summary["unit"]}'
    for name, problem in summary['ledger_problems'].items():
        words += f'\n{reader_name(name)} counts as having spent its whole budget: {problem}'
    shared = summary['epsilon_of_shared_patients'] is not None
    whose = 'one hospital alone' if shared else 'a hospital'
    auc, tpr, told = (
        max(each[name] for each in summary['attack_bounds'].values())
        for name in ('auc', 'tpr', 'information')
    )
    words += (
        f'\nof whether one {summary["unit"]} of {whose} took part, no attack on all releases '
        'tells more than '
        f'AUC {auc:.3f}, TPR {tpr:.3f} at 1 % FPR, {told:.3f} bits (PLR)'
    )
    return words + _shared_words(summary)


def _shared_words(summary: Json) -> str:
    epsilon = summary.get('epsilon_of_shared_patients')
    if epsilon is None:
        return ''
    return '\n' + shared_patients(epsilon, summary['delta_of_shared_patients'])


def _memory(summary: Json) -> str:
    held = summary.get('peak_memory')
    return '' if held is None else f'; at most {held:.0f} MB held by a process'


def _cell(value: float | None, form: str) -> str:
    return 'undefined' if value is None or math.isnan(value) else format(value, form)
