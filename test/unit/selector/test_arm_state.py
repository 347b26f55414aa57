# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which word of the arm on its operating state counts, where it is heard twice."""

from fdrl_ros.selector import Reason
from fdrl_ros.selector.control.plausibility import NewestMessage, SET_BACK
import pytest
from support.robot_loop import StateStream, up

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ('stamps', 'believed'),
    [
        ((NOW, NOW + 0.01, NOW + 1e4), (True, True, True)),
        ((NOW, NOW), (True, True)),
        ((NOW, NOW - 0.001, NOW - SET_BACK, NOW), (True, False, False, True)),
        ((NOW, 0.0, NOW - 1.0), (True, True, False)),
        ((0.0, 0.0), (True, True)),
        ((NOW, NOW - SET_BACK - 1.0, NOW - SET_BACK), (True, True, True)),
        ((500.0, 0.01, 0.02, 0.015), (True, True, True, False)),
    ],
    ids=['newer', 'twice', 'older', 'unstamped', 'never stamped', 'set back', 'restarted'],
)
def test_what_is_older_is_not_believed_unless_the_clock_was_set(stamps, believed):
    newest = NewestMessage()
    assert tuple(newest.accepts(each) for each in stamps) == believed


def test_an_arm_that_is_paused_is_not_moved_by_an_older_word():
    stream = StateStream(up)
    stream.run(20)
    assert stream.loop.receive_arm_state('PAUSED', True, NOW)
    assert not stream.loop.receive_arm_state('ENABLED', True, NOW - 0.5)
    stream.run(20)
    assert stream.last.reason == Reason.PAUSED
    assert stream.loop.receive_arm_state('ENABLED', True, NOW + 0.5)
    stream.run(20)
    assert stream.last.policy == 'global'


def test_a_word_stamped_ahead_of_the_clock_silences_none_after_it():
    loop = StateStream(up).loop
    assert loop.receive_arm_state('ENABLED', True, NOW + 3.0, NOW)
    assert loop.receive_arm_state('PAUSED', True, NOW + 0.1, NOW + 0.1)
    assert not loop.receive_arm_state('ENABLED', True, NOW, NOW + 0.2), (
        'what came in time has its order'
    )
    assert loop.receive_arm_state('ENABLED', True, NOW + 0.4, NOW + 0.2), 'within the tolerance'
    assert not loop.receive_arm_state('PAUSED', True, NOW + 0.3, NOW + 0.3)
