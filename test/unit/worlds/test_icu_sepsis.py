# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""ICU-Sepsis: the package's numbers, exact values against slow ways, and the Gymnasium env."""

from dataclasses import fields, replace
import importlib.util
import shutil
import sys
import tracemalloc
import warnings

from fdrl_ros.errors import ResourceError, SettingError, StateError
from fdrl_ros.worlds.icu_sepsis import assets
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis, PACKAGE, verified
from fdrl_ros.worlds.icu_sepsis.env import ENV_ID, IcuSepsisEnv, IcuSepsisVectorEnv
from fdrl_ros.worlds.icu_sepsis.model import (
    DEATH,
    Draws,
    HORIZON,
    PATIENT_STATES,
    REWARD,
    SURVIVAL,
    uniform_policy,
)
from fdrl_ros.worlds.icu_sepsis.records import CLIP, FEATURES, features_of, OBSERVATIONS
from fdrl_ros.worlds.icu_sepsis.values import (
    action_values,
    band_of,
    BANDS,
    expected_return,
    in_band,
    optimum,
    returns_by_state,
    survival,
    survival_by_band,
    transitions,
    visits,
)
import gymnasium
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings, strategies
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec(PACKAGE) is None, reason=f'needs {assets.INSTALL}'
)


@pytest.fixture(scope='module')
def model():
    return icu_sepsis()


@pytest.fixture(scope='module')
def best(model):
    return optimum(model)


def random_policy(seed):
    return np.random.default_rng(seed).dirichlet(np.full(25, 0.3), PATIENT_STATES)


def endless(model):
    """Return a model where nobody gets better or worse."""
    rows = np.zeros_like(model.rows)
    state = np.searchsorted(model.first_row, np.arange(len(rows)), side='right') - 1
    rows[np.arange(len(rows)), state] = 1.0
    return replace(model, rows=rows)


def test_chances_to_survive_and_lengths_of_stays_are_the_published_ones(model, best):
    assert survival(model, uniform_policy()) == pytest.approx(0.7801, abs=1e-4)
    assert survival(model, model.clinicians) == pytest.approx(0.7818, abs=1e-4)
    assert survival(model, best.actions) == pytest.approx(0.8751, abs=1e-4)
    # Lengths of stays: the package's README, from its own roll-outs.
    for policy, steps in (
        (uniform_policy(), 9.45),
        (model.clinicians, 9.22),
        (best.actions, 10.99),
    ):
        assert visits(model, policy).sum() == pytest.approx(steps, abs=0.02)
    # Forms of one policy have one value.
    chances = np.eye(25)[best.actions]
    padded = np.concatenate((chances, np.zeros((3, 25))))
    longer = np.append(best.actions, [0, 0, 0])
    assert len({survival(model, each) for each in (best.actions, chances, padded, longer)}) == 1


def test_model_is_the_file_read_the_slow_way(model):
    with np.load(assets.assets() / assets.DYNAMICS) as file:
        dense = file['tx_mat'][:PATIENT_STATES]
        start = file['d_0'][:PATIENT_STATES]
    assert not dense[:, :, SURVIVAL + 1].any()
    for row_of, chances in zip(model.row_of, dense[:, :, : SURVIVAL + 1], strict=True):
        assert np.abs(model.rows[row_of] - chances).max() < 1e-15
    policy = random_policy(0)
    chances = np.einsum('sa,sat->st', policy, dense)
    lasting = np.eye(PATIENT_STATES) - chances[:, :PATIENT_STATES]
    slow = start @ np.linalg.solve(lasting, chances[:, SURVIVAL])
    assert survival(model, policy) == pytest.approx(slow, abs=1e-12)


def test_reading_takes_little_memory_and_imports_nothing():
    tracemalloc.start()
    try:
        read = icu_sepsis.__wrapped__()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert read.rows.nbytes < 17e6
    assert peak < 40e6
    assert not any(getattr(read, each.name).flags.writeable for each in fields(read))
    assert not {PACKAGE, 'gym', 'pandas', 'sklearn'} & sys.modules.keys()


def test_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(ResourceError, match='pip install --no-deps icu-sepsis==2.0.1'):
        assets.assets()


def test_file_of_another_version_is_refused(tmp_path):
    name = assets.ADMISSIBLE
    shutil.copy(assets.assets() / name, tmp_path / name)
    verified(tmp_path, name)
    with (tmp_path / name).open('a') as file:
        file.write('\n')
    with pytest.raises(ResourceError, match='SHA-256'):
        verified(tmp_path, name)
    with pytest.raises(ResourceError, match='cannot read'):
        verified(tmp_path, assets.DYNAMICS)


@pytest.mark.parametrize(
    'change',
    [
        {'start': np.zeros(PATIENT_STATES)},
        {'sofa': np.zeros(3)},
        {'clinicians': np.full((PATIENT_STATES, 25), np.nan)},
        {'row_of': np.zeros((PATIENT_STATES, 25), np.int64)},
    ],
)
def test_what_is_no_model_is_refused(model, change):
    with pytest.raises(SettingError):
        replace(model, **change)


