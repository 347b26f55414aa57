# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Records mean what they say, whatever types of numbers they come in."""

import itertools

from fdrl_ros.errors import RecordsError
from fdrl_ros.learner.privacy_cost import ChargedMechanism
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.records.transitions import check_actions, Transitions
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from support.sample_size import sampled
from support.small_hospital import records_of


def arrays(**changes):
    """Return one patient's five steps."""
    path = np.arange(6.0)[:, None]
    return {
        'states': path[:-1],
        'actions': np.array([0, 1, 0, 1, 0]),
        'rewards': np.arange(5.0),
        'next_states': path[1:],
        'terminals': np.array([False, False, False, False, True]),
        'starts': np.array([0, 5]),
        'patients': np.array(['a']),
    } | changes


@pytest.mark.parametrize('kind', [bool, int, float, np.uint8, list])
def test_terminals_are_the_same_in_every_type(kind):
    flags = arrays()['terminals']
    given = flags.astype(int).tolist() if kind is list else flags.astype(kind)
    made, expected = Records(**arrays(terminals=given)), Records(**arrays())
    assert made.terminals.dtype == np.bool_
    assert made.digest() == expected.digest()
    discounts = Transitions.from_records(made, discount=0.9).discounts
    np.testing.assert_allclose(discounts, [0.9, 0.9, 0.9, 0.9, 0.0])


@pytest.mark.parametrize(
    'name, value',
    [
        *(('terminals', [0, 0, other, 0, 1]) for other in (2, np.nan)),
        *(('actions', [0, 1, other, 1, 0]) for other in (0.5, -1, '0')),
        ('actions', np.zeros((5, 1), int)),
        ('rewards', ['a', 'b', 'c', 'd', 'e']),
        ('rewards', [[0.0], [1.0, 2.0], 0.0, 0.0, 0.0]),
        ('states', np.full((5, 1), np.nan)),
        ('next_states', np.full((5, 1), -np.inf)),
        ('states', np.zeros(5)),
        *(('starts', starts) for starts in ([0.0, 4.5], [0, 4], [1, 5], [0, 2, 5], [5, 0])),
        ('patients', [7]),
    ],
)
def test_numbers_that_would_mean_something_else_are_refused(name, value):
    with pytest.raises(RecordsError):
        Records(**arrays(**{name: value}))


@pytest.mark.parametrize('version', ['this', 'before ends of episodes were told'])
def test_other_types_are_converted_and_can_be_saved_and_loaded(tmp_path, version):
    made = Records(
        **arrays(
            actions=[0.0, 1.0, 0.0, 1.0, 0.0],
            rewards=[0, 1, 2, 3, 4],
            patients=np.array(['a'], object),
        )
    )
    assert made.digest() == Records(**arrays()).digest()
    path = tmp_path / 'records.npz'
    if version == 'this':
        made.save(path)
    else:
        np.savez(path, **{name: array for name, array in made.arrays().items() if name != 'ends'})
    assert Records.load(path, 1).digest() == made.digest()


def test_classes_at_several_places_stay_bytes(tmp_path):
    classes = np.arange(15, dtype=np.uint8).reshape(5, 3) % 4
    made = Records(**arrays(actions=classes))
    made.save(tmp_path / 'records.npz')
    again = Records.load(tmp_path / 'records.npz', 1)
    assert again.actions.dtype == np.uint8 and again.digest() == made.digest()
    np.testing.assert_array_equal(again.actions, classes)
    changed = classes.copy()
    changed[4, 2] = 3
    assert Records(**arrays(actions=changed)).digest() != made.digest()
    check_actions(made.actions, 4, places=3)
    for changes, words in (
        ({'count': 3, 'places': 3}, 'beyond the 3'),
        ({'count': 4, 'places': 2}, 'at 3 places of an observation: expected 2'),
        ({'count': 4}, 'expected 1'),
        ({'count': 3, 'continuous': True}, 'discrete actions: those'),
    ):
        with pytest.raises(RecordsError, match=words):
            check_actions(made.actions, **changes)
    with pytest.raises(RecordsError, match='at 1 places of an observation: expected 3'):
        check_actions(Records(**arrays()).actions, 4, places=3)


def test_a_patient_who_is_not_known_or_appears_twice_is_refused_and_not_named():
    made = Records(**arrays(patients=np.array(['patient_77'])))
    made.require_known(['patient_1', 'patient_77'])
    with pytest.raises(RecordsError, match='not known') as unknown:
        made.require_known(['patient_1'])
    with pytest.raises(RecordsError, match='appears twice') as twice:
        Records(**arrays(starts=[0, 2, 5], patients=['patient_77'] * 2))
    assert '77' not in str(unknown.value) + str(twice.value)


GAMMA = 0.9


@settings(max_examples=sampled(80, 26), deadline=None)
@given(
    lengths=strategies.lists(strategies.integers(1, 6), min_size=1, max_size=5),
    n_step=strategies.one_of(strategies.none(), strategies.integers(1, 7)),
    told=strategies.booleans(),
    seed=strategies.integers(0, 2**20),
)
def test_no_return_reaches_across_a_patient_or_the_end_of_an_episode(lengths, n_step, told, seed):
    """States go on from row to row, so that nothing but what is recorded tells them apart."""
    rng, count = np.random.default_rng(seed), sum(lengths)
    terminals, ends = rng.random(count) < 0.3, rng.random(count) < 0.3
    made = records_of(lengths, first=seed, terminals=terminals, ends=ends if told else None)
    found = Transitions.from_records(made, discount=GAMMA, n_step=n_step)
    for start, stop in itertools.pairwise(made.starts):
        for at in range(start, stop):
            total, last = 0.0, at
            for ahead in range(n_step or stop - start):
                last = at + ahead
                total += GAMMA**ahead * float(made.rewards[last])
                if terminals[last] or (told and ends[last]) or last == stop - 1:
                    break
            left = 0.0 if terminals[last] or n_step is None else GAMMA ** (last - at + 1)
            assert found.rewards[at] == pytest.approx(total, abs=1e-5)
            assert found.discounts[at] == pytest.approx(left, abs=1e-6)
            if n_step is not None:
                np.testing.assert_array_equal(found.next_states[at], made.next_states[last])


@pytest.mark.parametrize('n_step', [1, 2, 5])
def test_removing_a_step_moves_a_sum_by_less_than_the_charge_allows(n_step):
    """Each sample is a unit vector of its own: the worst that clipped gradients can do."""
    with_it = records_of([9], terminals=np.arange(9) == 8)
    rows = np.delete(np.arange(9), 6)
    arrays = {n: v[rows] for n, v in with_it.arrays().items() if n not in ('starts', 'patients')}
    without = Records(**arrays, starts=np.array([0, 8]), patients=with_it.patients)
    samples = [
        {
            (*s, r, *n, d)
            for s, r, n, d in zip(m.states, m.rewards, m.next_states, m.discounts, strict=True)
        }
        for m in (
            Transitions.from_records(each, discount=GAMMA, n_step=n_step, unit='transition')
            for each in (with_it, without)
        )
    ]
    moved = len(samples[0] ^ samples[1])  # all in one direction
    learner = LearnerSettings(n_step=n_step)
    privacy = PrivacySettings(unit='transition', batch=4, budget=50.0, delta=1e-3)
    charge = ChargedMechanism.from_settings(with_it, learner, privacy).charge(1)
    assert moved <= 2 * n_step - 1
    assert moved / privacy.noise_multiplier <= charge.group / charge.noise_multiplier
