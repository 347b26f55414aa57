# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl experiment --plan mastery`: the study of policies that master surgery."""

from fdrl_ros.cli.experiments.study_command import PlanStudy
from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.intervals import Interval, interval_words, share_words
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.mastery import draw_mastery
from fdrl_ros.experiments.reports.text_table import make_table
from fdrl_ros.experiments.studies.mastery.settings import base_plan, FULL, PLAN, QUICK
from fdrl_ros.experiments.studies.mastery.study import run_mastery
from rich.table import Table

MASTERY = PLAN


def run_fixed(study: PlanStudy, quick: bool) -> None:
    """
    Run the study, print its tables, save ``mastery.json`` and ``mastery.png``.

    :raises SettingError: if a setting is not as it was fixed; workers may be others.
    """
    workers = {'evaluation': {'workers': study.plan.evaluation.workers}}
    if study.plan != base_plan().changed(workers):
        raise SettingError('plan', MASTERY, 'no other settings beside it: they were fixed before')
    summary = study.measure(run_mastery, study.run.path, study.plan, QUICK if quick else FULL)
    for level, found in summary['levels'].items():
        study.out.print(_rows(level, found))
        study.show(*(_endpoint(each) for each in found['endpoints']))
    study.save('mastery', summary, draw_mastery)


def _rows(level: str, found: Json) -> Table:
    """Return who does how well at home and away, at one H."""
    rows = []
    for name, home in found['home'].items():
        away, lead = found['away'].get(name), found['paired'].get(name)
        rows.append(
            (
                name.replace('_', ' '),
                share_words(home),
                '' if away is None else share_words(away),
                '' if lead is None else interval_words(lead, factor=100.0),
            )
        )
    headings = ('row', 'at home, %', 'away, %', 'federated minus it')
    number = len(found['seeds'])
    count = f'{number} seed{"s" * (number > 1)}: mean [95 % interval]'
    return make_table(
        f'H = {level}, own unseen patients of each hospital, {count}', headings, rows
    )


def _endpoint(found: Json) -> str:
    """Return in a sentence whether an endpoint was met."""
    mean, low, high = (found[each] for each in ('mean', 'low', 'high'))
    lead = Interval(mean=mean, low=low, high=high, values=found['values'])
    words = interval_words(lead, '.2f', 100.0)
    what = f'federated minus {found["minus"].replace("_", " ")}: {words} points'
    if not found['tested']:
        return f'{what}; not tested, as one before it was not met'
    return f'{what}; {"" if found["met"] else "not "}above {100 * found["above"]:g}'
