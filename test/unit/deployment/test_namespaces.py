# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""ROS namespaces: which are legal, and what lies beside them."""

from fdrl_ros.deployment.namespaces import absolute, beside, check_namespace, LONGEST
from fdrl_ros.errors import SettingError
from hypothesis import given, strategies
import pytest

WORDS = strategies.from_regex(r'[A-Za-z_][A-Za-z0-9_]{0,8}', fullmatch=True)


@given(strategies.lists(WORDS, min_size=1, max_size=4), strategies.booleans())
def test_words_with_a_slash_between_them_are_legal(words, from_root):
    namespace = '/' * from_root + '/'.join(words)
    check_namespace('namespace', namespace)
    assert absolute(namespace) == '/' + '/'.join(words)
    assert absolute(*words) == absolute(namespace)


@pytest.mark.parametrize(
    'namespace',
    ['1st', 'north/', '//north', 'north//wing', 'north-wing', 'norð', '~/north', '{ns}', ' ']
    + ['north wing', 'north\n', 'n' * (LONGEST + 1)],
)
def test_what_ros_takes_for_no_namespace_is_refused(namespace):
    with pytest.raises(
        SettingError, match='namespace = .*expected a ROS namespace such as /north'
    ):
        check_namespace('namespace', namespace)


@pytest.mark.parametrize(
    ('namespace', 'other', 'expected'),
    [
        ('/robot_1', 'federation', '/federation'),
        ('/north/robot_1', 'federation', '/north/federation'),
        ('/north/robot_1', 'south/federation', '/north/south/federation'),
        ('/north/robot_1', '/south/federation', '/south/federation'),
        ('/', 'federation', '/federation'),
    ],
)
def test_relative_namespace_lies_beside_and_an_absolute_one_where_it_says(
    namespace, other, expected
):
    assert beside(namespace, other) == expected
