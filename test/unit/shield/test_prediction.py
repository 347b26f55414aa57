# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is predicted for one robot, compiled or not, is what is predicted for many, in arrays."""

import itertools
import math
from pathlib import Path
import re

from fdrl_ros.errors import StateError
from fdrl_ros.runtime import kernels
from fdrl_ros.selector import ShieldSettings
from fdrl_ros.shield import prediction
from fdrl_ros.shield.depth_tables import LEVELS, MOVES
from fdrl_ros.shield.prediction import (
    compiled_prediction,
    CompiledPrediction,
    ContactState,
    FRESH,
    KINDS,
    Prediction,
    TissueKind,
)
from fdrl_ros.shield.shield import Shield, Veto
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.state import INDEX, OPERATION_SIZE
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

SETTINGS = ShieldSettings(active=True)
RADIUS = 0.004
MANY = [Prediction(each, RADIUS) for each in (SETTINGS.wide_bounds(), SETTINGS.usual_bounds())]
SINGLE = [CompiledPrediction(each.bounds, RADIUS) for each in MANY]
NOT_FINITE = (math.nan, math.inf, -math.inf)
compiled = pytest.mark.skipif(
    not kernels.built(), reason='the compiled arithmetic was not built here (native/build.py)'
)
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
        found.append(TissueKind(top, -top, 1.0) if gone else TissueKind(*ends, doubt))
    if all(each.slow > each.fast for each in found):
        found[draw(st.integers(0, KINDS - 1))] = TissueKind(-top, top)
    return found


@st.composite
def contact_states(draw, top):
    """Return what a robot may have seen in contact or near it."""
    room = draw(st.one_of(st.just(-math.inf), st.floats(-0.02, 0.01)))
    return ContactState(
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
    many = [TissueKind(*(np.array([number]) for number in each)) for each in seen.kinds]
    return ContactState(**numbers, kinds=many, interval=seen.interval)


def seen_by(single):
    """Return what one robot may have seen in contact."""
    return ContactState(1.0, 1.0, 0.0, 0.0, 0.0, 0.0, -0.01, 0, 0, single.unknown_tissue())


def as_compiled(seen):
    """Return the same as the compiled arithmetic takes it."""
    return seen._replace(kinds=kernels.ffi.new('fdrl_outlook *', {'kinds': seen.kinds}))


@compiled
@pytest.mark.parametrize('place', [0, 1], ids=['wide', 'usual'])
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_one_robot_is_told_what_each_of_many_is(place, data):
    prediction, single = MANY[place], SINGLE[place]
    seen = data.draw(contact_states(prediction.bounds.speed))
    one, many = as_compiled(seen), as_arrays(seen)
    mine, theirs = single.infer(one), prediction.infer(many)
    for own, other in zip(mine.kinds.kinds, theirs.kinds, strict=True):
        own = [own.slow, own.fast, own.doubt]
        assert own == pytest.approx([float(each[0]) for each in other], abs=1e-12)
    for name in ('softest', 'stiffest', 'contact', 'speed', 'fast', 'far', 'high', 'sinking'):
        other = np.broadcast_to(getattr(theirs, name), 1)[0]
        assert getattr(mine.kinds, name) == pytest.approx(other, rel=1e-12), name
    enough = data.draw(st.sampled_from([0.0, 1.0, 100.0]))
    for move in range(len(MOVES)):
        own = single.force(one, mine, move, 0.001, enough)
        assert own == pytest.approx(prediction.force(many, theirs, move, 0.001, enough)[0])


@pytest.mark.parametrize('single', SINGLE, ids=['wide', 'usual'])
@pytest.mark.parametrize(
    ('name', 'wrong'),
    [
        *itertools.product(('force', 'before', 'lag', 'lag_before', 'aside'), NOT_FINITE),
        *itertools.product(('interval',), (*NOT_FINITE, 0.0, -TICK)),
        *itertools.product(('room', 'room_ever'), (math.nan,)),
        *itertools.product(('sunk',), (math.inf, -math.inf)),
        *itertools.product(('level',), (-1, LEVELS)),
        *itertools.product(('pending',), (-1, 3)),
    ],
)
@compiled
def test_what_cannot_be_is_refused(single, name, wrong):
    with pytest.raises(StateError, match='cannot be'):
        single.infer(seen_by(single)._replace(**{name: wrong}))


@pytest.mark.parametrize(
    'asked',
    [(-1,), (len(MOVES),), (0, math.nan), (0, math.inf), (0, 0.0, math.nan)],
)
@compiled
def test_no_force_is_told_for_what_cannot_be(asked):
    seen = seen_by(SINGLE[0])
    with pytest.raises(StateError, match='no force'):
        SINGLE[0].force(seen, SINGLE[0].infer(seen), *asked)


def test_what_is_not_finite_is_refused_without_the_compiled_arithmetic_too():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, 'lib', None)
        single = CompiledPrediction(MANY[0].bounds, RADIUS)
    for name in ('force', 'before', 'lag', 'lag_before', 'aside', 'interval'):
        with pytest.raises(StateError, match='cannot be'):
            single.infer(seen_by(single)._replace(**{name: math.nan}))


@compiled
def test_an_operation_is_decided_alike_without_the_compiled_arithmetic():
    def operate():
        rng, shield = np.random.default_rng(5), Shield(SETTINGS)
        values, said = np.zeros(OPERATION_SIZE), []
        values[INDEX['force_limit']] = 3.4
        for tick in range(60):
            height = 0.02 - 0.001 * tick
            force = max(0.0, 400.0 * -height) * float(rng.uniform(0.9, 1.1))
            values[[INDEX['goal_error_z'], INDEX['lag'], INDEX['force']]] = height, 0.002, force
            shield.update(values, 'palpation', tick * TICK)
            said.append(shield.decide(int(rng.integers(15))))
        return said

    mine = operate()
    compiled_prediction.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, 'lib', None)
        plain = operate()
    compiled_prediction.cache_clear()
    assert {each.veto for each in mine} >= {Veto.NONE, Veto.HARD_STOP}
    for one, other in zip(mine, plain, strict=True):
        assert (one.action, one.veto) == (other.action, other.veto)
        assert (one.usual_force, one.wide_force) == pytest.approx(
            (other.usual_force, other.wide_force)
        )


def test_the_constants_of_the_compiled_arithmetic_are_those_of_the_arrays():
    source = Path(__file__).parents[3] / 'native' / 'contact.c'
    told = dict(re.findall(r'^#define (\w+) ([-.\de]+)$', source.read_text('utf-8'), re.MULTILINE))
    expected = {
        'TINY': prediction.TINY,
        'SLACK': prediction.SLACK,
        'FRESH': prediction.FRESH,
        'LEAST_DEPTH': prediction.LEAST_DEPTH,
        'ROUNDING': 1e-9,
    }
    assert {name: float(number) for name, number in told.items()} == expected


@compiled
def test_tables_of_another_form_are_refused(monkeypatch):
    monkeypatch.setattr('fdrl_ros.shield.prediction.KINDS', KINDS + 1)
    with pytest.raises(RuntimeError, match='another form'):
        CompiledPrediction(MANY[0].bounds, RADIUS)
