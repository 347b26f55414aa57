# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sliding windows and case means: equal to the batch over the same steps, however many before."""

import math

from fdrl_ros.metrics.adaptation import AdaptationMeter, alpha_adapt
from fdrl_ros.metrics.means import CaseMeans, whole
from fdrl_ros.metrics.risk import risk_terms, RiskMeter
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from support.metric_formulas import r_mit, variation_rate
from support.sample_size import sampled

steps = st.tuples(
    st.floats(0, 1),  # of the state
    st.integers(0, 2),  # action
    st.floats(0, 8),  # force
    st.floats(0, 400),  # damage
    st.booleans(),  # critical
)
cases_strategy = st.lists(st.lists(steps, max_size=10), min_size=1, max_size=6)
LIMIT, THRESHOLD = 6.5, 0.5


def newest(cases, window):
    """Return the newest steps by case, each as (step, the step before it in its case or None)."""
    pairs = [[(s, case[t - 1] if t else None) for t, s in enumerate(case)] for case in cases]
    kept = []
    for case in reversed(pairs):
        taken = case[-window:] if window else []
        window -= len(taken)
        kept.insert(0, taken)
    return kept


def slow_rates(cases):
    """Write Eq. 4 and 11 out over steps that know the one before."""
    rates, alphas, counts = [], [], [0, 0, 0]
    for case in cases:
        follows = [(now, before) for now, before in case if before is not None]
        changed = [(n, b) for n, b in follows if abs(n[0] - b[0]) > THRESHOLD]
        answered = [n for n, b in changed if n[1] != b[1]]
        if follows:
            rates.append(len(changed) / len(follows))
        if changed:
            alphas.append(len(answered) / len(changed))
        for place, each in enumerate((follows, changed, answered)):
            counts[place] += len(each)
    mean = [math.fsum(each) / len(each) if each else math.nan for each in (alphas, rates)]
    return (mean[0], len(alphas), mean[1], *counts)


def close(found, expected):
    return found == pytest.approx(expected, abs=1e-12, nan_ok=True)


@settings(deadline=None)
@given(cases_strategy, st.integers(1, 12))
def test_windows_equal_the_batch_over_the_newest_steps_after_every_step(raw, window):
    risks, adaptations = RiskMeter(window=window), AdaptationMeter(THRESHOLD, window)
    past = []
    for case in raw:
        past.append([])
        for step in case:
            past[-1].append(step)
            risk = risks.add(step[2], step[3], step[4], LIMIT)
            adaptation = adaptations.add(np.array([step[0]]), step[1])
            kept = newest(past, window)
            totals = [
                np.array([float(risk_terms(*s[2:5], LIMIT).total) for s, _ in each])
                for each in kept
            ]
            assert close(risk.window.value, r_mit(totals))
            assert risk.window.steps == sum(map(len, kept)) <= window
            assert risk.window.cases == sum(bool(each) for each in kept)
            assert close(tuple(adaptation.window), slow_rates(kept))
            assert math.isnan(adaptation.window.alpha_adapt) == (adaptation.window.cases == 0)
            assert math.isnan(adaptation.window.variation_rate) == (adaptation.window.steps == 0)
        risks.end_case()
        adaptations.end_case()


@settings(deadline=None)
@given(cases_strategy)
def test_the_present_case_and_all_cases_have_their_own_rates_and_counts(raw):
    risks, adaptations = RiskMeter(), AdaptationMeter(THRESHOLD)
    past = []
    for case in raw:
        past.append(case)
        for t, step in enumerate(case):
            risk = risks.add(step[2], step[3], step[4], LIMIT)
            adaptation = adaptations.add(np.array([step[0]]), step[1])
            totals = [
                [float(risk_terms(*s[2:5], LIMIT).total) for s in each]
                for each in (*past[:-1], case[: t + 1])
            ]
            assert close(risk.total, totals[-1][-1]) and 0.0 <= risk.total <= 1.0 + 1e-15
            assert close(tuple(risk.case), (r_mit(totals[-1:]), 1, t + 1))
            counts = sum(map(bool, totals)), sum(map(len, totals))
            assert close((risk.mitigation, risk.cases, risk.steps), (r_mit(totals), *counts))
            now = newest([case[: t + 1]], 99)
            assert close(tuple(adaptation.case), slow_rates(now))
            states = [np.array([[s[0]] for s in each]) for each in [*past[:-1], case[: t + 1]]]
            actions = [np.array([s[1] for s in each]) for each in [*past[:-1], case[: t + 1]]]
            done = [pair for pair in zip(states, actions, strict=True) if len(pair[0])]
            alpha, count = alpha_adapt(done, THRESHOLD)
            assert close(adaptation.overall[:2], (alpha, count))
            assert close(adaptation.overall.variation_rate, variation_rate([s for s, _ in done]))
        risks.end_case()
        adaptations.end_case()


def test_many_steps_leave_no_trace_in_a_window():
    count = sampled(1_000_000, 100_000)
    rng = np.random.default_rng(5)
    values = rng.uniform(0, 1, count) * rng.choice([1e-9, 1.0], count)
    means, starts = CaseMeans(200), set(range(0, count, 130))
    for number, value in enumerate(values.tolist()):
        if number in starts:
            means.end_case()
        means.add(whole(value))
    # The window ends in the newest case and reaches over one or two cases before it.
    bounds = (count - 200, *(start for start in sorted(starts) if start > count - 200), count)
    parts = [values[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    expected = math.fsum(math.fsum(part) / len(part) for part in parts) / len(parts)
    assert abs(means.value - expected) < 1e-15
    assert (means.cases, means.denominator) == (len(parts), 200)


def test_nothing_is_undefined_not_zero():
    means = CaseMeans(3)
    assert math.isnan(means.value) and math.isnan(means.present[0])
    means.add(0, 0)
    assert math.isnan(means.value) and means.cases == 0
    means.add(whole(0.5))
    for _ in range(3):
        means.add(0, 0)
    assert math.isnan(means.value), 'the only step that counts has left the window'
