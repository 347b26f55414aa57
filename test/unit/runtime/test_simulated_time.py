# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Simulated time passes in whole cycles, and only while it plays or steps are left."""

from fdrl_ros.errors import StateError
from fdrl_ros.runtime.simulated_time import MOST_STEPS, SimulatedTime, Simulation, START
from hypothesis import given, strategies
import pytest

PERIOD = 10_000_000
ORDERS = strategies.one_of(
    strategies.sampled_from([*Simulation, 'reset', 'advance']), strategies.integers(1, 5)
)


@given(strategies.lists(ORDERS))
def test_time_is_a_whole_number_of_cycles_and_goes_back_only_when_reset(orders):
    time, cycles = SimulatedTime(PERIOD), 0
    for order in orders:
        before = time.nanoseconds
        if order == 'reset':
            time.reset()
            cycles = 0
        elif order == 'advance':
            if time.passes:
                time.advance()
                cycles += 1
            else:
                with pytest.raises(StateError, match='time stands'):
                    time.advance()
        elif isinstance(order, Simulation):
            time.change(order)
            assert time.passes is (order is Simulation.PLAYING)
        elif time.state is Simulation.PAUSED and not time.steps:
            time.step(order)
        else:
            with pytest.raises(StateError):
                time.step(order)
        assert time.nanoseconds == START + cycles * PERIOD
        assert time.nanoseconds >= before or order == 'reset'


def test_steps_are_so_many_cycles_and_then_it_stands():
    time = SimulatedTime(PERIOD)
    with pytest.raises(StateError, match='playing: expected paused'):
        time.step(1)
    time.change(Simulation.PAUSED)
    for wrong in (0, MOST_STEPS + 1):
        with pytest.raises(StateError, match=f'{wrong} steps: expected'):
            time.step(wrong)
    time.step(3)
    with pytest.raises(StateError, match='3 steps are left'):
        time.step(1)
    while time.passes:
        time.advance()
    assert time.nanoseconds == START + 3 * PERIOD and time.state is Simulation.PAUSED
    time.step(2)
    time.change(Simulation.STOPPED)
    assert not time.passes, 'steps that were left are given up'