def test_shipped_features_are_in_the_order_that_we_name(model):
    place = {name: number for number, name in enumerate(FEATURES)}
    assert len(FEATURES) == len(place) == 47

    def agreement(name, values):
        return np.corrcoef(model.centres[:, place[name]], values)[0, 1]

    assert agreement('SOFA', model.sofa) > 0.99
    fluid, vasopressor = (model.clinicians @ each for each in np.divmod(np.arange(25), 5))
    assert agreement('input_4hourly', fluid) > 0.95
    assert agreement('max_dose_vaso', vasopressor) > 0.7
    assert agreement('max_dose_vaso', fluid) < 0.4  # so the levels are not the other way round


def test_features_are_standardised_clipped_and_tell_states_apart(model):
    table = features_of(model)[:PATIENT_STATES]
    assert np.abs(table).max() == CLIP
    clipped = np.abs(table) == CLIP
    assert clipped.mean() == pytest.approx(0.0056, abs=1e-4)
    calm = ~clipped.any(axis=0)
    assert np.abs(table[:, calm].mean(axis=0)).max() < 1e-6
    assert np.abs(table[:, calm].std(axis=0) - 1.0).max() < 1e-6
    assert len(np.unique(table, axis=0)) == PATIENT_STATES
    assert not features_of(model)[PATIENT_STATES:].any()


@pytest.mark.parametrize('discount', [0.0, 0.9, 1.0])
def test_one_more_sweep_changes_no_value(model, discount):
    # A stay ends after some 10 steps on average, so values are as exact as this says, times 10.
    policy, found = random_policy(1), optimum(model, discount)
    values = np.stack([returns_by_state(model, policy, discount), found.values], axis=1)
    ends = np.concatenate((discount * values, [[-REWARD] * 2, [REWARD] * 2]))
    ahead = (model.rows @ ends)[model.row_of]
    swept = np.stack([(policy * ahead[..., 0]).sum(axis=1), ahead[..., 1].max(axis=1)], axis=1)
    assert np.abs(swept - values).max() < 1e-11
    assert np.abs(found.action_values - ahead[..., 1]).max() < 1e-11
    assert action_values(model, found.actions, discount) == pytest.approx(found.action_values)


def test_return_without_discount_tells_the_chance_to_survive(model):
    policy = random_policy(2)
    chance = survival(model, policy)
    assert expected_return(model, policy) == pytest.approx(REWARD * (2 * chance - 1), abs=1e-9)
    assert expected_return(model, policy, 0.0) == pytest.approx(
        REWARD * model.start @ np.diff(transitions(model, policy)[:, DEATH:], axis=1)[:, 0]
    )


def test_visits_lead_to_everyones_end(model):
    policy = random_policy(3)
    counts = visits(model, policy)
    ends = np.einsum('sa,sat->t', counts, model.rows[model.row_of][:, :, DEATH:])
    assert ends.sum() == pytest.approx(1.0, abs=1e-12)
    assert ends[1] == pytest.approx(survival(model, policy), abs=1e-12)


def test_bands_add_up_and_high_sofa_is_admitted_rarely(model):
    shares = [model.start[band_of(model.sofa) == each].sum() for each in range(3)]
    assert shares == pytest.approx([0.1925, 0.8056, 0.0019], abs=1e-4)
    found = survival_by_band(model, model.clinicians)
    assert list(found) == list(BANDS)
    assert np.dot(shares, list(found.values())) == pytest.approx(survival(model, model.clinicians))
    lying = visits(model, model.clinicians).sum(axis=1)
    assert in_band(model, 'high', lying)[model.sofa <= 15.0].sum() == 0.0
    now = survival_by_band(model, model.clinicians, lying)
    assert now['low'] > now['medium'] > now['high']
    assert list(band_of(np.array([4.99, 5.0, 15.0, 15.01]))) == [0, 1, 1, 2]


@pytest.mark.parametrize(
    ('policy', 'error'),
    [
        (np.zeros(7, np.int64), StateError),
        (np.full(PATIENT_STATES, 25), StateError),
        (np.zeros(PATIENT_STATES), StateError),
        (np.zeros((PATIENT_STATES, 25)), SettingError),
        (np.full((PATIENT_STATES, 25), np.nan), SettingError),
        (np.full((PATIENT_STATES, 5), 0.2), StateError),
    ],
)
def test_what_is_no_policy_is_refused(model, policy, error):
    with pytest.raises(error):
        survival(model, policy)


