# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Optimisers of the server in rounds: neither a kill nor a round taken back leaves a trace."""

from contextlib import contextmanager
from dataclasses import replace

from fdrl_ros.errors import StoreError
from fdrl_ros.federation.key_authority import server_optimizer
from fdrl_ros.federation.key_authority.server_optimizer import ServerOptimizerSettings
from fdrl_ros.federation.key_authority.server_step import fed_avg, RoundSum
from fdrl_ros.federation.key_authority.state import Validation
import numpy as np
import pytest
from support.federation_bench import Bench

ALL = 'fedavgm', 'fedadagrad', 'fedadam', 'fedyogi'
STATE = 'state of the server step'


def settings(optimizer):
    return ServerOptimizerSettings(optimizer, rate=0.05, momentum=0.5, decay=0.9, adaptivity=0.01)


def bench_of(optimizer, directory=None, rounds=3):
    return Bench(directory, rounds=rounds, step=settings(optimizer).step())


def averages(bench, rounds):
    """Return what the learners of a bench move the weights by, weighted by n_i, in float64."""
    sizes = np.array([bench.roster.member(name).size for name in bench.names], float)
    for round in rounds:
        deltas = np.stack([bench.learners[name].delta(round) for name in bench.names])
        yield sizes @ deltas.astype(np.float64) / sizes.sum()


@pytest.mark.parametrize('optimizer', ALL)
def test_rounds_end_with_the_weights_of_the_formula(optimizer):
    bench = bench_of(optimizer)
    assert bench.run()
    x, m, v = bench.start.astype(np.float64), 0.0, 0.01**2
    for delta in averages(bench, range(1, 4)):
        if optimizer == 'fedavgm':
            m = 0.5 * m + delta
            x = x + 0.05 * m
            continue
        m = 0.5 * m + 0.5 * delta
        if optimizer == 'fedadagrad':
            v = v + delta**2
        elif optimizer == 'fedadam':
            v = 0.9 * v + 0.1 * delta**2
        else:
            v = v - 0.1 * delta**2 * np.sign(v - delta**2)
        x = x + 0.05 * m / (np.sqrt(v) + 0.01)
    np.testing.assert_allclose(bench.weights, x, rtol=0, atol=1e-4)


@contextmanager
def killed_at(bench, moment):
    """Have the key authority die in a round: around its decryption, its step or its writes."""

    def kill(*arguments, **named):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        if moment == 'decryption':
            patch.setattr(bench.secret, 'decrypt', kill)
        elif moment == 'validation':
            patch.setattr(bench, 'validate', kill)
        else:
            state = bench.key_authority.state
            name, after = moment.split()
            write = getattr(state, name)
            patch.setattr(
                state, name, kill if after == 'before' else lambda *a: (write(*a), kill())
            )
        yield


MOMENTS = (
    'decryption',
    'keep_summed before',
    'keep_summed after',
    'validation',
    'release before',
    'release after',
)


@pytest.mark.parametrize('moment', MOMENTS)
@pytest.mark.parametrize('optimizer', ALL)
def test_a_key_authority_killed_in_a_round_repeats_it_bit_for_bit(tmp_path, optimizer, moment):
    whole, bench = bench_of(optimizer), bench_of(optimizer, tmp_path)
    assert whole.run()
    assert bench.run(lambda: bench.key_authority.round == 1)
    with killed_at(bench, moment), pytest.raises(KeyboardInterrupt):
        bench.run()
    bench.restart('key_authority')
    assert bench.run()
    assert bench.weights.tobytes() == whole.weights.tobytes()
    state, other = bench.key_authority.state, whole.key_authority.state
    assert state.step_state == other.step_state


def test_a_round_that_fails_its_test_leaves_no_trace_in_the_moments():
    bench = bench_of('fedavgm')
    verdicts = iter([True, False, True])
    bench.validate = lambda weights: Validation(next(verdicts), '')
    assert bench.run()
    first, third = averages(bench, (1, 3))
    moved = 0.05 * first + 0.05 * (0.5 * first + third)
    np.testing.assert_allclose(bench.weights, bench.start + moved, rtol=0, atol=1e-4)


@pytest.mark.parametrize('optimizer', ALL)
def test_after_an_order_to_roll_back_the_optimiser_begins_anew(optimizer):
    given = []
    taken = settings(optimizer).step()

    def step(round_sum: RoundSum):
        given.append(round_sum)
        return taken(round_sum)

    bench = Bench(rounds=5, step=step)
    assert bench.run(lambda: bench.key_authority.round == 3)
    bench.order('roll_back', to_round=1)
    bench.restart('key_authority')
    assert bench.run()
    older, state = bench.key_authority.state.policy(1).weights, bench.key_authority.state
    anew = taken(RoundSum(5, older, given[-1].shared, given[-1].average))
    assert anew.weights.tobytes() == bench.weights.tobytes()
    assert anew.state == state.step_state


def test_a_damaged_state_is_refused_at_the_start_until_a_roll_back_drops_it(tmp_path):
    bench = bench_of('fedadam', tmp_path, rounds=4)
    assert bench.run(lambda: bench.key_authority.round == 2)
    store, state = bench.stores['key_authority'], bench.key_authority.state
    damaged = bytearray(state.step_state)
    damaged[len(damaged) // 2] ^= 1
    store.put(STATE, bytes(damaged))
    for damage in (bytes(damaged), bench_state('fedyogi')):
        store.put(STATE, damage)
        bench.kill('key_authority')
        with pytest.raises(StoreError, match="the state of the server's optimizer is"):
            bench.join('key_authority')
        bench.stores.pop('key_authority').close()
        store = bench.stores['key_authority'] = bench.open_store('key_authority')
    optimizer = bench.authority_settings
    bench.authority_settings = replace(optimizer, step=fed_avg)
    bench.join('key_authority')
    bench.order('roll_back', to_round=1)
    bench.kill('key_authority')
    bench.authority_settings = optimizer
    bench.join('key_authority')
    assert bench.run() and not bench.policy.rolled_back


def bench_state(optimizer):
    """Return the state that an optimiser leaves after one round."""
    bench = bench_of(optimizer, rounds=1)
    assert bench.run()
    return bench.key_authority.state.step_state


def test_a_step_to_a_huge_weight_ends_the_round_with_the_older_policy(monkeypatch):
    bench = bench_of('fedadam', rounds=2)
    with monkeypatch.context() as patch:
        patch.setattr(server_optimizer, 'MOST_WEIGHT', 1.0)
        assert bench.run(lambda: bench.policy and bench.policy.envelope.round == 1)
    assert bench.policy.rolled_back and 'expected finite numbers' in bench.policy.reason
    assert bench.weights.tobytes() == bench.start.tobytes()
    assert bench.key_authority.state.step_state == b''
    assert bench.run() and not bench.policy.rolled_back
