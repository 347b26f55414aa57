# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The table at the end of a run, for people."""

from collections.abc import Mapping
import io
from typing import Any

from fdrl_ros.experiments.reports.assessment import Assessment
from fdrl_ros.privacy.accountant.accountant import PAPER_ORDER
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

DISCLAIMER = 'Simulated, for research, not a medical device.'
NOT_PRIVATE = 'NOT PRIVATE: noise and sampling were drawn from a seed that anyone can repeat.'
RELEASED = (
    'Hospitals release their own policies by choice: masks and encryption do not hide those, '
    'differential privacy alone protects them.'
)
PAPER_HE_SECONDS = 0.7
"""Encryption and decryption a round in the FDRL paper, seconds."""

COLUMNS = (
    ('success', 'success', '.1%'),
    ('95 %', '', ''),
    ('A_task', 'a_task', '.3f'),
    ('exact', 'a_task_exact', '.3f'),
    ('on policy', 'a_task_on_policy', '.3f'),
    ('R_mit', 'r_mit', '.3f'),
    ('alpha_adapt', 'alpha_adapt', '.3f'),
    ('peak N', 'peak_force', '.2f'),
    ('return', 'mean_return', '.3f'),
)
FULL_WIDTH = 118
"""Characters that all columns need; a narrower terminal gets fewer."""
LESSER = ('95 %', 'on policy', 'return')


def policy_table(policies: Mapping[str, Mapping[str, Any]], width: int = FULL_WIDTH) -> Table:
    """
    Make the table with one row a policy.

    :param policies: name to columns, as in ``summary.json``.
    :param width: characters of a line; when they are few, some columns are left out.
    """
    columns = [each for each in COLUMNS if width >= FULL_WIDTH or each[0] not in LESSER]
    first = next(iter(policies.values()))
    table = Table(title=f'{first["patients"]} unseen patients of all hospitals')
    table.add_column('policy')
    for title, _, _ in columns:
        table.add_column(title, justify='right')
    for name, row in policies.items():
        cells = [_cell(row, key, form) for _, key, form in columns]
        table.add_row(name, *cells, style='bold' if name in ('global', 'selector') else '')
    return table


def render(found: Assessment, width: int = FULL_WIDTH) -> Group:
    """
    Put everything together that a user sees at the end.

    :param width: characters of a line.
    """
    summary = found.summary()
    parts: list[Any] = []
    if found.plan.federation.noise != 'secure':
        parts.append(Text(NOT_PRIVATE, style='bold red'))
    if found.plan.federation.release:
        parts.append(Text(RELEASED))
    parts.append(policy_table(summary['policies'], width))
    first = next(iter(summary['policies'].values()))
    parts.append(
        Text(
            f'A_task tie-tolerant on the frozen set {found.probe_digest[:12]}: chance '
            f'{first["a_task_chance"]:.3f}, ceiling {first["a_task_ceiling"]:.3f}'
        )
    )
    leads = found.differences()
    for name in ('pretrained', *(f'local_{each}' for each in found.plan.hospitals)):
        if name in leads:
            lead = leads[name]
            parts.append(
                Text(
                    f'global minus {name}: success {lead["success"]:+.3f} +- '
                    f'{lead["success_half_width"]:.3f} (95 %, these patients, one seed)'
                )
            )
    if summary['rounds'] < summary['rounds_planned']:
        words = f'only {summary["rounds"]} of {summary["rounds_planned"]} rounds were done'
        why = summary['ended']
        parts.append(Text(f'{words}: {why}' if why else words, style='bold red'))
    parts.append(_privacy(summary, found.plan.privacy.budget))
    parts.append(_noise(summary))
    parts.append(_costs(summary))
    parts.append(Text(DISCLAIMER, style='italic'))
    return Group(*parts)


