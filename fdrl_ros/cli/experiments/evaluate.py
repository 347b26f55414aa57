# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl evaluate`: compare the policies of a run again, or try a policy file."""

from pathlib import Path
from typing import Any

import click
from fdrl_ros.cli.group import stopping
from fdrl_ros.cli.options import plan_from, plan_option, PlanCommand
from fdrl_ros.cli.output import announce, console, show
from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.deployment.layout import MAKERS
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy
from fdrl_ros.deployment.prepare import changed_settings
from fdrl_ros.errors import SettingError, StoreError, TaskError
from fdrl_ros.experiments.evaluation import PolicyContender
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.assessment import assess, evaluate_policies, evaluator_of
from fdrl_ros.experiments.reports.run_report import own_plan
from fdrl_ros.experiments.reports.run_table import policy_table
from fdrl_ros.experiments.reports.text_table import DISCLAIMER
from fdrl_ros.experiments.round_recorder import read_rounds
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.runtime.references import absolute_reference


@click.command(cls=PlanCommand)
@click.argument('paths', nargs=-1, required=True, type=click.Path(path_type=Path))
@plan_option
@click.option(
    '--episodes',
    type=click.Path(file_okay=False, path_type=Path),
    help='Directory for metrics of every operation, CSV and JSON; a run always has its own.',
)
def evaluate(
    paths: tuple[Path, ...], plan_file: str | None, episodes: Path | None, **flags: Any
) -> None:
    """
    Evaluate a run directory again, or files of policies.

    PATHS is a directory such as runs/latest, whose table and plots are then written anew, or
    files such as runs/latest/policies/global_6.npz, which are put beside the expert. Results of
    another world or of other settings are not written over.
    """
    if len(paths) == 1 and paths[0].is_dir():
        if episodes is not None:
            raise SettingError('episodes', str(episodes), 'none: a run has its own episodes/')
        _evaluate_run(RunDirectory(paths[0].resolve()), plan_file, flags)
    elif len(paths) == 1 and not paths[0].exists():
        raise StoreError(
            f'{paths[0]} is not there: expected a file of a policy, or a run; {MAKERS}'
        )
    else:
        _evaluate_files(paths, plan_from(flags, plan_file), episodes)


def _evaluate_run(run: RunDirectory, plan_file: str | None, flags: Json) -> None:
    own = own_plan(run.path).federation.task
    named = flags.get('federation__task') or own
    if absolute_reference(named) != own:
        raise TaskError(f'{run.path} has results of task {own}, not of {named}')
    plan = plan_from(flags, plan_file, run.layout)
    check_results(run, plan)
    click.get_current_context().with_resource(run.lock())
    announce(run, plan)
    rounds = read_rounds(run.path / 'rounds.json')
    with stopping() as stopped, ProgressBars(console()) as bars:
        results = evaluate_policies(run.layout, plan, run.policies, Caller(bars, stopped))
        found = assess(run.layout, results, rounds)
        run.save(found)
    show(run, found)


def check_results(run: RunDirectory, plan: Plan) -> None:
    """
    Refuse to write over results of another world or other settings.

    :raises TaskError: if the policies of the run are of another task or world.
    :raises StoreError: if a setting differs that the results depend on.
    """
    files = (
        f'or evaluate its files, such as {run.path}/policies/global_1.npz: the results of the run '
        'then stay as they are'
    )
    found = load_policy(run.layout.pretrained).task
    if found != plan.identity:
        raise TaskError(
            f'{run.path} has results of {found}, and this is {plan.identity}: put back the '
            f'version that made them, {files}'
        )
    if changed := changed_settings(run.layout, plan):
        raise StoreError(
            f'{run.path} has results of other settings ({", ".join(changed)}): take those again, '
            f'{files}'
        )


def _evaluate_files(paths: tuple[Path, ...], plan: Plan, episodes: Path | None) -> None:
    out, evaluator = console(), evaluator_of(plan)
    contenders = evaluator.baselines()
    for path in paths:
        saved = load_policy(path)
        if saved.task and saved.task.name != plan.identity.name:
            raise TaskError(
                f'{path} is of {saved.task}, not of {plan.identity}: --task names its task'
            )
        contenders.append(PolicyContender(str(path), saved.policy(plan, any_world=True)))
        if saved.task != plan.identity:
            out.print(f'{path} is of {saved.task}, evaluated in {plan.identity}', soft_wrap=True)
    with stopping() as stopped, ProgressBars(out) as bars:
        found = evaluator.evaluate(contenders, plan.evaluation.patients, Caller(bars, stopped))
    rows = {name: each.score for name, each in found.items()}
    out.print(policy_table(rows, evaluator.scores, out.width))
    out.print(DISCLAIMER, style='italic')
    if episodes is not None:
        evaluator.save_episodes(episodes, found)
        out.print(f'saved in {episodes}', highlight=False, soft_wrap=True)
