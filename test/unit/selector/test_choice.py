# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The selector: the better of two, without chatter."""

import math

from fdrl_ros.errors import PolicyError
from fdrl_ros.selector import Candidate, HOLD, Reason, Selector
from fdrl_ros.surgery.gym.actions import TICK
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
import pytest
from support.choices import candidate, constant_value, observe, select, selector_with, values_of


def test_the_clearly_better_policy_is_chosen():
    selector = selector_with(
        candidate('global', 0.5, action=3), candidate('hospital_1', 0.9, action=7)
    )
    selection = select(selector, *observe(values_of()), 0.001)
    assert (selection.policy, selection.action) == ('hospital_1', 7)
    assert (selection.value, selection.uncertainty) == pytest.approx((0.9, 0.0))
    assert selection.reason == Reason.BEST == 'best'


def test_hold_has_a_value_like_the_others():
    models = candidate('global', 0.3), Candidate(HOLD, None, constant_value(0.4))
    assert selector_with(*models).select(*observe(values_of()), 0.0).value == pytest.approx(0.4)


def test_without_any_estimate_the_first_policy_runs():
    selector = selector_with(candidate('global', action=4), candidate('hospital_1'))
    selection = select(selector, *observe(values_of()), 0.0)
    assert (selection.policy, selection.action, selection.reason) == ('global', 4, Reason.UNVALUED)
    assert math.isnan(selection.value)


@hypothesis_settings(max_examples=30)
@given(
    st.lists(st.floats(0, 2.5), min_size=1, max_size=60),
    st.sampled_from([0.1, 0.15, 0.3]),
    st.booleans(),
)
def test_hysteresis_bounds_the_number_of_switches(forces, dwell, hold_in_the_middle):
    hold = Candidate(HOLD, None, constant_value(0.6 if hold_in_the_middle else -9.0))
    rising, falling = candidate('rising', 0.2, slope=1.0), candidate('falling', 1.2, slope=-1.0)
    selector = selector_with(rising, falling, hold, dwell=dwell)
    chosen = []
    for k, force in enumerate(forces):
        selection = select(selector, *observe(values_of(force=force), k * TICK), k * TICK)
        chosen.append(selection.policy)
    switches = sum(a != b for a, b in zip(chosen, chosen[1:], strict=False))
    assert switches <= 2 * (len(forces) * TICK / dwell) + 1
    moves = [name for name in chosen if name != HOLD]
    to_policies = sum(b != HOLD and a != b for a, b in zip(chosen, chosen[1:], strict=False))
    assert to_policies <= len(forces) * TICK / dwell + 1 or not moves


def test_candidates_are_replaced_all_or_none():
    selector = selector_with(candidate('global', 0.5))
    with pytest.raises(PolicyError):
        selector.set_candidates([candidate('one', 0.5), candidate('one', 0.6)])
    assert [each.name for each in selector.candidates] == ['global', HOLD]
    selector.set_candidates([candidate('hospital_2', 0.5)])
    assert select(selector, *observe(values_of()), 0.0).policy == 'hospital_2'


@pytest.mark.parametrize(
    'bad',
    [
        Candidate('global', None),
        Candidate(HOLD, lambda s: 1),
        Candidate('', lambda s: 1),
        Candidate('global', lambda s: 1, constant_value(0.0, policy='ab'), digest=b'cd'),
        Candidate('global', lambda s: 1, constant_value(0.0, size=2)),
    ],
)
def test_a_candidate_that_contradicts_itself_is_refused(bad):
    with pytest.raises(PolicyError):
        Selector().set_candidates([bad])
