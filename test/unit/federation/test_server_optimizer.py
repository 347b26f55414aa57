# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The optimisers of the server against Algorithm 2 of Reddi et al. 2021, number by number."""

from dataclasses import replace
import math

from fdrl_ros.deployment.parties.key_authority import server_step
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import PolicyError, SettingError, StoreError
from fdrl_ros.federation.key_authority.server_optimizer import (
    Moments,
    MOST_WEIGHT,
    ServerOptimizer,
    ServerOptimizerSettings,
)
from fdrl_ros.federation.key_authority.server_step import fed_avg, RoundSum
import numpy as np
import pytest

SIZE, SHARED = 12, np.array([1, 2, 3, 5, 8, 11])
START = np.linspace(-1.0, 1.0, SIZE).astype(np.float32)
ALL = 'fedavgm', 'fedadagrad', 'fedadam', 'fedyogi'
RNG = np.random.default_rng(4)
UPDATES = RNG.normal(0.0, 0.02, (5, SHARED.size)) * RNG.choice([1e-3, 1.0, 30.0], SHARED.size)


def settings(optimizer, **values):
    return ServerOptimizerSettings(optimizer, **values)


def steps(chosen, updates, start=START):
    """Take a step for each update, and return the weights after each, and the last state."""
    weights, state, found = start, b'', []
    for round, update in enumerate(updates, 1):
        stepped = chosen.step()(RoundSum(round, weights, SHARED, np.array(update), state))
        weights, state = stepped.weights, stepped.state
        found.append(weights)
    return found, state


def directly(chosen, updates):
    """Write the algorithm down for one weight after the other, in plain Python."""
    eta, beta1, beta2, tau = chosen.rate, chosen.momentum, chosen.decay, chosen.adaptivity
    found = [START.copy() for _ in updates]
    for column, place in enumerate(SHARED):
        x, m, v = float(START[place]), 0.0, tau**2
        for row, update in zip(found, updates, strict=True):
            delta = float(update[column])
            if chosen.optimizer == 'fedavgm':
                m = beta1 * m + delta
                x = x + eta * m
            else:
                m = beta1 * m + (1.0 - beta1) * delta
                if chosen.optimizer == 'fedadagrad':
                    v = v + delta**2
                elif chosen.optimizer == 'fedadam':
                    v = beta2 * v + (1.0 - beta2) * delta**2
                else:
                    sign = (v > delta**2) - (v < delta**2)
                    v = v - (1.0 - beta2) * delta**2 * sign
                x = x + eta * m / (math.sqrt(v) + tau)
            row[place] = x = float(np.float32(x))
    return found


@pytest.mark.parametrize('optimizer', ALL)
@pytest.mark.parametrize(('momentum', 'decay'), [(0.9, 0.99), (0.0, 0.5), (0.3, 0.0)])
def test_five_rounds_are_those_of_the_direct_formula(optimizer, momentum, decay):
    chosen = settings(optimizer, rate=0.3, momentum=momentum, decay=decay, adaptivity=0.01)
    made, _ = steps(chosen, UPDATES)
    for one, other in zip(made, directly(chosen, UPDATES), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)
        untouched = np.setdiff1d(np.arange(SIZE), SHARED)
        np.testing.assert_array_equal(one[untouched], START[untouched])


def test_adam_that_keeps_nothing_takes_steps_of_eta_by_the_sign():
    chosen = settings('fedadam', rate=0.25, momentum=0.0, decay=0.0, adaptivity=1e-6)
    updates = np.where(UPDATES > 0.0, 1.0, -1.0) * [0.5, 1.0, 2.0, 0.5, 1.0, 2.0]
    made, _ = steps(chosen, updates)
    moved = 0.25 * np.cumsum(np.sign(updates), axis=0)
    for weights, expected in zip(made, moved, strict=True):
        np.testing.assert_allclose(weights[SHARED], START[SHARED] + expected, atol=5e-6)


def test_steps_of_adagrad_shrink_with_the_root_of_the_rounds():
    chosen = settings('fedadagrad', rate=0.25, momentum=0.0, adaptivity=1e-6)
    made, _ = steps(chosen, np.ones((9, SHARED.size)))
    moved = 0.25 * sum(1.0 / math.sqrt(round) for round in range(1, 10))
    np.testing.assert_allclose(made[-1][SHARED], START[SHARED] + moved, atol=1e-5)


def test_momentum_of_equal_updates_is_a_geometric_sum():
    made, _ = steps(settings('fedavgm', momentum=0.5), np.full((4, SHARED.size), 0.125))
    moved = 0.125 * (1.0 + 1.5 + 1.75 + 1.875)
    np.testing.assert_allclose(made[-1][SHARED], START[SHARED] + moved, atol=1e-6)


@pytest.mark.parametrize('decay', [0.0, 0.9])
def test_yogi_forgets_a_large_update_more_slowly_than_adam(decay):
    updates = [np.ones(SHARED.size), *np.full((3, SHARED.size), 1e-3)]
    seconds = []
    for optimizer in ('fedadam', 'fedyogi'):
        _, state = steps(settings(optimizer, decay=decay), updates)
        sizes = SHARED.size, SHARED.size
        seconds.append(Moments.from_bytes(state, optimizer, sizes).second)
    after = 1.0 * (1.0 - decay) + 1e-6 * decay  # of one round
    np.testing.assert_allclose(seconds[0], decay**3 * after, atol=1e-5)
    np.testing.assert_allclose(seconds[1], after, atol=1e-5)


