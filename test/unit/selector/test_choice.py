# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The selector takes the better of two without chatter, as an obvious ranking does."""

import math
from statistics import NormalDist
from types import SimpleNamespace

from fdrl_ros.errors import PolicyError
from fdrl_ros.selector import Candidate, HOLD, Reason, Selector, SelectorSettings
from fdrl_ros.selector.candidates.candidate import GLOBAL, HOME
from fdrl_ros.selector.control.selector import Ranking
from fdrl_ros.selector.value.bank import Estimates
from fdrl_ros.surgery.gym.actions import STAY, TICK
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from support.choices import candidate, constant_value, observe, select, selector_with, values_of


@pytest.mark.parametrize(
    ('candidates', 'expected'),
    [
        (
            [candidate('global', 0.5, action=3), candidate('hospital_1', 0.9, action=7)],
            ('hospital_1', 7, 0.9, 'best'),
        ),
        (
            [candidate('global', 0.3), Candidate(HOLD, None, constant_value(0.4))],
            (HOLD, STAY, 0.4, 'caution'),
        ),
        (
            [candidate('global', action=4), candidate('hospital_1')],
            ('global', 4, math.nan, 'unvalued'),
        ),
    ],
    ids=['better', 'hold has a value like the others', 'without an estimate the first'],
)
def test_the_best_candidate_is_chosen_with_its_estimate(candidates, expected):
    found = select(selector_with(*candidates), *observe(values_of()), 0.001)
    assert (found.policy, found.action, found.reason) == (*expected[:2], expected[3])
    assert found.value == pytest.approx(expected[2], nan_ok=True)
    assert found.uncertainty == pytest.approx(0.0, nan_ok=True) or math.isnan(expected[2])


@settings(max_examples=30)
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


MEMBERS = 3


class Obvious:
    """The rule of the ranking, one candidate after the other."""

    def __init__(self, chosen, home):
        self.settings, self.factor = chosen, NormalDist().inv_cdf(chosen.confidence)
        self.home = self.acts = home
        self.since = -math.inf

    def lower(self, found, place, other=None):
        """Bound a return, or what it is above that of another."""
        mean, own = found.means[place], found.deviations[place]
        if other is None:
            return mean - self.factor * found.stds[place]
        apart = sum((a - b) ** 2 for a, b in zip(own, found.deviations[other], strict=True))
        variance = apart + found.strangeness[place] + found.strangeness[other]
        return mean - found.means[other] - self.factor * math.sqrt(variance)

    def choose(self, found, free, now):
        place, reason = self.best(found, free, now)
        if place != self.acts or self.since == -math.inf:  # who begins acts from then on
            self.acts, self.since = place, now
        return place, reason

    def best(self, found, free, now):
        hold, rules = len(free) - 1, self.settings
        bounds = {}
        for place in range(hold):
            if free[place] and math.isfinite(self.lower(found, place)):
                bounds[place] = self.lower(found, place)
        if not bounds:
            known = any(math.isfinite(found.means[place]) for place in range(hold))
            return hold, Reason.POLICY_FAILED if known else Reason.PROCEDURE
        bounds[hold] = (
            rules.hold_return
            if math.isnan(found.means[hold])
            else self.lower(found, hold) - rules.hold_handicap
        )
        acts, policies = self.acts, [place for place in bounds if place != hold]
        if acts not in bounds:
            begins = self.home if self.home in bounds else max(policies, key=bounds.get)
            if bounds[hold] > bounds[begins]:
                return hold, Reason.CAUTION
            return begins, Reason.BEST
        if self.home in bounds:
            leads = {place: self.lower(found, place, self.home) for place in policies}
            policies = [
                place
                for place in policies
                if place == self.home
                or leads[place] > rules.home_margin
                or (place == acts and leads[place] > rules.home_margin / 2.0)
            ]
        stayed = now - self.since

        def enough(gain):
            late = gain > 0.0 and stayed >= rules.patience
            return stayed >= rules.dwell and (gain > rules.margin or late)

        if acts == hold:
            best = max(policies, key=bounds.get)
            if enough(bounds[best] - bounds[hold]):
                return best, Reason.BEST
            return hold, Reason.CAUTION
        safer = bounds[hold] - bounds[acts]
        if safer > rules.margin or enough(safer):
            return hold, Reason.CAUTION
        if acts not in policies:
            if stayed < rules.dwell:
                return acts, Reason.KEPT
            return self.home, Reason.BEST
        gains = {
            place: 0.0 if place == acts else self.lower(found, place, acts) for place in policies
        }
        best = max(policies, key=gains.get)
        if best != acts and enough(gains[best]):
            return best, Reason.BEST
        return acts, Reason.KEPT if max(safer, gains[best]) > 0.0 else Reason.BEST


