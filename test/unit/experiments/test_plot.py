# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the pictures of the selector show."""

from pathlib import Path

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.evaluation import unseen_patients
from fdrl_ros.experiments.intervals import interval
from fdrl_ros.experiments.plots.selector import draw_operation, draw_returns, ROWS
from fdrl_ros.experiments.reports.names import reader_name
from fdrl_ros.experiments.surgery_evaluation import operate_once, SelectorContender
from fdrl_ros.selector import Candidate, HOLD, Reason
from fdrl_ros.shield.shield import Veto
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from matplotlib.figure import Figure
import numpy as np
import pytest

PLAN = Plan().changed({'learner': {'hidden': 8}, 'world': {'mode': 'kinematic', 'horizon': 12}})
NAMES = ('global', HOLD)


@pytest.fixture
def drawn(monkeypatch):
    figures = []
    monkeypatch.setattr(Figure, 'savefig', lambda figure, path, **_: figures.append(figure))
    return figures


@pytest.fixture(scope='module')
def operation():
    policy = PLAN.network.policy(PLAN.network.draw(np.random.default_rng(1)))
    contender = SelectorContender('selector', [Candidate('global', policy)], PLAN.selector)
    env = SurgeryEnv(settings=PLAN.world)
    env.np_random = np.random.default_rng(1)
    try:
        return operate_once(env, contender, unseen_patients(PLAN, 1)[0], PLAN)
    finally:
        env.close()


def summary(seeds, holding):
    returns = {
        name: [5.0 + 0.1 * place + 0.01 * seed for seed in seeds]
        for place, name in enumerate(ROWS)
    } | {HOLD: [holding + 0.01 * seed for seed in seeds]}
    lead = {
        name: [own - other for own, other in zip(returns['selector'], theirs, strict=True)]
        for name, theirs in returns.items()
    }
    rows = {
        name: {'return': interval(returns[name]), 'lead': interval(lead[name])} for name in ROWS
    }
    return {
        'seeds': list(seeds),
        'levels': [{'level': level, 'contenders': rows} for level in (0.0, 1.0)],
    }


def marks(axes):
    """Return where points are drawn, by their label."""
    return {
        str(each.get_label()): np.asarray(each.get_offsets()).tolist() for each in axes.collections
    }


@pytest.mark.parametrize(('seeds', 'holding'), [((1, 2), -1.6), ((1, 2), 4.9), ((1,), 4.9)])
def test_who_lies_far_below_is_named_and_intervals_are_drawn_of_several_seeds(
    drawn, seeds, holding
):
    draw_returns(summary(seeds, holding), Path('plot.png'))
    figure, near, several = drawn[0], holding > 0.0, len(seeds) > 1
    words, axes = figure.get_supxlabel(), figure.axes[0]
    labels = [each.get_text() for each in figure.legends[0].get_texts()]
    assert labels == [reader_name(each) for each in ROWS if near or each != HOLD]
    assert ('hold still (J = -1.58, -1.58)' in words) != near
    assert axes.get_ylim()[0] > 4.0
    assert ('2 seeds with 95 % intervals' in words) == several != ('One seed' in words)
    assert all(each.has_yerr == several for each in axes.containers)


def test_an_operation_shows_why_it_held_and_what_was_vetoed(drawn, operation):
    episode, selections = operation
    assert len(selections) == len(episode.actions) == 12
    calm = [each._replace(policy='global', reason=Reason.KEPT, veto='') for each in selections]
    calm[2] = calm[2]._replace(policy=HOLD, reason=Reason.CAUTION)
    calm[3] = calm[3]._replace(policy=HOLD, reason=Reason.RISK_GATE)
    calm[5] = calm[5]._replace(veto=Veto.HARD_STOP, proposed=0)
    draw_operation(episode, calm, NAMES, Path('plot.png'))
    panels = {each.get_ylabel(): each for each in drawn[0].axes}
    choices, actions = marks(panels['policy']), marks(panels['action'])
    assert choices['hold: caution'] == [[2 * TICK, 1]]
    assert choices['hold: risk_gate'] == [[3 * TICK, 1]]
    assert len(choices['policy']) == 10
    assert [at for at, _ in actions['vetoed: hard_stop']] == [5 * TICK]
    assert 'vetoed: force' not in actions
