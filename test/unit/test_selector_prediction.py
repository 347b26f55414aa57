# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is predicted for one robot, in plain floats, is what is predicted for many, in arrays."""

import math

from fdrl_ros.env.actions import TICK
from fdrl_ros.selector import ShieldSettings
from fdrl_ros.selector.excursion import LEVELS, MOVES
from fdrl_ros.selector.kinds import FRESH, gained_by_one, Kind
from fdrl_ros.selector.prediction import gained, KINDS, Prediction, Seen
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

SETTINGS = ShieldSettings(active=True)
PREDICTIONS = [Prediction(each, 0.004) for each in (SETTINGS.wide(), SETTINGS.usual())]
FORCES = st.one_of(st.just(0.0), st.floats(0.0, 12.0))


@st.composite
def kinds(draw, top):
    """Return what a surface could do, of some kinds nothing."""
    found = []
    for _ in range(KINDS):
        ends = sorted(draw(st.floats(-top, top)) for _ in range(2))
        gone = draw(st.sampled_from([False, False, True]))
        doubt = draw(st.sampled_from([0.0, 1.0, FRESH]))
        if doubt == FRESH:  # it has just begun anew
            ends = [-top, top]
        found.append(Kind(top, -top, 1.0) if gone else Kind(*ends, doubt))
    if all(each.slow > each.fast for each in found):
        found[draw(st.integers(0, KINDS - 1))] = Kind(-top, top)
    return found


@st.composite
def sights(draw, top):
    """Return what a robot may have seen in contact or near it."""
    room = draw(st.floats(-0.02, 0.01))
    return Seen(
        force=draw(FORCES),
        before=draw(FORCES),
        lag=draw(st.floats(-0.006, 0.006)),
        lag_before=draw(st.floats(-0.006, 0.006)),
        sunk=draw(st.one_of(st.just(math.nan), st.floats(-0.006, 0.006))),
        room=room,
        room_ever=room - draw(st.floats(0.0, 0.01)),
        pending=draw(st.integers(0, 2)),
        level=draw(st.integers(0, LEVELS - 1)),
        kinds=draw(kinds(top)),
        aside=draw(st.floats(0.0, 0.005)),
        interval=draw(st.floats(0.9 * TICK, 1.1 * TICK)),
    )


def as_arrays(seen):
    """Return the same of one robot among many."""
    numbers = {
        name: np.array([value])
        for name, value in seen._asdict().items()
        if name not in ('kinds', 'interval')
    }
    many = [Kind(*(np.array([number]) for number in each)) for each in seen.kinds]
    return Seen(**numbers, kinds=many, interval=seen.interval)


@pytest.mark.parametrize('prediction', PREDICTIONS, ids=['wide', 'usual'])
@given(data=st.data())
def test_one_robot_is_told_what_each_of_many_is(prediction, data):
    one = data.draw(sights(prediction.bounds.speed))
    many = as_arrays(one)
    mine, theirs = prediction.outlook(one), prediction.outlook(many)
    for own, other in zip(mine.kinds, theirs.kinds, strict=True):
        assert own == pytest.approx([float(each[0]) for each in other], abs=1e-12)
    for name in ('softest', 'stiffest', 'contact', 'speed', 'fast', 'far', 'high', 'sinking'):
        other = np.broadcast_to(getattr(theirs, name), 1)[0]
        assert getattr(mine, name) == pytest.approx(other, rel=1e-12), name
    enough = data.draw(st.sampled_from([0.0, 1.0, 100.0]))
    for move in range(len(MOVES)):
        own = prediction.force(one, mine, move, 0.001, enough)
        assert own == pytest.approx(prediction.force(many, theirs, move, 0.001, enough)[0])


@given(*(st.floats(0.0, 5.0) for _ in range(2)), *(st.floats(-0.1, 0.1) for _ in range(2)))
def test_what_was_gained_is_the_same_for_one_robot(now, then, one, other):
    slow, fast = min(one, other), max(one, other)
    many = gained(*(np.array([each]) for each in (now, slow, then, fast)), 5.0)
    assert gained_by_one(now, slow, then, fast, 5.0) == pytest.approx(float(many[0]), abs=1e-12)
