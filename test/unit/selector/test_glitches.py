# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What one wrong state must not do: open a gate, lose damage, make two times of one."""

from fdrl_ros.selector import GateSettings, Reason, Selector
from fdrl_ros.surgery.gym.actions import TICK
import numpy as np
import pytest
from support.choices import candidate, observe, select, selector_with, values_of
from support.robot_loop import StateStream, up


def closed_by_force(wrong):
    """Return the reasons in 12 states after a force closed the gate, one of them wrong."""
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
    return reasons[1:]


@pytest.mark.parametrize('wrong', [{}, {'time_left': 1.0}, {'procedure': 'incision'}])
def test_no_single_state_opens_a_closed_gate(wrong):
    assert closed_by_force(wrong) == [Reason.RISK_GATE] * 13


def test_a_second_state_of_another_case_opens_the_gate():
    selector = selector_with(candidate('global', 0.5))
    lefts = [0.5, 0.49, 1.0, 0.999]
    forces = [11.0, 0.1, 0.1, 0.1]
    reasons = [
        select(
            selector, *observe(values_of(time_left=left, force=force), tick * TICK), tick * TICK
        ).reason
        for tick, (left, force) in enumerate(zip(lefts, forces, strict=True))
    ]
    assert reasons == [Reason.RISK_GATE] * 3 + [Reason.BEST]


def test_time_that_leaps_back_has_to_settle_as_one_that_leaps_ahead():
    for leap in (-400_000_000, 400_000_000):
        stream = StateStream(up)
        stream.run(40)
        heard, begin = len(stream.timed), stream.now
        stream.stamp += leap
        stream.run(20)
        refused = [now for now, each in stream.timed[heard:] if each.reason is Reason.CLOCK]
        acted = [now for now, each in stream.timed[heard:] if each.reason is not Reason.CLOCK]
        assert refused and acted and min(acted) - begin > 0.045, leap


def test_two_clocks_in_turn_are_hardly_ever_acted_on():
    stream = StateStream(up)
    stream.run(20)
    heard = len(stream.timed)
    for beat in range(200):
        back = (beat % 2) * 400_000_000
        stream.stamp -= back
        stream.publish()
        stream.stamp += back
    reasons = [each.reason for _, each in stream.timed[heard:]]
    assert np.mean([each is Reason.CLOCK for each in reasons]) > 0.9
