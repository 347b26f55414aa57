# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Progress and tables on terminals of all sizes: bars that fit, few lines in a log."""

import io

from fdrl_ros.cli.progress_bars import ProgressBars
from fdrl_ros.experiments.reports.run_table import policy_table
from fdrl_ros.experiments.surgery_evaluation import SCORES
from fdrl_ros.runtime.progress import Progress
import pytest
from rich.console import Console


def drawn(terminal: bool, kind: str, policies: int) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100, height=20)
    with ProgressBars(console) as bars:
        for number in range(policies):
            for done in range(1, 41):
                bars(Progress(kind, f'name_{number}', done, 40, 'detail'))
    return console.file.getvalue()


def test_a_log_gets_a_line_at_each_quarter_of_long_work():
    assert drawn(False, 'train', 2).splitlines() == [
        f'training together: name_{number} {done}/40 detail'
        for number in range(2)
        for done in (10, 20, 30, 40)
    ]
    assert len(drawn(False, 'evaluate', 3).splitlines()) == 3


def test_a_log_tells_at_once_what_will_be_silent_for_long():
    def said(*told):
        console = Console(file=io.StringIO(), force_terminal=False, width=100, height=20)
        with ProgressBars(console) as bars:
            for each in told:
                bars(each)
        return console.file.getvalue().splitlines()

    begun = [Progress('utility part', 'seed 1', 0, 800, 'collects')] * 2
    assert said(*begun) == ['measuring: seed 1 0/800 collects']
    lines = said(*(Progress('utility part', 'seed 1', done, 800) for done in range(801)))
    assert len(lines) == 9 and lines[-1] == 'measuring: seed 1 800/800'
    assert not said(*(Progress('sepsis part', 'one arm', done, 20) for done in range(21)))


@pytest.mark.parametrize('kind', ['train', 'evaluate'])
def test_bars_never_outgrow_the_screen(kind):
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=20)
    with ProgressBars(console) as bars:
        for number in range(60):
            bars(Progress(kind, f'name_{number}', 40, 40))
            assert len(bars._bars.tasks) <= 20


def test_a_narrow_terminal_gets_fewer_columns():
    row = {'patients': 1, 'success': 1.0, 'success_low': 0.2, 'success_high': 1.0}
    for name in ('a_task', 'a_task_exact', 'a_task_on_policy', 'r_mit', 'peak_force'):
        row[name] = 0.5
    for name in ('risk_adjusted_success', 'critical_errors', 'damage_share', 'informedness'):
        row[name] = 0.1
    row |= {'alpha_adapt': None, 'mean_return': 1.0}
    wide, narrow = (policy_table({'global': row}, SCORES, each) for each in (180, 80))
    assert len(wide.columns) == 14 and len(narrow.columns) == 7
    needed = Console(width=500).measure(wide).maximum
    for width, columns in ((needed, 14), (needed - 1, 7)):
        assert len(policy_table({'global': row}, SCORES, width).columns) == columns
    out = Console(file=io.StringIO(), width=80)
    out.print(narrow)
    assert all(len(line) <= 80 for line in out.file.getvalue().splitlines())
    assert 'undefined' in out.file.getvalue()
