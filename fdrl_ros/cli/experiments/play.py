# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl play`: watch a policy operate once, as text and as a moving picture."""

from pathlib import Path

import click
from fdrl_ros.cli.experiments.acting import operator_of
from fdrl_ros.cli.group import stopping
from fdrl_ros.cli.output import console
from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.plots.pictures import save_moving, watch
from fdrl_ros.experiments.reports.names import reader_name
from fdrl_ros.experiments.reports.text_table import DISCLAIMER
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.tasks.procedures import procedures_named

_EVERY = 5  # ticks from one printed step to the next


@click.command()
@click.argument('run', type=click.Path(path_type=Path))
@click.option('--policy', default='global', show_default=True, help='Name of a policy of the run.')
@click.option('--procedure', help='What is done.  [default: the first one of the run]')
@click.option('--hospital', default=1, show_default=True, help='Whose patient, from 1.')
@click.option(
    '--patient', default=0, show_default=True, type=click.IntRange(0), help='Its number.'
)
@click.option(
    '--out',
    type=click.Path(dir_okay=False, path_type=Path),
    help='The GIF.  [default: plots/play_POLICY_PROCEDURE.gif in RUN]',
)
def play(
    run: Path, policy: str, procedure: str | None, hospital: int, patient: int, out: Path | None
) -> None:
    """
    Watch a policy of a run operate once.

    It prints steps, forces and the outcome, and writes a moving picture (GIF). The patient is an
    unseen simulated one. Names of policies: expert, untrained, pretrained (the public start),
    global, global_N of round N, hospital_1 (released), alone_hospital_1, home_hospital_1.
    """
    who = operator_of(run, policy)
    plan, names = who.plan, who.plan.federation.names
    try:
        chosen = procedures_named(procedure)[0] if procedure else names[0]
    except SettingError as error:
        raise SettingError('procedure', procedure, error.expected) from error
    if not 1 <= hospital <= plan.federation.hospitals:
        raise SettingError('hospital', hospital, f'1 to {plan.federation.hospitals}')
    cohort = plan.population(hospital - 1)
    assert isinstance(cohort, Cohort)
    operated = cohort.patient(patient, 'test', chosen)
    console().print(DISCLAIMER, style='italic')
    with stopping() as stopped:
        caller = Caller(stopped=stopped)
        seen = watch(operated, plan.world, who.actor, moving=True, caller=caller)
    limit = operated.procedure.force_limit
    for step in seen.steps:
        beyond = step.force > limit
        number = round(step.time / seen.steps[0].time)
        if number % _EVERY == 0 or number in (1, len(seen.steps)) or beyond:
            words = f'{step.time:5.2f} s  step {number:3d}  {step.action:18s} {step.force:5.2f} N'
            click.echo(words + (f'  beyond the limit of {limit:g} N' if beyond else ''))
    end = 'success' if seen.success else f'failure: {reader_name(seen.failure or "time")}'
    most = max(each.force for each in seen.steps)
    click.echo(
        f'{reader_name(who.name)}, {reader_name(chosen)}, patient {operated.name}: {end} after '
        f'{len(seen.steps)} steps ({seen.steps[-1].time:.2f} s), at most {most:.2f} of {limit:g} N'
    )
    path = out or run / 'plots' / f'play_{policy}_{chosen}.gif'
    save_moving(seen.frames, path)
    click.echo(path)
