# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl shield`: prove that the shield keeps its limits, try to break it, say what it costs."""

import itertools
from pathlib import Path

import click
from fdrl_ros.cli.experiments.study_command import levels_from
from fdrl_ros.cli.group import NOTHING_KEPT, when_stopped
from fdrl_ros.cli.output import console
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.experiments.json_file import Json, write_json
from fdrl_ros.experiments.reports.text_table import make_table
from fdrl_ros.experiments.studies.shield.attack import attack_study
from fdrl_ros.experiments.studies.shield.cost import cost_study, CostSettings, newest_policies
from fdrl_ros.runtime.progress import Caller, Progress
from fdrl_ros.shield.proof import proofs
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
from fdrl_ros.surgery.tasks.procedures import procedures_named


@click.group()
def shield() -> None:
    """Prove that the shield keeps its limits; measure its cost."""
    when_stopped(NOTHING_KEPT)


@shield.command()
@click.option(
    '--fine',
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help='Cells that each range is divided into; more take longer.',
)
@click.option('--json', 'file', type=click.Path(path_type=Path), help='Write what was found here.')
def verify(fine: int, file: Path | None) -> None:
    """
    Check the shield's code, cell by cell, against the worst that its assumptions let happen.

    It takes about 2.5 minutes on two cores with the default of --fine. The exit code is 1 if a
    claim fails anywhere; the cell is then shown.
    """
    out = console()
    found: list[Json] = []
    with ProgressBars(out) as bars:

        def report(done: int, total: int) -> None:
            bars(Progress('shield', 'tables', done, total))

        for word, limit, finding in proofs(ShieldSettings(), PROCEDURE_NAMES, fine, report):
            found.append({'bounds': word, 'limit': limit, **vars(finding), 'holds': finding.holds})
    out.print(
        make_table(
            'The shield against the worst that can happen',
            ('bounds', 'claim', 'limit, N', 'cells', 'margin', 'holds'),
            (
                (
                    one['bounds'],
                    one['claim'],
                    f'{one["limit"]:g}' if one['limit'] else 'any',
                    one['cells'],
                    f'{0.0 if abs(one["margin"]) < 1e-9 else one["margin"]:.2g}',
                    'yes' if one['holds'] else 'NO',
                )
                for one in found
            ),
        )
    )
    if file is not None:
        write_json(file, {'fine': fine, 'findings': found})
    bad = [one for one in found if not one['holds']]
    for one in bad:
        out.print(f'{one["bounds"]} {one["claim"]}: {one["failure"]}', soft_wrap=True)
    if bad:
        raise click.exceptions.Exit(1)


_COUNTS = ('steps', 'contact', 'above_limit', 'above_stop', 'above_damage', 'outside')


@shield.command(name='attack')
@click.option('--steps', default=100_000, show_default=True, help='Steps with the shield on.')
@click.option('--seed', default=0, show_default=True)
@click.option('--keep-limit', is_flag=True, help="Keep the procedure's own force limit too.")
@click.option('--latency', default=0, show_default=True, help='Ticks from a command to the arm.')
@click.option(
    '--force-noise', default=0.0, show_default=True, help='Deviation of measured forces, N.'
)
@click.option('--json', 'file', type=click.Path(path_type=Path), help='Write what was found here.')
def attack_it(
    steps: int, seed: int, keep_limit: bool, latency: int, force_noise: float, file: Path | None
) -> None:
    """
    Let adversaries drive patients of H = 1, with the shield and without.

    One step in 20 is done with motors besides, and one in 5 through a robot's control loop, with
    noise, latency, jitter and lost states, at least one operation of each. No operation is cut
    short: fewer steps are fewer patients. The exit code is 1 if a force passed the hard stop with
    the shield on, or if nothing was touched.
    """
    out = console()
    study, parts = attack_study(steps, seed, keep_limit, latency, force_noise)
    with ProgressBars(out) as bars:
        found = study.run(parts, Caller(bars))
    tallies = [tally for part in found for tally in part['tallies']]
    broken, untouched, rows = 0, [], []
    for arm, on in itertools.product(('kinematic', 'dynamic', 'loop'), (True, False)):
        chosen = [each for each in tallies if each['arm'] == arm and each['shield'] == on]
        switch = 'on' if on else 'off'
        sums = [sum(each[name] for each in chosen) for name in _COUNTS]
        rows.append((arm, switch, *sums, f'{max(each["greatest"] for each in chosen):.2f}'))
        broken += sums[_COUNTS.index('above_stop')] * on
        if not sums[_COUNTS.index('contact')]:
            untouched.append(f'{arm} with the shield {switch}')
    headings = (
        *('arm', 'shield', 'steps', 'in contact', 'above the limit', 'above 10 N'),
        *('above the damage', 'outside', 'greatest, N'),
    )
    out.print(make_table('Steps above the limits', headings, rows))
    if file is not None:
        asked = {'steps': steps, 'seed': seed, 'keep_limit': keep_limit}
        arms = {'latency': latency, 'force_noise': force_noise}
        write_json(file, {**asked, **arms, 'tallies': tallies})
    if untouched:
        out.print(f'Nothing was tested: no force in {", ".join(untouched)}.', soft_wrap=True)
    if broken or untouched:
        raise click.exceptions.Exit(1)


@shield.command(name='cost')
@click.argument('paths', nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option('--patients', default=100, show_default=True, help='Of each procedure at each H.')
@click.option('--procedures', default='all', show_default=True, help='Names with commas, or all.')
@click.option('--levels', default='0, 0.5, 1', show_default=True, help='The H of the patients.')
@click.option('--seed', default=5, show_default=True, help='Of the patients.')
@click.option('--json', 'file', type=click.Path(path_type=Path), help='Write what was found here.')
def cost_it(
    paths: tuple[Path, ...],
    patients: int,
    procedures: str,
    levels: str,
    seed: int,
    file: Path | None,
) -> None:
    """
    Count successes of the expert and of policies with the shield, and without.

    PATHS are policy files, or directories of runs: of those the newest global policy and those of
    the hospitals. Arms are kinematic. In brackets: how many steps of 100 are vetoed.
    """
    wanted = tuple(levels_from(levels))
    files = [one for each in paths for one in newest_policies(each)]
    study, parts = cost_study(
        files, procedures_named(procedures), CostSettings(patients, wanted, seed)
    )
    out = console()
    with ProgressBars(out) as bars:
        found = study.run(parts, Caller(bars))
    out.print(
        make_table(
            f'Successes of {patients} operations at H = {levels}',
            ('who', 'procedure', 'shield', 'successes', 'ended by force', 'vetoed, %'),
            (
                (
                    Path(part['who']).stem,
                    part['procedure'],
                    part['shield'],
                    ' / '.join(str(each['successes']) for each in part['found']),
                    ' / '.join(str(each['forced']) for each in part['found']),
                    ' / '.join(
                        f'{100.0 * each["vetoes"] / each["steps"]:.1f}' for each in part['found']
                    ),
                )
                for part in found
            ),
        )
    )
    rows = [
        {'who': part['who'], 'shield': part['shield'], **each}
        for part in found
        for each in part['found']
    ]
    if file is not None:
        write_json(file, {'patients': patients, 'seed': seed, 'found': rows})