def render_text(found: Assessment) -> str:
    """Return the same as plain text."""
    console = Console(file=io.StringIO(), width=140, no_color=True)
    console.print(render(found))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def seeds_table(combined: Mapping[str, Any]) -> Group:
    """Make the tables of an experiment over several seeds."""
    count = len(combined['seeds'])
    parts: list[Any] = []
    if not combined['private']:
        parts.append(Text(NOT_PRIVATE, style='bold red'))
    if combined['plan']['federation']['release']:
        parts.append(Text(RELEASED))
    table = Table(title=f'Mean over {count} seeds with 95 % interval (Student)')
    metrics = ('success', 'a_task', 'r_mit', 'mean_return')
    table.add_column('policy')
    for metric in metrics:
        table.add_column(metric, justify='right')
    for name, row in combined['policies'].items():
        table.add_row(name, *(_interval(row[metric]) for metric in metrics))
    parts.append(table)
    table = Table(title='Global minus other, paired by seed and patient')
    table.add_column('other')
    for metric in metrics:
        table.add_column(metric, justify='right')
    for name, row in combined['global_minus'].items():
        table.add_row(name, *(_interval(row[metric]) for metric in metrics))
    parts.append(table)
    worst = max(combined['epsilon'].values())
    parts.append(
        Text(
            f'epsilon at most {worst:.2f} a hospital at delta {combined["delta"]:g}, '
            f'unit: {combined["unit"]}'
        )
    )
    shared = combined.get('epsilon_of_shared_patients')
    if shared is not None:
        delta = combined['delta_of_shared_patients']
        parts.append(Text(shared_patients(shared, delta)))
    parts.append(Text(DISCLAIMER, style='italic'))
    return Group(*parts)


def _privacy(summary: Mapping[str, Any], budget: float) -> Text:
    spent = ', '.join(f'{name} {value:.2f}' for name, value in summary['epsilon'].items())
    words = f'epsilon {spent} of {budget:g} at delta {summary["delta"]:g}, unit: {summary["unit"]}'
    for name, problem in summary['ledger_problems'].items():
        words += f'\n{name} counts as having spent its whole budget: {problem}'
    shared = summary['epsilon_of_shared_patients']
    if shared is not None:
        words += '\n' + shared_patients(shared, summary['delta_of_shared_patients'])
    return Text(words)


def shared_patients(epsilon: float, delta: float) -> str:
    """Describe the guarantee for patients of several hospitals, whose epsilons add up."""
    return (
        f'a patient may be in several hospitals: for such a patient epsilon is at most '
        f'{epsilon:.2f}, the sum, at delta {delta:g}'
    )


def _noise(summary: Mapping[str, Any]) -> Text:
    return Text(
        f'noise sigma_m = {summary["sigma_m"]:g}, s = sigma_m C / L = {summary["s"]:.4g}; '
        f'epsilon_paper = {summary["epsilon_paper"]:.4g}, of one step at order {PAPER_ORDER:g}, '
        f'which bounds nothing that ran'
    )


def _costs(summary: Mapping[str, Any]) -> Text:
    return Text(
        f'{summary["rounds"]} rounds of {summary["round_seconds"]:.1f} s; of that '
        f'{summary["he_seconds"]:.3f} s encrypting, summing and decrypting '
        f'{summary["n_parameters"]} parameters (paper: {PAPER_HE_SECONDS} s); '
        f'{summary["update_bytes"] / 1000:.1f} kB sent by each hospital a round'
    )


def _cell(row: Mapping[str, Any], key: str, form: str) -> str:
    if not key:
        return f'{row["success_low"]:.1%} .. {row["success_high"]:.1%}'
    value = row[key]
    return 'undefined' if value is None else format(value, form)


def _interval(value: Mapping[str, Any]) -> str:
    if value['mean'] is None:
        return 'undefined'
    if value['low'] is None:
        return f'{value["mean"]:.3f}'
    return f'{value["mean"]:.3f} [{value["low"]:.3f}, {value["high"]:.3f}]'
