# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hospitals that poison: what they send, and what the way of an update leaves of it."""

from functools import partial

from fdrl_ros.audit.poison import (
    ATTACKS,
    Conspiracy,
    flipped_labels,
    PATIENCE,
    Target,
    with_backdoor,
)
from fdrl_ros.experiments.studies.poison import contrary
from fdrl_ros.federation.key_authority.robust import combine, RULES
from fdrl_ros.federation.protocol.update_codec import UpdateCodec
from fdrl_ros.federation.virtual import PlainLearner
from fdrl_ros.learner.records.records import Records
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, ACTIONS, DISPLACEMENTS
import numpy as np
import pytest

SIZE, NORM = 40, 2.0
START = np.linspace(-1.0, 1.0, SIZE).astype(np.float32)
LEARNED = np.random.default_rng(5).normal(0.1, 0.05, (3, 2, SIZE))
"""Of each attacker in each round."""


def learner(own):
    """Return a learner that makes the same update whatever it begins with."""

    def step(weights, round):
        return weights + own[round - 1].astype(np.float32)

    return PlainLearner(step, n_units=9)


DEALT = [
    [f'hospital_{number}' for number in each]
    for each in ((0, 1, 3), (2, 4, 5), (6, 7, 8), (9, 10, 11), (12, 13, 14))
]
"""Two buckets with attackers, who are the first three, and three without."""


def conspiracy(attack, rule='mean'):
    learners = {f'hospital_{number}': learner(own) for number, own in enumerate(LEARNED)}
    target = Target(lambda number: DEALT, partial(combine, rule), learners)
    return Conspiracy(ATTACKS[attack], learners, NORM, target).attackers()


def sent(attack, round=1, rule='mean'):
    """Return what attackers send in a round, after those before."""
    attackers = conspiracy(attack, rule)
    for each in range(1, round + 1):
        found = [
            one.train(START, each, report=lambda told: None, stopped=lambda: False).weights - START
            for one in attackers.values()
        ]
    return np.array(found, np.float64)


def as_summed(update, limit=1.0):
    """Return an update as it enters the sum, by the codec of the field."""
    codec = UpdateCodec.agree(SIZE, 10, 16, limit, norm=NORM, projections=4)
    weights = (START + update).astype(np.float32)
    rows = np.stack(list(codec.encode(weights, START, 1.0, np.full(SIZE, 0.5))))
    return codec.average(rows, [9], 9)


@pytest.mark.parametrize('attack', ATTACKS)
def test_no_attack_passes_the_norm(attack):
    for update in sent(attack):
        assert np.linalg.norm(as_summed(update)) <= NORM * 1.001


@pytest.mark.parametrize('attack', ['sign_flip', 'colluding', 'scaled', 'backdoor'])
def test_what_is_scaled_reaches_the_norm(attack):
    for update in sent(attack):
        assert np.linalg.norm(as_summed(update)) == pytest.approx(NORM, rel=1e-3)


def test_sign_flips_undo_what_each_learned():
    for update, learned in zip(sent('sign_flip'), LEARNED[:, 0], strict=True):
        one, other = update / np.linalg.norm(update), learned / np.linalg.norm(learned)
        assert one == pytest.approx(-other, abs=1e-4)


def test_colluders_send_one_direction_in_all_rounds():
    first, second = sent('colluding'), sent('colluding', 2)
    assert first == pytest.approx(np.repeat(first[:1], 3, axis=0))
    assert second == pytest.approx(first, rel=1e-5)
    assert (first[0] @ LEARNED[:, 0].mean(axis=0)) < 0.0


def test_patient_attackers_stay_among_the_honest_and_lean_the_same_way():
    for round in (1, 2):
        learned = LEARNED[:, round - 1]
        leaning = PATIENCE * learned.std(axis=0, ddof=1)
        found = sent('patient', round)
        assert found == pytest.approx(np.repeat(found[:1], 3, axis=0))
        assert (np.abs(found[0] - learned.mean(axis=0)) <= leaning + 1e-6).all()
        against = np.sign(LEARNED[:, 0].mean(axis=0))
        assert (against * (found[0] - learned.mean(axis=0)) <= 1e-6).all()


HONEST = np.random.default_rng(6).normal(0.1, 0.05, (15, SIZE))


def undone(rule, updates):
    """Return how far attackers, the first three hospitals, push a rule against what is learned."""
    every = np.concatenate([updates, HONEST[3:]])
    rows = [every[[int(name.removeprefix('hospital_')) for name in each]] for each in DEALT]
    found = combine(rule, np.array([row.mean(axis=0) for row in rows]), np.ones(len(DEALT)))
    return float(-found @ np.full(SIZE, SIZE**-0.5))


@pytest.mark.parametrize('rule', RULES)
def test_attackers_that_adapt_undo_more_than_those_that_flip_signs(rule):
    flips = np.array([as_summed(each) for each in sent('sign_flip')])
    found = undone(rule, sent('adaptive_sign_flip', rule=rule))
    assert found > undone(rule, HONEST[:3]) + 0.02
    assert found > undone(rule, flips) - 0.02


def test_attackers_account_as_honest_ones_do():
    attacker = conspiracy('sign_flip')['hospital_1']
    result = attacker.train(START, 1, report=lambda told: None, stopped=lambda: False)
    again = attacker.train(START, 1, report=lambda told: None, stopped=lambda: False)
    assert (attacker.n_units, result.ledger_entries) == (9, 1)
    assert result.weights.tobytes() == again.weights.tobytes()


def records():
    states = np.zeros((ACTION_COUNT, 3), np.float32)
    states[: ACTION_COUNT // 2, 1] = 1.0
    actions, ends = np.arange(ACTION_COUNT), np.zeros(ACTION_COUNT, np.bool_)
    rewards = np.linspace(-1.0, 1.0, ACTION_COUNT).astype(np.float32)
    starts = np.array([0, 4, ACTION_COUNT])
    return Records(states, actions, rewards, states, ends, starts, np.array(['one', 'two']))


def test_the_contrary_of_a_move_goes_the_other_way():
    pairs = contrary()
    assert (pairs[pairs] == np.arange(ACTION_COUNT)).all()
    assert (DISPLACEMENTS[pairs] == -DISPLACEMENTS).all()
    for action, other in zip(ACTIONS, pairs, strict=True):
        opposite = {None: None, 0: 1, 1: 0}[action.jaw]
        assert ACTIONS[other].jaw == opposite


def test_flipped_labels_are_contrary_actions_with_contrary_rewards():
    honest = records()
    flipped = flipped_labels(honest, contrary())
    assert (flipped.actions == contrary()).all()
    assert (flipped.rewards == -honest.rewards).all()
    assert (flipped.states == honest.states).all()


def test_a_backdoor_changes_one_procedure_alone():
    honest = records()
    changed = with_backdoor(honest, 1, 12)
    there = honest.states[:, 1] > 0.0
    assert (changed.actions[there] == 12).all()
    assert (changed.actions[~there] == honest.actions[~there]).all()