def test_bad_questions_are_refused(model):
    for ask in (
        lambda: expected_return(model, model.clinicians, 1.5),
        lambda: survival(model, model.clinicians, np.ones(PATIENT_STATES)),
        lambda: survival(model, model.clinicians, np.ones(3)),
        lambda: in_band(model, 'severe'),
        lambda: in_band(model, 'high', np.zeros(PATIENT_STATES)),
    ):
        with pytest.raises(SettingError):
            ask()
    with pytest.raises(StateError, match='neither die nor survive'):
        survival(endless(model), model.clinicians)


@settings(max_examples=20, deadline=None)
@given(seed=strategies.integers(0, 2**32))
def test_draws_are_those_of_each_row_alone(seed):
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.full(6, 0.2), 40)
    chances[chances < 0.01] = 0.0
    chances /= chances.sum(axis=1, keepdims=True)
    rows, uniforms = rng.integers(40, size=200), rng.random(200)
    uniforms[:40], rows[:40] = 1.0 - 2.0**-53, np.arange(40)  # the last value there can be
    slow = [
        min(
            np.searchsorted(np.cumsum(chances[r]), u, side='right'), np.flatnonzero(chances[r])[-1]
        )
        for r, u in zip(rows, uniforms, strict=True)
    ]
    assert list(Draws.of(chances)(rows, uniforms)) == slow


@pytest.mark.parametrize('observation', OBSERVATIONS)
def test_gymnasium_finds_nothing_to_warn_of(observation):
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        env = gymnasium.make(ENV_ID, observation=observation)
        check_env(env.unwrapped)


def test_env_rewards_the_end_and_says_where_the_patient_is(model):
    env = IcuSepsisEnv(model)
    ends = set()
    for seed in range(40):
        seen, info = env.reset(seed=seed)
        over = False
        while not over:
            assert np.array_equal(seen, features_of(model)[info['state']])
            assert np.array_equal(info['admissible'], model.admissible[info['state']])
            assert info['sofa'] == model.sofa[info['state']]
            seen, reward, over, cut, info = env.step(env.action_space.sample())
            assert not cut
            assert reward == {DEATH: -REWARD, SURVIVAL: REWARD}.get(info['state'], 0.0)
        ends.add(info['state'])
        with pytest.raises(StateError, match='reset'):
            env.step(0)
    assert ends == {DEATH, SURVIVAL}


def test_stay_is_cut_after_500_steps(model):
    env = IcuSepsisEnv(endless(model))
    env.reset(seed=0, options={'state': 4})
    for step in range(1, HORIZON + 1):
        _, reward, over, cut, info = env.step(0)
        assert (reward, over, cut, info['state']) == (0.0, False, step == HORIZON, 4)


def test_env_refuses_what_is_not_there(model):
    env = IcuSepsisEnv(model)
    with pytest.raises(StateError, match='reset'):
        env.step(0)
    for state in (DEATH, -1, 1.5):
        with pytest.raises(StateError):
            env.reset(options={'state': state})
    env.reset(seed=0)
    for action in (25, -1, 0.5, None, True):
        with pytest.raises(StateError):
            env.step(action)
    with pytest.raises(SettingError):
        env.reset(options={'sofa': 3})
    with pytest.raises(SettingError):
        IcuSepsisEnv(model, observation='pixels')


@pytest.mark.parametrize('observation', OBSERVATIONS)
def test_ward_admits_where_someone_left(model, observation):
    beds = 200
    env = gymnasium.make_vec(
        ENV_ID, beds, vectorization_mode='vector_entry_point', observation=observation
    )
    seen, infos = env.reset(seed=1)
    rng = np.random.default_rng(0)
    ended = 0
    for _ in range(20):
        assert env.observation_space.contains(seen)
        before = infos['state']
        seen, rewards, over, cut, infos = env.step(rng.integers(25, size=beds))
        assert np.array_equal(over, rewards != 0.0) and not cut.any()
        assert infos['state'].max() < PATIENT_STATES
        if over.any():
            assert np.array_equal(infos['_final_obs'], over)
            final = infos['final_info']['state']
            assert np.array_equal(final[over] == SURVIVAL, rewards[over] > 0.0)
            assert np.array_equal(final[~over], infos['state'][~over])
        ended += over.sum()
    assert ended > beds
    assert before.shape == (beds,)


def test_ward_refuses_and_repeats(model):
    env = IcuSepsisVectorEnv(4, model)
    with pytest.raises(StateError, match='reset'):
        env.step(np.zeros(4, np.int64))
    first = [env.reset(seed=2)[1]['state'], env.step(np.arange(4))[4]['state']]
    again = [env.reset(seed=2)[1]['state'], env.step(np.arange(4))[4]['state']]
    assert np.array_equal(first, again)
    for actions in (np.zeros(3, np.int64), np.zeros(4), np.full(4, 25)):
        with pytest.raises(StateError):
            env.step(actions)
    with pytest.raises(SettingError):
        IcuSepsisVectorEnv(0, model)
    with pytest.raises(SettingError):
        env.reset(options={'state': 1})
