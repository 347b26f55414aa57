# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl draw`: pictures of the expert, or of a policy, at work."""

from pathlib import Path

import click
from fdrl_ros.cli.experiments.acting import EXPERT, operator_of
from fdrl_ros.cli.group import stopping
from fdrl_ros.cli.output import console
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.plots.pictures import draw_procedures
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.surgery.patient.cohort import Cohort, Mixture, mixture
from fdrl_ros.surgery.tasks.procedures import procedures_named


@click.command()
@click.argument('directory', type=click.Path(file_okay=False, path_type=Path))
@click.option('--procedures', default='all', show_default=True, help='Names or specialities.')
@click.option(
    '--heterogeneity',
    default=0.5,
    show_default=True,
    type=click.FloatRange(0, 1),
    help='H of the patients, 0 to 1; unused with --run.',
)
@click.option(
    '--seed',
    default=1,
    show_default=True,
    type=click.IntRange(0),
    help='Seed of the patients; unused with --run.',
)
@click.option(
    '--patient',
    default=0,
    show_default=True,
    type=click.IntRange(0),
    help='Number of the patient.',
)
@click.option('--gif', is_flag=True, help='A moving picture of the whole operation too.')
@click.option(
    '--policy',
    default=EXPERT,
    show_default=True,
    help='Who operates: a file of weights, or with --run a name, such as global or hospital_1.',
)
@click.option(
    '--run',
    type=click.Path(path_type=Path),
    help='The run that the policy and the patients are of.',
)
def draw(
    directory: Path,
    procedures: str,
    heterogeneity: float,
    seed: int,
    patient: int,
    gif: bool,
    policy: str,
    run: Path | None,
) -> None:
    """
    Draw the expert or a policy operating.

    One picture for each procedure goes into DIRECTORY. With --run the patients are unseen ones of
    its first hospital. `fdrl play` shows one operation of a run's
    policy step by step.
    """
    if run is None and policy != EXPERT and not Path(policy).exists():
        expected = f'{EXPERT}, a file of weights, or with --run the name of a policy of the run'
        raise SettingError('policy', policy, expected)
    who = operator_of(run, policy)
    patients = who.plan.population(0) if run else mixture(3, heterogeneity, seed)
    assert isinstance(patients, Cohort | Mixture)
    with stopping() as stopped, ProgressBars(console()) as bars:
        written = draw_procedures(
            directory,
            [patients.patient(patient, 'test', each) for each in procedures_named(procedures)],
            actor=who.actor,
            world=who.plan.world,
            moving=gif,
            caller=Caller(bars, stopped),
        )
    for each in written:
        click.echo(each)
