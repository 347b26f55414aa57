# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Noise that was paid for is drawn for the very same inputs alone: else two releases share it."""

from dataclasses import replace

from fdrl_ros.errors import PrivacyError
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
import numpy as np
import pytest
from support.small_hospital import (
    Draws,
    ledger_of,
    PRIVACY,
    RecordedNoise,
    records,
    trained,
)

SHAPE, OTHER_SHAPE = NetworkShape(2, 2, (4, 3)), NetworkShape(2, 2, (2, 5))
START = SHAPE.draw(np.random.default_rng(0))
LEARNER = LearnerSettings(epochs=1, transitions_per_patient=2, replay='prioritised_poisson')
NUMBERED = replace(
    records(),
    states=np.arange(30.0)[:, None] % 4,
    next_states=np.arange(1.0, 31.0)[:, None] % 4,
    ends=None,
)
TABLE = np.random.default_rng(1).normal(size=(4, 2)).astype(np.float32)
OTHERS = replace(records(), patients=np.array([f'someone_{i}' for i in range(10)]))


def changed(given: Records, name: str) -> Records:
    """Change one number of the records, and nothing that is charged."""
    value = getattr(given, name).copy()
    if value.dtype == bool:
        value[4] ^= True
    elif name == 'actions':
        value[4] = 1 - value[4]
    else:
        value.reshape(-1)[4] += 0.5
    return replace(given, **{name: value})


CHANGES = {
    'key': {'key': 'another'},
    'learning rate': {'learner': replace(LEARNER, learning_rate=0.005)},
    'discount': {'learner': replace(LEARNER, discount=0.5)},
    'target period': {'learner': replace(LEARNER, target_period=7)},
    'clip norm': {'privacy': replace(PRIVACY, clip_norm=1.5)},
    'start': {'start': START + np.float32(1e-3)},
    'network of as many weights': {'network': OTHER_SHAPE},
    'patients': {'given': OTHERS},
    **{
        name: {'given': changed(records(), name)}
        for name in ('states', 'actions', 'rewards', 'next_states', 'terminals')
    },
    'ends': {'given': replace(records(), ends=np.arange(30) % 3 == 1)},
    'table': {'given': NUMBERED, 'inputs': TABLE + np.float32(1e-3)},
    'numbers': {'given': changed(NUMBERED, 'rewards'), 'inputs': TABLE},
}


def set_up(home, told, *, ledger, given=None, key='a', start=START, **settings):
    """Return a learner whose draws are told of, and the weights that it begins with."""
    chosen = {'network': SHAPE, 'learner': LEARNER, 'privacy': PRIVACY} | settings
    setup = TrainingSetup(**chosen, ledger=ledger, source=RecordedNoise(key, told))
    return Trainer(setup, given or records(), home / 'a.state'), start


def train(made: Trainer, start: np.ndarray, way: str) -> np.ndarray:
    if way == 'train_on':
        return made.train_on(None, start, 1, stopped=lambda: False).weights
    return trained(made, start).weights


@pytest.mark.parametrize('changes', CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize('way', ['train', 'train_on'])
def test_each_input_that_is_changed_alone_is_refused_before_a_draw(tmp_path, changes, way):
    """The checkpoint is gone, so the first block is asked for again, and it alone."""
    told: Draws = []
    as_before = {'inputs': TABLE, 'given': NUMBERED} if 'inputs' in changes else {}
    with ledger_of(tmp_path, 'a', PRIVACY) as ledger:
        first = train(*set_up(tmp_path, told, ledger=ledger, **as_before), way)
        spent, head = ledger.epsilon(), ledger.chain.head
        assert told
        (tmp_path / 'a.state').unlink(missing_ok=True)
        told.clear()
        with pytest.raises(PrivacyError, match='inputs'):
            train(*set_up(tmp_path, told, ledger=ledger, **changes), way)
        assert told == []
        again = train(*set_up(tmp_path, told, ledger=ledger, **as_before), way)
        np.testing.assert_array_equal(again, first)
        assert (ledger.epsilon(), ledger.chain.head) == (spent, head)


@pytest.mark.parametrize(
    'name', ['weights', 'target', 'moments', 'priorities', 'steps', 'anchor of the proximal term']
)
def test_an_earlier_state_that_is_changed_alone_is_refused_before_a_draw(tmp_path, name):
    told: Draws = []
    learner = replace(LEARNER, proximal=1.0)
    with ledger_of(tmp_path, 'a', PRIVACY) as ledger:
        made, start = set_up(tmp_path, told, ledger=ledger, learner=learner)
        state = made.train_on(None, start, 1, stopped=lambda: False)
        second = made.train_on(state, start, 2, stopped=lambda: False)
        head = ledger.chain.head
        told.clear()
        changed, anchor = state, start
        if name == 'steps':
            changed = replace(state, steps=state.steps + 1)
        elif name in vars(state):
            array = getattr(state, name).copy()
            array.reshape(-1)[0] *= 0.75
            assert not np.array_equal(array, getattr(state, name))
            changed = replace(state, **{name: array})
        else:
            anchor = start + np.float32(1e-3)
        with pytest.raises(PrivacyError, match='inputs'):
            made.train_on(changed, anchor, 2, stopped=lambda: False)
        assert told == []
        again = made.train_on(state, start, 2, stopped=lambda: False)
        np.testing.assert_array_equal(again.weights, second.weights)
        assert ledger.chain.head == head
