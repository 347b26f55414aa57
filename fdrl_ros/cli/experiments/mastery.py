# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl experiment --plan mastery`: the study of policies that master surgery."""

import click
from click.core import ParameterSource
from fdrl_ros.cli.experiments.study_command import PlanStudy
from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.plots.mastery import draw_mastery
from fdrl_ros.experiments.reports.mastery_tables import mastery_tables
from fdrl_ros.experiments.studies.mastery.settings import base_plan, FULL, PLAN, QUICK
from fdrl_ros.experiments.studies.mastery.study import run_mastery
from rich.markdown import Markdown

MASTERY = PLAN


def run_fixed(study: PlanStudy, quick: bool) -> None:
    """
    Run the study, print its tables, save ``mastery.json``, ``mastery.png`` and the report.

    :raises SettingError: if a setting or the seeds are not as they were fixed; workers may be
        others.
    """
    given = click.get_current_context().get_parameter_source('seeds')
    if given is not ParameterSource.DEFAULT:
        raise SettingError(
            'seeds', len(study.seeds), f'none with {MASTERY}: they were fixed before'
        )
    workers = {'evaluation': {'workers': study.plan.evaluation.workers}}
    if study.plan != base_plan().changed(workers):
        raise SettingError('plan', MASTERY, 'no other settings beside it: they were fixed before')
    summary = study.measure(run_mastery, study.run.path, study.plan, QUICK if quick else FULL)
    summary = {'quick': quick, **summary}
    tables = mastery_tables(summary)
    for name, table in tables.items():
        study.out.print(Markdown(f'## {name}\n\n{table}'))
    note = 'Quick: one seed, learners undertrained. This shows the form; its numbers mean nothing.'
    if quick:
        study.out.print(note)
    study.save('mastery', summary, draw_mastery)
