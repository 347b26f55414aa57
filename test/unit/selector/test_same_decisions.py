# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The same states give the same decisions: neither their pace nor the steady clock decides."""

import dataclasses
import math

from fdrl_ros.selector import Candidate, Limiter, Reason, Selector, SelectorSettings
from fdrl_ros.selector.control.loop import ControlLoop
from fdrl_ros.surgery.gym.actions import STAY
from fdrl_ros.surgery.gym.state import INDEX
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from support.choices import observe, values_of
from support.robot_loop import number, Robot, SECOND


def decisions(states, speed, late_patient, jitter):
    """Return what a loop decides on recorded states that come so many times faster."""
    selector = Selector(SelectorSettings(dwell=0.1))
    selector.set_candidates(
        [
            Candidate('global', lambda state: int(abs(1e3 * state[INDEX['force']])) % 12),
            Candidate('other', lambda state: 4),
        ]
    )
    loop, found, now, ticks = ControlLoop(selector, Limiter()), [], 50.0, 0
    for number_, (operation, vitals, tip) in enumerate(states):
        due = now + (0.01 / speed) * (1.0 + jitter[number_ % len(jitter)])
        while 50.0 + 0.01 * ticks < due:  # the watchdog's own clock
            found.append(loop.watchdog(50.0 + 0.01 * ticks))
            ticks += 1
        now = due
        operation, vitals = (
            dataclasses.replace(each, received=now) for each in (operation, vitals)
        )
        loop.receive_tip(tip, operation.time)
        if not late_patient:
            found.append(loop.receive_patient(vitals, now))
        found.append(loop.run_waiting(now))
        found.append(loop.receive_operation(operation, now))
        if late_patient:
            found.append(loop.receive_patient(vitals, now))
    chosen = [each.selection for each in found if each is not None]
    return [
        repr(each._replace(time=0.0))
        for each in chosen
        if each is not None and each.risk is not None
    ]


@pytest.fixture(scope='module')
def recorded():
    """Record a robot's states for four seconds, with a leap of the stamps and a bad number."""
    rng = np.random.default_rng(2)
    stream, states = Robot(lambda state: int(rng.choice([STAY, 4, 10, 11, 5]))), []

    def keep(operation, vitals):
        if 200 <= stream.substeps < 206:
            operation, _ = number('force', math.nan)(operation, vitals)
        states.append((operation, vitals, np.array(stream.operation.target)))
        return operation, vitals

    for beat in range(320):
        if beat == 250:
            stream.stamp += SECOND
        stream.publish(keep)
    return states


@settings(deadline=None, max_examples=8)
@given(
    speed=st.floats(0.1, 20.0),
    late=st.booleans(),
    jitter=st.lists(st.floats(-0.9, 0.9), min_size=1, max_size=7),
)
def test_the_same_states_give_the_same_decisions_however_fast_they_come(
    recorded, speed, late, jitter
):
    expected = decisions(recorded, 1.0, False, [0.0])
    assert len(expected) > 50
    assert decisions(recorded, speed, late, jitter) == expected


@pytest.mark.parametrize(
    ('reason', 'stamp'), [(Reason.STALE, None), (Reason.OUT_OF_RANGE, 1)], ids=['clock', 'state']
)
def test_a_hold_leaves_no_trace_in_later_decisions(reason, stamp):
    told = []
    for interrupted in (True, False):
        selector = Selector()
        selector.set_candidates([Candidate('global', lambda state: 10)])  # down
        forces = []
        for number_ in range(8):
            now = 0.05 * number_
            halves = observe(values_of(force=0.6 + 0.1 * (number_ % 3)), now)
            forces.append(selector.select(*halves, now).predicted_force)
            if interrupted and number_ == 4:
                between, _ = observe(values_of(force=0.5), now + 0.03)
                selector.keep_tip(reason, now + 0.04, between, stamp)
        told.append(forces)
    assert told[0] == told[1]
