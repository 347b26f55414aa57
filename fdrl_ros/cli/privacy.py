# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl privacy`: what hospitals have spent, out of their ledgers."""

from pathlib import Path

import click
from fdrl_ros.assembly import NOISE_KEY, open_ledger
from fdrl_ros.benchmark.report import shared_patients
from fdrl_ros.errors import StoreError
from fdrl_ros.plan import Plan
from fdrl_ros.prepare import Layout
from fdrl_ros.privacy.accountant import added_up


@click.group()
def privacy() -> None:
    """Show and verify the privacy ledgers of a run."""


@privacy.command()
@click.argument('directory', type=click.Path(file_okay=False, path_type=Path))
def show(directory: Path) -> None:
    """Print what each hospital of DIRECTORY has spent."""
    layout, plan = _open(directory)
    chosen = plan.privacy
    if plan.federation.noise != 'secure':
        click.echo('NOT PRIVATE: noise and sampling were drawn from a seed.')
    click.echo(f'unit {chosen.unit}, delta {chosen.delta:g}, budget {chosen.budget:g}')
    spent = []
    for name in plan.hospitals:
        if not (layout.party(name) / 'ledger.sqlite').exists():
            click.echo(f'{name}: nothing spent, there is no ledger yet')
            continue
        with open_ledger(layout.party(name), name, plan) as ledger:
            spent.append(ledger.epsilon())
            click.echo(
                f'{name}: epsilon {spent[-1]:.4f} (loss distribution), at most '
                f'{ledger.epsilon_rdp():.4f} (Renyi); {ledger.head().entries} blocks'
            )
    if spent and not layout.roster().disjoint_patients:
        click.echo(shared_patients(*added_up(spent, chosen.delta)))


@privacy.command()
@click.argument('directory', type=click.Path(file_okay=False, path_type=Path))
def verify(directory: Path) -> None:
    """
    Walk the chain of every ledger of DIRECTORY; exit code 1 at the first that is broken.

    A ledger must also reach the head that its hospital's last update went out with.
    """
    layout, plan = _open(directory)
    for name in plan.hospitals:
        if not (layout.party(name) / 'ledger.sqlite').exists():
            if not (layout.party(name) / NOISE_KEY).exists():
                click.echo(f'{name}: no ledger yet')
                continue
        with open_ledger(layout.party(name), name, plan) as ledger:
            head = ledger.head()
        click.echo(f'{name}: {head.entries} blocks, whole; head {head.digest.hex()[:16]}')


def _open(directory: Path) -> tuple[Layout, Plan]:
    """Find the federation of a run, or take the directory itself."""
    for each in (directory / 'federation', directory):
        if Layout(each).plan.exists() and Layout(each).keys.exists():
            return Layout(each), Plan.load(Layout(each).plan)
    raise StoreError(f'{directory} is neither a run nor a prepared federation')
