# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A task that is tried before training says what would keep a policy from learning."""

from types import SimpleNamespace

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.errors import TaskError
from fdrl_ros.tasks.task import NoSettings
from fdrl_ros.tasks.trial import try_task
import numpy as np
import pytest
from support import pole
from support.pole import Pole

CHOSEN = SimpleNamespace(hospitals=3, heterogeneity=0.5, seed=1, procedures='')


def tried(task, patients=4):
    return try_task(task, NoSettings(), CHOSEN, patients)


def test_the_controller_is_compared_with_random_actions_on_the_same_patients():
    found = tried(Pole())
    names = [[each.patient.name for each in part] for part in (found.guided, found.random)]
    assert names[0] == names[1] and len({*names[0]}) == 4
    assert all(each.success for each in found.guided)
    assert not any(each.success for each in found.random)
    assert found.warnings() == []
    assert found.states.shape[1] == 4


def test_what_keeps_a_policy_from_learning_is_said():
    class Unreachable(Pole):
        success_return = 1e6

    class Trivial(Pole):
        success_return = 0.0

    class Backwards(Pole):
        success_return = 20.0

        def controller(self, observation, patient):
            return 1 - super().controller(observation, patient)

    class Unscaled(Pole):
        fields = tuple(type(each)(each.name, each.unit, 1e-3) for each in Pole.fields)

        def controller(self, observation, patient):
            return super().controller(observation * 5e-3, patient)

    for task, words in (
        (Unreachable(), 'nobody succeeds'),
        (Trivial(), 'always succeed'),
        (Backwards(), 'no more often than random'),
        (Unscaled(), 'give it a scale'),
    ):
        assert any(words in each for each in tried(task, 8).warnings()), words


def test_a_state_that_is_no_number_is_refused():
    class Broken(Pole):
        """Its rewards are no numbers."""

        def operate(self, env, choose, patient, rng):
            found = super().operate(env, choose, patient, rng)
            found.rewards[0] = np.nan
            return found

    with pytest.raises(TaskError, match='not finite'):
        tried(Broken())


def test_the_command_prints_scales_actions_and_successes():
    done = CliRunner().invoke(main, ['tasks', 'try', f'{pole.__file__}:Pole', '--patients', '3'])
    assert done.exit_code == 0, done.output
    for words in ('task pole 1', 'angular velocity', 'left, right', 'controller: success 100%'):
        assert words in done.output
    assert 'random: success 0%' in done.output and 'Mend this' not in done.output
