# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the pictures of the selector show."""

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.evaluation import operate_once, SelectorContender, unseen_patients
from fdrl_ros.experiments.intervals import interval
from fdrl_ros.experiments.plots.selector import draw_operation, draw_returns, ROWS
from fdrl_ros.learner.pretraining import untrained_weights
from fdrl_ros.policy import Policy
from fdrl_ros.selector import HOLD, Reason
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
    policy = Policy(untrained_weights(PLAN.shape, 1), PLAN.shape)
    contender = SelectorContender('selector', {'global': policy}, {}, PLAN.selector)
    env = SurgeryEnv(settings=PLAN.world)
    env.np_random = np.random.default_rng(1)
    try:
        return operate_once(env, contender, unseen_patients(PLAN, 1)[0], PLAN.world)
    finally:
        env.close()


def summary(seeds, holding, levels=(0.0, 1.0)):
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
        'levels': [{'level': level, 'contenders': rows} for level in levels],
    }


def marks(axes):
    """Return where points are drawn, by their label."""
    return {
        str(each.get_label()): np.asarray(each.get_offsets()).tolist() for each in axes.collections
    }


def test_who_lies_as_far_below_as_holding_is_told_but_not_drawn(drawn):
    draw_returns(summary((1, 2), -1.6), None)
    draw_returns(summary((1, 2), 4.9), None)
    for figure, shown in zip(drawn, (False, True), strict=True):
        labels = [each.get_text() for each in figure.legends[0].get_texts()]
        assert labels == [each for each in ROWS if shown or each != HOLD]
        assert ('hold (J = -1.58, -1.58)' in figure.get_supxlabel()) != shown
    low, _ = drawn[0].axes[0].get_ylim()
    assert low > 4.0


def test_points_of_one_h_stand_apart_around_its_tick(drawn):
    draw_returns(summary((1, 2), -1.6, (0.0, 0.1, 1.0)), None)
    left, _ = drawn[0].axes
    assert [each.get_text() for each in left.get_xticklabels()] == ['0', '0.1', '1']
    where = np.sort([each.lines[0].get_xdata() for each in left.containers], axis=0)
    assert np.diff(where, axis=0).min() > 0.09
    np.testing.assert_allclose(where.mean(axis=0), left.get_xticks(), atol=1e-12)
    assert np.abs(where - left.get_xticks()).max() < 0.5


def test_intervals_are_told_only_where_they_are_drawn(drawn):
    draw_returns(summary((1, 2), -1.6), None)
    draw_returns(summary((1,), -1.6), None)
    for figure, several in zip(drawn, (True, False), strict=True):
        assert ('2 seeds with 95 % intervals' in figure.get_supxlabel()) == several
        assert ('One seed: no intervals' in figure.get_supxlabel()) != several
        assert all(each.has_yerr == several for each in figure.axes[0].containers)


def test_an_operation_shows_why_it_held_and_what_was_vetoed(drawn, operation):
    episode, selections = operation
    assert len(selections) == len(episode.actions) == 12
    calm = [each._replace(policy='global', reason=Reason.KEPT, veto='') for each in selections]
    calm[2] = calm[2]._replace(policy=HOLD, reason=Reason.CAUTION)
    calm[3] = calm[3]._replace(policy=HOLD, reason=Reason.RISK_GATE)
    calm[5] = calm[5]._replace(veto=Veto.HARD_STOP, proposed=0)
    draw_operation(episode, calm, NAMES, None)
    panels = {each.get_ylabel(): each for each in drawn[0].axes}
    choices, actions = marks(panels['policy']), marks(panels['action'])
    assert choices['hold: caution'] == [[2 * TICK, 1]]
    assert choices['hold: risk_gate'] == [[3 * TICK, 1]]
    assert len(choices['policy']) == 10
    assert [at for at, _ in actions['vetoed: hard_stop']] == [5 * TICK]
    assert 'vetoed: force' not in actions
