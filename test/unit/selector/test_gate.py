# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The risk gate: closes at once, opens late, never chatters; and pauses no arm of another's."""

from fdrl_ros.metrics.risk import RiskMeter
from fdrl_ros.selector import Candidate, GateSettings, PauseCommands, Reason, RiskGate, Selector
from fdrl_ros.surgery.arm.operating_state import OperatingState, State
from fdrl_ros.surgery.gym.actions import TICK
from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from support.choices import candidate, observe, select, values_of

ticks = st.lists(st.tuples(st.floats(0, 8), st.floats(0, 400), st.booleans()), max_size=120)


def run(gate, steps, period=TICK):
    """Return whether the gate was closed at each step."""
    meter, closed = RiskMeter(), []
    for number, (force, damage, critical) in enumerate(steps):
        closed.append(gate.update(meter.add(force, damage, critical, 6.5), number * period))
    return closed


def test_a_critical_error_closes_it_in_that_very_state_and_it_opens_after_a_calm_second():
    closed = run(RiskGate(), [(0, 0, False)] * 3 + [(0, 0, True)] + [(0, 0, False)] * 30)
    assert closed == [False] * 3 + [True] * 21 + [False] * 10


def test_high_mean_risk_closes_it_and_between_the_limits_nothing_changes():
    calm, middle, high = (0.0, 0.0, False), (5.0, 225.0, False), (6.5, 300.0, False)
    never = GateSettings(critical=False)
    assert not any(run(RiskGate(never), [middle] * 60))
    closed = run(RiskGate(never), [calm] * 5 + [high] * 10 + [middle] * 60 + [calm] * 30)
    # Mean of five at least 0.7: all five must be high.
    assert closed.index(True) == 9
    assert all(closed[9:75]) and not any(closed[-8:])


@settings(deadline=None, max_examples=60)
@given(ticks, st.floats(0.1, 2.0), st.integers(1, 8), st.booleans())
def test_it_cannot_chatter_and_is_never_open_in_a_critical_state(steps, wait, span, critical):
    gate = RiskGate(GateSettings(open_after=wait, span=span, critical=critical))
    closed = run(gate, steps)
    closings = sum(
        now and not before for before, now in zip([False, *closed], closed, strict=False)
    )
    assert closings <= 1 + len(steps) * TICK / wait
    if critical:
        assert all(shut for shut, step in zip(closed, steps, strict=True) if step[2])


def test_a_clock_that_goes_back_makes_it_wait_again():
    gate, meter = RiskGate(), RiskMeter()
    assert gate.update(meter.add(0, 0, True, 6.5), 100.0)
    assert gate.update(meter.add(0, 0, False, 6.5), 100.1)
    assert gate.update(meter.add(0, 0, False, 6.5), 5.0)
    assert gate.update(meter.add(0, 0, False, 6.5), 5.9)
    assert not gate.update(meter.add(0, 0, False, 6.5), 6.1)


def test_the_selector_holds_behind_a_closed_gate_and_goes_on_by_itself():
    selector = Selector(gate=GateSettings(open_after=0.2))
    selector.set_candidates([Candidate('global', lambda state: 3)])
    reasons = []
    for number in range(12):
        force = 11.0 if number == 3 else 0.5
        now = number * TICK
        chosen = select(selector, *observe(values_of(force=force), now), now)
        reasons.append(chosen.reason)
        assert chosen.risk is not None, 'risk goes on being measured'
        assert chosen.holds == (chosen.reason is Reason.RISK_GATE)
    assert reasons[3:8] == [Reason.RISK_GATE] * 5 and Reason.RISK_GATE not in reasons[8:]
    again = select(selector, *observe(values_of(), 0.6, 'case_2'), 0.6)
    assert again.policy == 'global'


@pytest.mark.parametrize('wrong', [{}, {'time_left': 1.0}, {'procedure': 'incision'}])
def test_no_single_state_opens_a_gate_that_a_force_closed(wrong):
    selector = Selector(gate=GateSettings(open_after=1.0))
    selector.set_candidates([candidate('global', 0.5)])
    reasons = []
    for tick in range(14):
        changes = {'time_left': 0.9 - 0.001 * tick, 'force': 11.0 if tick == 1 else 0.1}
        if tick == 6:
            changes |= wrong
        name = changes.pop('procedure', 'palpation')
        observed = observe(values_of(**changes), tick * TICK, procedure=name)
        reasons.append(select(selector, *observed, tick * TICK).reason)
    assert reasons[1:] == [Reason.RISK_GATE] * 13


class Arm:
    """A CRTK arm that obeys after so many calls."""

    def __init__(self, delay: int) -> None:
        self.crtk = OperatingState()
        self.waiting: list[tuple[int, str]] = []
        self.told = [str(State.ENABLED)] * (delay + 1)
        self.delay = delay

    def step(self, word):
        self.told.append(str(self.crtk.state))
        if word:
            self.waiting.append((self.delay, word))
        for left, each in self.waiting:
            if not left:
                self.crtk.command(each)
        self.waiting = [(left - 1, each) for left, each in self.waiting if left]
        return self.told[-1 - self.delay]


@pytest.mark.parametrize('delay', [0, 3, 20])
def test_an_arm_is_paused_while_the_gate_is_closed_and_resumed_once(delay):
    pauses, arm, told, words = PauseCommands(), Arm(delay), 'ENABLED', []
    for number in range(1200):
        word = pauses.next_command(100 <= number < 200, told, number * 0.01)
        words += [word] if word else []
        told = arm.step(word)
        if 100 + delay + 1 < number < 200:
            assert arm.crtk.state is State.PAUSED
    assert words == ['pause', 'resume'] and arm.crtk.state is State.ENABLED


def test_a_pause_of_somebody_else_is_never_ended():
    pauses = PauseCommands()
    assert pauses.next_command(True, 'PAUSED', 0.0) is None
    assert pauses.next_command(False, 'PAUSED', 1.0) is None
    assert pauses.next_command(True, 'ENABLED', 2.0) == 'pause'
    assert pauses.next_command(True, 'PAUSED', 2.1) is None
    pauses.yield_arm()  # the surgeon says pause, too
    assert pauses.next_command(False, 'PAUSED', 3.0) is None


@pytest.mark.parametrize('state', ['DISABLED', 'FAULT'])
def test_an_arm_that_was_disabled_meanwhile_is_left_alone(state):
    pauses = PauseCommands()
    assert pauses.next_command(True, 'ENABLED', 0.0) == 'pause'
    assert pauses.next_command(True, state, 1.0) is None
    assert pauses.next_command(False, state, 2.0) is None
    assert pauses.next_command(False, 'PAUSED', 3.0) is None, (
        'whoever paused it then, it was not the gate'
    )


def test_an_arm_that_does_not_follow_is_told_again_and_one_that_tells_nothing_is_resumed_once():
    pauses = PauseCommands()
    words = [pauses.next_command(True, 'ENABLED', 0.01 * number) for number in range(120)]
    assert [number for number, word in enumerate(words) if word] == [0, 50, 100]
    silent = PauseCommands()
    assert silent.next_command(True, '', 0.0) == 'pause'
    assert silent.next_command(False, '', 0.1) == 'resume'
    assert silent.next_command(False, '', 5.0) is None
