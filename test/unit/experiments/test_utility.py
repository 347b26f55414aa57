# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What privacy costs is measured by the real trainer at the stated epsilons, and goes on."""

import json
import math

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.plots.studies import draw_utility
from fdrl_ros.experiments.studies import utility
from fdrl_ros.experiments.studies.utility import (
    EPSILONS,
    name_of,
    privacy_at,
    STARTS,
    steps_of,
    summarise,
)
from fdrl_ros.privacy.accountant.accountant import epsilon_pld
from matplotlib.axes import Axes
import pytest

NAMES = [name_of(each) for each in EPSILONS]
FLAGS = (
    '--learner-hidden 4 --learner-epochs 1 --learner-transitions-per-patient 4 --rounds 1 '
    '--privacy-batch 2 --privacy-delta 1e-3 --collection-patients 4 --pretraining-patients 2 '
    '--pretraining-steps 4 --pretraining-batch 8 --evaluation-patients 2 --evaluation-workers 1 '
    '--world-mode kinematic --world-horizon 8 --seeds 2'
)


def test_the_noise_of_all_steps_costs_the_stated_epsilon_and_no_more():
    plan = Plan()
    steps = steps_of(plan, 500)
    assert steps == plan.rounds.rounds * plan.learner.epochs * math.ceil(500 / 128)
    for epsilon in EPSILONS[1:]:
        privacy = privacy_at(plan, epsilon, 500)
        history = [(privacy.noise_multiplier, 128 / 500, steps)]
        assert 0.99 * epsilon < epsilon_pld(history, privacy.delta) <= epsilon
    free = privacy_at(plan, math.inf, 500)
    assert free.noise_multiplier == 0.0 and free.clip_norm >= 1e6


def test_the_command_measures_every_start_and_epsilon_and_goes_on_from_its_parts(
    tmp_path, monkeypatch
):
    directory = tmp_path / 'utility'
    monkeypatch.setattr(utility, 'EPSILONS', (math.inf, 4.0))
    arguments = ['utility', *FLAGS.split(), '--directory', str(directory)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    summary = json.loads((directory / 'utility.json').read_text())
    assert (directory / 'utility.png').stat().st_size > 5000
    assert summary['seeds'] == [1, 2] and summary['private']
    assert 'measuring: seed 1 0/16 collects' in done.output
    assert f'saved in {directory}: utility.json, utility.png' in done.output
    for start in STARTS:
        assert list(summary['results'][start]) == ['inf', '4']
    for name, spent in summary['epsilon_spent'].items():
        assert (spent is None) if name == 'inf' else 0.9 * float(name) < spent <= float(name)
    parts = {each.name for each in (directory / 'parts').iterdir()}
    assert parts == {'seed_1.json', 'seed_2.json'}
    monkeypatch.setattr(utility, 'measure', None)  # nothing is measured again
    again = CliRunner().invoke(main, arguments)
    assert again.exit_code == 0, again.output


def test_a_plot_draws_an_interval_down_to_0(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(Axes, 'errorbar', lambda *a, **named: drawn.append(a[1:]))
    told = {'start': dict.fromkeys(STARTS, 0.5), 'sigma_m': {}, 'epsilon_spent': {}, 'steps': 1}
    rows = [
        {'success': {s: dict.fromkeys(NAMES, share) for s in STARTS}, **told}
        for share in (0.0, 0.1)
    ]
    draw_utility(summarise(rows, Plan(), [1, 2]), tmp_path / 'plot.png')
    for _, means, (below, above) in drawn:
        assert below == pytest.approx(means) and min(above) > 0.5
