# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What does not belong together is refused before anything is spent."""

from dataclasses import replace

from fdrl_ros.errors import LedgerOwnerError, PolicyError, RecordsError
from fdrl_ros.learner.guarantee import Guarantee
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
import pytest

SHAPE = NetworkShape(4, 3, (8,))
LEARNER = LearnerSettings(hidden=8, epochs=1, transitions_per_patient=2, optimizer='sgd')
PRIVACY = PrivacySettings(batch=4, budget=50.0, delta=1e-3)
LOUD = replace(PRIVACY, noise_multiplier=20.0)
START = SHAPE.draw(np.random.default_rng(1))


def records(**changes):
    rng = np.random.default_rng(2)
    made = {
        'states': rng.normal(size=(60, 4)),
        'actions': rng.integers(3, size=60),
        'rewards': rng.normal(size=60),
        'next_states': rng.normal(size=(60, 4)),
        'terminals': np.zeros(60, bool),
        'starts': np.arange(21) * 3,
        'patients': np.array([f'patient_{i}' for i in range(20)]),
    }
    return Records(**made | changes)


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(
        tmp_path / 'ledger.sqlite', hospital='a', unit='patient', delta=1e-3, budget=50.0
    ) as opened:
        yield opened


def trainer(ledger, tmp_path, *, given=None, shape=SHAPE, privacy=PRIVACY, inputs=None):
    source = NoiseSource.seeded(3)
    place = tmp_path / 'checkpoint.npz'
    given = given or records()
    return Trainer(TrainingSetup(shape, LEARNER, privacy, ledger, source, inputs), given, place)


@pytest.mark.parametrize(
    'changes', [{'unit': 'transition'}, {'delta': 1e-4}, {'budget': 1.0}, {'budget': 100.0}]
)
def test_a_ledger_that_counts_for_another_promise_is_refused(ledger, tmp_path, changes):
    with pytest.raises(LedgerOwnerError, match=next(iter(changes))):
        trainer(ledger, tmp_path, privacy=replace(PRIVACY, **changes))


def test_an_action_that_the_network_has_not_is_refused(ledger, tmp_path):
    with pytest.raises(RecordsError, match='action'):
        trainer(ledger, tmp_path, given=records(actions=np.full(60, 3)))


def test_states_of_another_length_are_refused(ledger, tmp_path):
    with pytest.raises(RecordsError, match='5'):
        trainer(ledger, tmp_path, shape=NetworkShape(5, 3, (8,)))


@pytest.mark.parametrize('number', [-1.0, 6.0])
def test_a_state_that_the_inputs_have_not_is_refused(ledger, tmp_path, number):
    states = np.zeros((60, 1))
    states[7] = number
    given = records(states=states, next_states=np.zeros((60, 1)))
    with pytest.raises(RecordsError, match='inputs'):
        trainer(ledger, tmp_path, given=given, inputs=np.ones((6, 4), np.float32))


@pytest.mark.parametrize(
    'weights', [START[:-1], np.append(START, 0.0), START * np.nan, START[None]]
)
def test_weights_that_are_not_the_network_s_are_refused_and_cost_nothing(
    ledger, tmp_path, weights
):
    made = trainer(ledger, tmp_path)
    with pytest.raises(PolicyError):
        made.train(weights, 1, report=lambda told: None, stopped=lambda: False)
    assert ledger.epsilon() == 0.0


def test_a_step_in_stacked_frames_is_charged_as_often_as_it_is_seen():
    privacy = replace(PRIVACY, unit='transition')
    for n_step, frames, group in ((1, 1, 1), (3, 1, 3), (1, 4, 4), (3, 4, 6)):
        learner = replace(LEARNER, n_step=n_step, frame_stack=frames)
        assert Guarantee.from_settings(records(), learner, privacy).group == group


def released(tmp_path, name, given, source):
    """Train one block on some records under a ledger of its own, and return what came out."""
    (tmp_path / name).mkdir()
    with Ledger.open(
        tmp_path / name / 'ledger.sqlite', hospital='a', unit='patient', delta=1e-3, budget=50.0
    ) as ledger:
        place = tmp_path / name / 'checkpoint.npz'
        made = Trainer(TrainingSetup(SHAPE, LEARNER, LOUD, ledger, source), given, place, steps=1)
        told = made.train(START, 1, report=lambda told: None, stopped=lambda: False)
    return told.weights - START


def test_a_key_gives_every_ledger_noise_of_its_own(tmp_path):
    """A ledger that was lost and begun anew must not release the old noise for new gradients."""
    source = NoiseSource.secure(tmp_path / 'noise.key')
    others = records(rewards=np.random.default_rng(9).normal(size=60))
    one, two = (released(tmp_path, *each, source) for each in (('a', records()), ('b', others)))
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.5
    seeded = NoiseSource.seeded(4)
    one, two = (released(tmp_path, *each, seeded) for each in (('c', records()), ('d', others)))
    assert np.corrcoef(one, two)[0, 1] > 0.9
