# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""An unknown name of a setting is answered with what was likely meant, in few words."""

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import SettingError
from fdrl_ros.learner.settings import LearnerSettings
import pytest


@pytest.mark.parametrize(
    ('values', 'meant'),
    [
        ({'learner': {'hiden': 4}}, 'hidden'),
        ({'lerner': {'hidden': 4}}, 'learner'),
        ({'privacy': {'bugdet': 1.0}}, 'budget'),
    ],
)
def test_the_nearest_name_is_suggested(values, meant):
    with pytest.raises(SettingError, match='did you mean') as error:
        Plan().changed(values)
    assert meant in str(error.value) and len(str(error.value)) < 120


def test_a_name_like_no_other_gets_no_long_list():
    for values in ({'learner': {'xyzzy': 4}}, {'learner': {7: 4}}):
        with pytest.raises(SettingError, match='one of the .* settings') as error:
            Plan().changed(values)
        assert len(str(error.value)) < 120


@pytest.mark.parametrize(
    ('text', 'expected'),
    [
        ('safety: {retrun_margin: 1.0}', 'did you mean return_margin'),
        ('federation: {prosedures: reach}', 'did you mean procedures'),
    ],
)
def test_a_prepared_plan_is_refused_for_a_name_of_any_group(tmp_path, text, expected):
    path = tmp_path / 'plan.yaml'
    path.write_text(Plan().to_yaml())
    assert Plan.read(path) == Plan()
    path.write_text(text)
    with pytest.raises(SettingError, match=expected):
        Plan.read(path)


@pytest.mark.parametrize(
    ('layers', 'frozen'), [(0, ''), (1, 'shared.0'), (2, 'shared.0, shared.1')]
)
def test_a_plan_that_freezes_layers_by_their_number_freezes_them_by_name(tmp_path, layers, frozen):
    path = tmp_path / 'plan.yaml'
    path.write_text(f'learner: {{frozen_layers: {layers}, hidden: 8}}')
    found = Plan.read(path)
    assert found.learner == LearnerSettings(frozen=frozen, hidden=8)
    assert 'frozen_layers' not in found.to_yaml()


def test_the_plan_s_own_table_of_names_is_that_of_the_settings():
    for name, kind in Plan.groups().items():
        assert getattr(Plan, name).names == [each.name for each in kind.describe()]


def test_few_names_are_all_told():
    with pytest.raises(SettingError, match='seed') as error:
        Plan().changed({'federation': {'xyzzy': 4}})
    assert 'hospitals' in str(error.value) and 'release' in str(error.value)
