# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What commands print."""

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.reports.assessment import Assessment
from fdrl_ros.experiments.reports.run_table import render
from fdrl_ros.experiments.reports.table import DISCLAIMER, NOT_PRIVATE, RELEASED
from fdrl_ros.experiments.run_directory import RunDirectory
from rich.console import Console

WIDTH_OF_A_PIPE = 140


def console() -> Console:
    """Return the console of standard output, wide enough for the tables when it is a pipe."""
    made = Console()
    return made if made.is_terminal else Console(width=WIDTH_OF_A_PIPE)


def announce(run: RunDirectory, plan: Plan) -> None:
    """Say what begins, and what it is not."""
    out = console()
    out.print(DISCLAIMER, style='italic')
    if plan.federation.noise != 'secure':
        out.print(NOT_PRIVATE, style='bold red')
    chosen = plan.federation
    if chosen.release:
        out.print(RELEASED, soft_wrap=True)
    out.print(
        f'{chosen.hospitals} hospitals of {plan.collection.patients} patients, H = '
        f'{chosen.heterogeneity:g}, {plan.rounds.rounds} rounds, seed {chosen.seed}; in '
        f'{run.path}',
        highlight=False,
        soft_wrap=True,
    )
    brought = [name for name in plan.hospitals if run.layout.records(name).exists()]
    if brought and not run.layout.keys.exists():
        out.print(f'{", ".join(brought)}: with the records that were given.', soft_wrap=True)
    out.print(
        'While hospitals train, epsilon is a quick upper bound (Renyi). The budget of '
        f'{plan.privacy.budget:g} stops them by the tighter figure of the ledger and the report.',
        highlight=False,
        soft_wrap=True,
    )


def show(run: RunDirectory, found: Assessment) -> None:
    """Print the table, and where everything lies."""
    out = console()
    out.print(render(found, out.width))
    out.print(
        f'saved in {run.path}: summary.json, table.txt, patients.npz, policies/, episodes/, '
        'plots/',
        highlight=False,
        soft_wrap=True,
    )