@pytest.mark.parametrize(
    'chosen', [settings('fedavg', rate=1.0), settings('fedavgm', rate=1.0, momentum=0.0)]
)
def test_rate_1_without_momentum_is_fedavg_bit_for_bit(chosen):
    weights = START
    for made, update in zip(steps(chosen, UPDATES)[0], UPDATES, strict=True):
        weights = fed_avg(RoundSum(1, weights, SHARED, update)).weights
        np.testing.assert_array_equal(made.view(np.uint32), weights.view(np.uint32))


def test_half_the_rate_of_fedavg_is_half_the_update_and_keeps_no_state():
    made, state = steps(settings('fedavg', rate=0.5), UPDATES[:1])
    np.testing.assert_allclose(made[0][SHARED], START[SHARED] + 0.5 * UPDATES[0], atol=1e-7)
    assert state == b''


@pytest.mark.parametrize('optimizer', ALL)
def test_a_step_from_a_kept_state_has_the_bits_of_one_that_went_on(optimizer):
    chosen = settings(optimizer, rate=0.1)
    whole, last = steps(chosen, UPDATES)
    weights, state = whole[2], steps(chosen, UPDATES[:3])[1]
    for round in (4, 5):
        given = RoundSum(round, weights, SHARED, UPDATES[round - 1], bytes(state))
        once, again = (chosen.step()(replace(given)) for _ in range(2))
        assert once.state == again.state and once.weights.tobytes() == again.weights.tobytes()
        weights, state = once.weights, once.state
    assert weights.tobytes() == whole[-1].tobytes() and state == last


@pytest.mark.parametrize('optimizer', ALL)
def test_a_state_with_any_changed_byte_is_refused(optimizer):
    chosen = settings(optimizer)
    _, state = steps(chosen, UPDATES[:1])
    for at in (0, 31, 32, 40, len(state) // 2, len(state) - 1):
        bad = bytearray(state)
        bad[at] ^= 1
        with pytest.raises(StoreError, match='damaged: put back the newest'):
            chosen.step()(RoundSum(2, START, SHARED, UPDATES[1], bytes(bad)))
    for bad in (state[:-1], state + b'\0', b'\0', b'\0' * 32):
        with pytest.raises(StoreError, match='damaged'):
            chosen.step()(RoundSum(2, START, SHARED, UPDATES[1], bad))


def test_a_state_of_another_optimiser_or_network_is_refused():
    _, state = steps(settings('fedadam'), UPDATES[:1])
    with pytest.raises(StoreError, match="of .'fedadam', 6, 6., expected .'fedyogi', 6, 6.:"):
        settings('fedyogi').step()(RoundSum(2, START, SHARED, UPDATES[1], state))
    with pytest.raises(StoreError, match="expected .'fedadam', 5, 5."):
        settings('fedadam').step()(RoundSum(2, START, SHARED[:5], UPDATES[1][:5], state))


@pytest.mark.parametrize('optimizer', ['fedavg', *ALL])
@pytest.mark.parametrize('bad', [math.nan, math.inf, -math.inf, 1e300])
def test_what_is_not_finite_is_refused(optimizer, bad):
    update = np.array([0.0, 0.1, bad, 0.0, 0.1, 0.2])
    with pytest.raises(PolicyError, match='expected finite numbers up to'):
        ServerOptimizer(settings(optimizer))(RoundSum(1, START, SHARED, update))


@pytest.mark.parametrize('optimizer', ['fedavg', *ALL])
def test_a_weight_that_is_too_large_is_refused_and_the_largest_one_is_not(optimizer):
    chosen = settings(optimizer, rate=1e-6 if optimizer == 'fedadagrad' else 1e-3)
    for largest, fits in ((0.999, True), (1.001, False)):
        start = np.full(SIZE, largest * MOST_WEIGHT, np.float32)
        given = RoundSum(1, start, SHARED, np.zeros(SHARED.size))
        if fits:
            assert ServerOptimizer(chosen)(given).weights.tobytes() == start.tobytes()
        else:
            with pytest.raises(PolicyError, match=f'{optimizer} at rate'):
                ServerOptimizer(chosen)(given)


@pytest.mark.parametrize(
    ('values', 'expected'),
    [
        ({'optimizer': 'adam'}, "one of 'fedavg', 'fedavgm'"),
        ({'rate': -1.0}, 'at least 0'),
        ({'rate': math.nan}, 'at least 0'),
        ({'momentum': 1.0}, 'at most 0.9999'),
        ({'decay': 1.0}, 'at most 0.9999'),
        ({'adaptivity': 0.0}, 'at least 1e-09'),
    ],
)
def test_settings_that_no_optimiser_has_are_refused(values, expected):
    with pytest.raises(SettingError, match=f'server.*{expected}'):
        Plan().changed({'server': values})


def test_a_plan_chooses_the_step():
    start = np.zeros(3, np.float32)
    assert server_step(Plan(), start) is fed_avg
    assert server_step(Plan({'server': {'rate': 1.0, 'momentum': 0.5}}), start) is fed_avg
    made = server_step(Plan({'server': {'optimizer': 'fedyogi'}}), start)
    assert isinstance(made, ServerOptimizer)


def test_a_task_with_a_server_step_of_its_own_has_no_optimiser():
    pytest.importorskip('torch')
    video = {'federation': {'task': 'instruments'}}
    assert Plan(video).checked().server_step
    for server in ({'optimizer': 'fedadam'}, {'rate': 0.5}):
        with pytest.raises(SettingError, match='server.optimizer.*task instruments has the'):
            Plan({**video, 'server': server}).checked()
    without = {**video, 'world': {'serq': False}, 'server': {'optimizer': 'fedadam'}}
    assert isinstance(server_step(Plan(without).checked(), np.zeros(3)), ServerOptimizer)