@st.composite
def estimates(draw, count):
    """Draw what candidates are worth: some alike, some unknown, hold often without a model."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scale = draw(st.sampled_from((0.01, 0.1, 1.0)))
    means = scale * rng.normal(size=count)
    deviations = 0.1 * scale * rng.normal(size=(count, MEMBERS))
    strangeness = 0.01 * scale**2 * rng.exponential(size=count)
    misfits = 0.01 * scale**2 * rng.exponential(size=count)
    unknown = rng.random(count) < draw(st.sampled_from((0.0, 0.3, 1.0)))
    means[unknown], deviations[unknown], misfits[unknown] = math.nan, math.nan, math.nan
    stds = np.sqrt(np.square(deviations).sum(axis=1) + strangeness + misfits)
    return Estimates(means, stds, means, deviations, strangeness)


@st.composite
def courses(draw):
    """Draw an operation: what is known, who may act, and how long until the next state."""
    count = draw(st.integers(2, 9))
    free = st.lists(st.sampled_from((True, True, True, False)), min_size=count, max_size=count)
    step = st.tuples(estimates(count), free, st.sampled_from((0.05, 0.2, 2.0)))
    rules = SelectorSettings(
        margin=draw(st.sampled_from((0.0, 0.01, 0.1))),
        home_margin=draw(st.sampled_from((0.0, 0.05, 1.0))),
        hold_return=draw(st.sampled_from((-1.5, 0.0))),
        hold_handicap=draw(st.sampled_from((0.0, 0.1))),
    )
    usual = draw(st.sampled_from((None, HOME, GLOBAL)))
    return count, usual, rules, draw(st.lists(step, min_size=1, max_size=12))


@settings(deadline=None)
@given(courses())
def test_the_quick_ranking_chooses_what_the_obvious_one_does(course):
    count, usual, rules, steps = course
    names = [*(f'policy_{each}' for each in range(count - 1)), 'hold']
    if usual is not None:
        names[0] = usual
    chosen = SimpleNamespace(names=names, valued=True)
    quick, obvious, now = Ranking(rules), Obvious(rules, 0 if usual else None), 0.0
    for found, free, wait in steps:
        free = [*free[:-1], True]
        if not any(free[:-1]):
            free[0] = True
        now += wait
        place, reason = quick.choose(chosen, found, free, now)
        assert (place, reason) == obvious.choose(found, free, now)
        mean, std, _ = quick.estimate_of(place, found)
        if place == count - 1 and math.isnan(found.means[place]):
            assert (mean, std) == (rules.hold_return, 0.0)
        else:
            assert (mean, std) == (found.means[place], found.stds[place])


def test_who_begins_goes_on_until_another_is_surely_better():
    chosen, free = SimpleNamespace(names=['other', 'own', 'hold'], valued=True), [True] * 3
    doubt = np.zeros((3, 2))
    doubt[0, 0] = 1.0
    for lead, begins, expected in ((0.1, 'own', 1), (0.1, None, 0), (9.0, 'own', 0)):
        means = np.array([lead, 0.0, -9.0])
        found = Estimates(means, np.array([0.0, 0.2, 0.2]), means, doubt, np.zeros(3))
        ranking = Ranking(SelectorSettings(confidence=0.9))
        ranking.reset(begins)
        assert ranking.choose(chosen, found, free, 0.0)[0] == expected


def acts_in(courses, names, **rules):
    """Return who acts at each tick, by the candidates' exact returns at each tick."""
    chosen, ranking = SimpleNamespace(names=names, valued=True), Ranking(SelectorSettings(**rules))
    acted = []
    for tick, means in enumerate(np.array(courses, np.float64)):
        doubt = np.zeros((len(means), 2))
        found = Estimates(means, np.zeros(len(means)), means, doubt, np.zeros(len(means)))
        place, _ = ranking.choose(chosen, found, [True] * len(means), 0.05 * tick)
        acted.append(names[place])
    return acted


THREE = ['home', 'other', 'hold']


@pytest.mark.parametrize('usual', [HOME, GLOBAL])
def test_another_policy_acts_only_while_it_is_surely_better_than_the_usual_one(usual):
    leads = (0.5, 2.0, 2.0, 2.0, 0.6, 0.6, 0.4, 0.4)
    names = [usual, 'other', 'hold']
    acted = acts_in([(0.0, lead, -9.0) for lead in leads], names, home_margin=1.0, dwell=0.12)
    assert acted == [*[usual] * 3, *['other'] * 3, *[usual] * 2]


def test_the_global_policy_is_one_of_many_beside_a_home_policy():
    names = ['global', 'home', 'hold']
    assert acts_in([(0.5, 0.0, -9.0)] * 5, names, home_margin=1.0) == ['home'] * 5
    assert acts_in([(1.5, 0.0, -9.0)] * 5, names, home_margin=1.0) == ['global'] * 5


def test_no_chatter_where_the_lead_over_the_home_policy_is_about_the_margin():
    leads = [0.5, *np.random.default_rng(1).uniform(0.8, 1.2, 200)]
    acted = acts_in([(0.0, lead, -9.0) for lead in leads], THREE, home_margin=1.0)
    assert sum(a != b for a, b in zip(acted, acted[1:], strict=False)) == 1


def test_holding_is_seen_beside_a_policy_that_may_not_replace_the_home_policy():
    acted = acts_in([(-2.0, -1.15, -1.2)] * 3, THREE, home_margin=1.0, margin=0.1)
    assert acted == ['hold'] * 3


def test_the_margin_over_the_home_policy_makes_nobody_less_cautious():
    # Holding comes at once where it is better by the margin, and the way back takes the dwell.
    course = [(0.0, -5.0, -1.0)] + [(-1.0, -5.0, -0.8)] * 3 + [(0.0, -5.0, -0.7)] * 5
    acted = acts_in(course, THREE, home_margin=1.0, margin=0.1, dwell=0.15)
    assert acted == ['home', *['hold'] * 3, *['home'] * 5]


def test_after_holding_the_home_policy_is_the_first_to_act():
    course = [(-2.0, -2.0, -1.0)] * 2 + [(0.5, 0.6, -1.0)] * 6
    acted = acts_in(course, THREE, home_margin=1.0)
    assert acted == ['hold'] * 3 + ['home'] * 5
