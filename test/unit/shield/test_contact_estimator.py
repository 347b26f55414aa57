# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the shield learns of the arm from its moves, and which moves are still to come."""

import math

from fdrl_ros.selector import ShieldSettings
from fdrl_ros.shield.action_bounds import LateralReach
from fdrl_ros.shield.contact_estimator import ContactEstimator, ContactReading
from fdrl_ros.shield.depth_tables import depth_tables
from fdrl_ros.shield.prediction import compiled_prediction
from fdrl_ros.surgery.gym.actions import COARSE_STEP, FINE_STEP, TICK
import pytest

WIDE = ShieldSettings().wide_bounds()


def estimator_of(procedure):
    return ContactEstimator((compiled_prediction(WIDE, 0.01),), procedure)


def levels_of(lag, reported, ticks=12):
    """
    Return the levels that an arm in coarse moves downwards shows, state by state.

    :param lag: of the arm, s.
    :param reported: lags reported instead of the true ones, by the number of the state, m.
    """
    behind, height, levels = 0.0, 0.04, []
    estimator = estimator_of('retraction')
    for tick in range(ticks):
        estimator.update(
            ContactReading(0.0, reported.get(tick, behind), height, 0.0),
            TICK if tick else 0.0,
            True,
        )
        estimator.record_move(COARSE_STEP)
        levels.append(estimator.level)
        left = math.exp(-TICK / lag)
        behind = behind * left + COARSE_STEP / TICK * lag * (1.0 - left)
        height -= COARSE_STEP
    return levels


def test_an_arm_is_timed_over_several_ticks():
    """Its way in the first coarse moves tells less than that in five."""
    lag, slowest = 0.05, depth_tables(WIDE).levels
    levels = levels_of(lag, {}, 7)
    assert levels == sorted(levels) and levels[2] < levels[-1]
    assert lag <= slowest[levels[-1]] < 1.5 * lag


@pytest.mark.parametrize('wrong', [0.006, 0.003, 0.0])
@pytest.mark.parametrize('tick', range(12))
def test_one_wrong_lag_makes_no_slow_arm_quick(wrong, tick):
    assert levels_of(0.12, {tick: wrong}) == [0] * 12


@pytest.mark.parametrize('tick', [4, 8])
def test_an_arm_that_is_quick_again_is_taken_for_it_again(tick):
    levels = levels_of(0.03, {tick: 0.006}, 20)
    assert levels[tick - 1] > 0 == levels[tick] and levels[-1] == max(levels_of(0.03, {}, 20))


@pytest.mark.parametrize(('went', 'left'), [(0.0, 2), (FINE_STEP, 2), (COARSE_STEP, 0)])
@pytest.mark.parametrize('procedure', ['retraction', 'follow'])
def test_what_is_still_to_come_is_not_forgotten_within_a_tick(procedure, went, left):
    estimator = estimator_of(procedure)
    estimator.update(ContactReading(1.0, 0.0, -0.002, 0.0), 0.0, True)
    estimator.record_move(COARSE_STEP)
    soon = estimator.branch()
    after = ContactReading(1.0, 0.0, -0.002 - went, 0.0)
    # A waypoint that rides on the surface tells nothing of the set-point.
    expected = left if procedure == 'retraction' else 2
    assert soon.update(after, 0.0, True, soon=True)[0][1].pending == expected
    assert soon.update(after, 0.0, True, soon=True)[0][1].pending == expected, 'asked again'
    assert soon.update(after, 0.0, True)[0][1].pending == 0


def test_what_is_still_to_come_sideways_is_not_forgotten_within_a_tick():
    side = LateralReach(0.006, True)
    side.update(0.0, 0.0, False, 0.5)
    side.moved = COARSE_STEP
    side.update(0.0, 0.0, False, 1.0, soon=True)
    assert side.due == COARSE_STEP
    side.update(COARSE_STEP, 0.0, False, 1.0, soon=True)
    assert side.due == 0.0 and side.aside >= COARSE_STEP


def test_what_is_left_of_a_move_is_dropped_when_the_next_but_one_begins():
    """States that come a little early leave nothing behind for the rest of the case."""
    estimator, height, pending = estimator_of('retraction'), 0.03, []
    for tick in range(12):
        interval = 0.0 if not tick else TICK if tick > 8 else 0.96 * TICK
        pending.append(
            estimator.update(ContactReading(0.0, 0.0, height, 0.0), interval, True)[0][1].pending
        )
        down = COARSE_STEP if tick < 8 else 0.0
        estimator.record_move(down)
        height -= 0.96 * down
    assert pending[8] > 0 == pending[-1]
