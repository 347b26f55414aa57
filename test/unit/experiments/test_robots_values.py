# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The evaluation of a run takes over what its robots valued, and nothing that is another's."""

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.public_value import fitted_with, PublicValuation
from fdrl_ros.experiments.surgery_evaluation import SelectorContender, SurgeryEvaluator
from fdrl_ros.selector import HOLD
from fdrl_ros.selector.candidates.policy_files import PolicyFiles
import numpy as np
import pytest

PLAN = Plan().changed(
    {
        'federation': {'procedures': 'palpation'},
        'learner': {'hidden': 8},
        'home': {'epochs': 0},
        'value': {'patients': 9, 'features': 6, 'groups': 4, 'checked': 2, 'redraws': 16},
        'evaluation': {'workers': 1},
    }
)


def policy(seed):
    return PLAN.network.policy(PLAN.network.draw(np.random.default_rng(seed)))


@pytest.mark.parametrize('seed', [PLAN.federation.seed, PLAN.federation.seed + 1])
def test_what_a_robot_valued_with_the_same_settings_is_not_valued_again(
    tmp_path, monkeypatch, seed
):
    start, released = policy(0), policy(1)
    robot, valuation = PolicyFiles(tmp_path), PublicValuation(PLAN, start, known=[released])
    model = valuation.value_model(None)
    of_robot = PLAN.changed({'federation': {'seed': seed}})
    robot.save_model(HOLD, model.to_bytes(), fitted_with(of_robot, start, [released]))
    valued, original = [], PublicValuation.value_model

    def value_model(valuation, policy):
        valued.append(HOLD if policy is None else 'global')
        return original(valuation, policy)

    monkeypatch.setattr(PublicValuation, 'value_model', value_model)
    rows = {'pretrained': start, 'global': released}
    made = SurgeryEvaluator(PLAN).contenders(rows, ['global'], robots=[tmp_path])
    same = seed == PLAN.federation.seed
    assert sorted(valued) == (['global'] if same else ['global', HOLD])
    (selector,) = (each for each in made if isinstance(each, SelectorContender))
    holds = next(each for each in selector.candidates if each.name == HOLD)
    assert holds.value.to_bytes() == model.to_bytes()
