# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Vitals: published bands, what pushes them, what never happens, and bodies that live faster."""

import dataclasses
import json
import math
from pathlib import Path
import types

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.state import INDEX
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.breathing import breathing_factor
from fdrl_ros.surgery.patient.cohort import Cohort, public_cohort
from fdrl_ros.surgery.patient.events import Event, spans
from fdrl_ros.surgery.patient.labs import Labs
from fdrl_ros.surgery.patient.physiology import MOST_LOSS, Physiology
from fdrl_ros.surgery.settings import WorldSettings
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from support.sample_size import sampled


def quiet(index, **given):
    """Return a drawn patient as fit as can be, to whom nothing happens unless given."""
    drawn = public_cohort(0).patient(index)
    known = {each.name: getattr(drawn, each.name) for each in dataclasses.fields(drawn)}
    return types.SimpleNamespace(**{**known, 'labs': Labs(), 'events': (), **given})


NORMAL = {
    'mean_arterial_pressure': 88.0,
    'heart_rate': 74.0,
    'oxygen_saturation': 98.0,
    'respiratory_rate': 16.0,
}
PATIENT = quiet(0, **NORMAL)
# Share of blood lost; heart rate and breaths a minute of the class
# (ATLS, 10.1186/s13054-016-1265-x Table 2).
CLASSES = {
    1: (0.10, (0.0, 100.0), (14.0, 20.0)),
    2: (0.22, (100.0, 120.0), (20.0, 30.0)),
    3: (0.35, (120.0, 140.0), (30.0, 40.0)),
    4: (0.45, (140.0, math.inf), (35.0, math.inf)),
}


def body_of(*events, **given):
    """Return the body of the normal patient with events, without gas."""
    return Physiology(quiet(0, **{**NORMAL, 'events': events, **given}), insufflated=False)


def let_pass(body, seconds, period=0.05, **given):
    for _ in range(round(seconds / period)):
        body.advance(period, **given)
    return body


def settled(loss, patient=PATIENT, **given):
    body = Physiology(patient, insufflated=False)
    body.blood_loss = loss * 5000.0
    return let_pass(body, 120.0, 0.2, **given)


@pytest.fixture(scope='module')
def bled():
    """Drawn patients in each class: heart rate, breaths, MAP ratio, SBP, PP."""
    patients = [quiet(each) for each in range(sampled(200, 40))]
    rows = {}
    for number, (loss, _, _) in CLASSES.items():
        rows[number] = np.array(
            [
                (
                    body.values()[1],
                    body.values()[3],
                    body.values()[0] / patient.mean_arterial_pressure,
                    body.systolic,
                    1.5 * (body.systolic - body.pressure),
                )
                for patient in patients
                for body in [settled(loss, patient)]
            ]
        )
    return rows


def test_a_healthy_patient_stays_as_measured():
    assert settled(0.0).values() == pytest.approx((88.0, 74.0, 98.0, 16.0))
    assert settled(0.0).blood_loss == 0.0


@pytest.mark.parametrize('number', CLASSES)
def test_nine_in_ten_patients_are_in_the_band_of_their_class(bled, number):
    _, heart, breaths = CLASSES[number]
    rows = bled[number]
    for column, (low, high) in ((0, heart), (1, breaths)):
        assert np.mean((rows[:, column] >= low) & (rows[:, column] <= high)) >= 0.90


def test_pressure_is_normal_in_classes_one_and_two_and_low_in_three_and_four(bled):
    """Normal: MAP within a tenth of the patient's own; low: beyond, and SBP below 90 mmHg."""
    for number in (1, 2):
        assert bled[number][:, 2].min() > 0.90
    for number in (3, 4):
        assert bled[number][:, 2].max() < 0.85
        assert bled[number][:, 3].max() < 90.0
    # Pulse pressure: normal in class one, low from class two on.
    assert [np.all(bled[number][:, 4] < 30.0) for number in CLASSES] == [False, True, True, True]


def test_gas_raises_pressure_by_15_to_25_mmhg_within_a_minute_and_venting_undoes_it():
    shares = []
    for index in range(sampled(200, 40)):
        patient = quiet(index)
        before = patient.mean_arterial_pressure, patient.heart_rate
        body = Physiology(patient, insufflated=False)
        body.insufflate()
        let_pass(body, 60.0, 0.2)
        pressure, heart, _, _ = body.values()
        assert 15.0 < pressure - before[0] < 25.0
        assert heart - before[1] == pytest.approx(4.6, abs=0.2)
        shares.append(abs(pressure - 105.8) < 13.9)
        body.insufflate(False)
        let_pass(body, 60.0, 0.2)
        assert body.values()[:2] == pytest.approx(before, abs=0.2)
    assert np.mean(shares) >= 0.95


def test_an_operation_begins_in_the_steady_state_under_gas():
    body = Physiology(PATIENT)
    before = body.values()
    assert before[:2] == pytest.approx((108.8, 78.6))
    assert let_pass(body, 100.0).values() == pytest.approx(before)


def test_systolic_pressure_is_two_thirds_of_stroke_volume_over_compliance_above_the_mean():
    body = Physiology(PATIENT, insufflated=False)
    assert body.systolic - body.pressure == pytest.approx(2.0 / 3.0 * 70.0 / 1.5)


def test_force_hurts_within_the_range_accepted_under_anaesthesia():
    calm, hurt = settled(0.0), settled(0.0, force=10.0)
    assert 1.0 < hurt.values()[1] / calm.values()[1] < 1.53
    assert 1.0 < hurt.systolic / calm.systolic < 1.30
    assert settled(0.0, force=-10.0).values() == hurt.values()


def test_damage_bleeds_and_clots():
    body = Physiology(PATIENT)
    let_pass(body, 60.0, damage=0.1)
    first, wound = body.blood_loss, body.wound
    assert first > 10.0
    let_pass(body, 600.0)
    later = body.blood_loss
    assert body.wound == pytest.approx(wound * math.exp(-600.0 / 120.0), rel=0.05)
    assert first < later < 0.5 * MOST_LOSS
    # What an exponential wound bleeds from now on: rate x wound x time constant, mL.
    let_pass(body, 600.0)
    assert later - first == pytest.approx(0.05 * wound * 120.0 * (1.0 - math.exp(-5.0)), rel=0.01)
    assert body.blood_loss - later < 0.01 * (later - first)


def test_the_low_pressure_timer_counts_below_65_and_starts_again_above():
    body = Physiology(PATIENT, insufflated=False)
    body.blood_loss = 0.52 * 5000
    waited = expected = 0.0
    while not body.hypotensive:
        body.advance(0.05)
        waited += 0.05
        expected = expected + 0.05 if body.values()[0] < 65.0 else 0.0
        assert body.low_time == pytest.approx(expected)
        assert waited < 200.0
    assert waited >= 60.0
    assert body.saturation < 98.0
    body.blood_loss = 0.0
    while body.values()[0] < 65.0:
        body.advance(0.05)
    assert body.low_time == 0.0 and not body.hypotensive


def test_a_bleed_takes_its_volume_and_ends():
    body = body_of(Event('bleed', 1.025, 10.0, 40.0))
    let_pass(body, 1.0)
    assert body.blood_loss == 0.0
    let_pass(body, 30.0)
    assert body.blood_loss == pytest.approx(400.0)
    worse = body_of(Event('bleed', 0.0, 30.0, 40.0))
    let_pass(worse, 60.0)
    pressure, heart, _, breaths = worse.values()
    assert pressure < 83.0 and heart > 90.0 and breaths > 20.0


def test_a_desaturation_lowers_saturation_and_ends():
    body = body_of(Event('desaturation', 5.0, 60.0, 12.0))
    let_pass(body, 5.0)
    assert body.values()[2] == pytest.approx(98.0)
    quiet = body.scores()[0]
    let_pass(body, 60.0)
    assert body.values()[2] == pytest.approx(86.0 + 12.0 * math.exp(-3.0), abs=0.05)
    assert body.scores()[0] > quiet
    let_pass(body, 140.0)
    assert body.values()[2] == pytest.approx(98.0, abs=0.05)
    assert body.scores()[0] == quiet


def test_a_cough_raises_breathing_heart_and_pressure_and_ends():
    body = body_of(Event('breathing', 2.0, 10.0, 2.0))
    let_pass(body, 2.0)
    assert body.values() == pytest.approx((88.0, 74.0, 98.0, 16.0))
    let_pass(body, 9.0)
    assert body.values()[3] == pytest.approx(32.0)
    assert body.values()[0] > 89.0 and body.values()[1] > 75.0
    let_pass(body, 120.0)
    assert body.values() == pytest.approx((88.0, 74.0, 98.0, 16.0), abs=0.05)


def test_scores_move_with_the_vitals():
    body = body_of(labs=Labs(inspired_oxygen=0.21, temperature=37.0))
    assert body.scores() == (0, 0)
    body.blood_loss = 0.45 * 5000
    let_pass(body, 120.0)
    assert body.scores()[0] >= 9
    assert body.scores()[1] == 1
    body.blood_loss = 0.0
    let_pass(body, 300.0)
    assert body.scores()[0] == 0
    drowsy = body_of(labs=Labs(glasgow_coma_scale=12))
    assert drowsy.scores()[0] == 3 + 2


PATIENTS = st.fixed_dictionaries(
    {
        **{name: st.just(value) for name, value in NORMAL.items()},
        'mean_arterial_pressure': st.floats(71.0, 99.0),
        'heart_rate': st.floats(54.0, 94.0),
        'respiratory_rate': st.floats(12.0, 28.0),
    }
)


@settings(max_examples=sampled(60, 12), deadline=None)
@given(PATIENTS, st.floats(0.0, 0.6), st.floats(0.0, 0.6))
def test_every_vital_sign_is_monotone_in_blood_loss(patient, one, other):
    little, much = (settled(loss, quiet(0, **patient)) for loss in sorted((one, other)))
    pressure, heart, saturation, breaths = np.subtract(much.values(), little.values())
    assert max(pressure, saturation) <= 1e-6 <= 2e-6 + min(heart, breaths)
    assert much.systolic <= little.systolic + 1e-6


SHOCKS = st.tuples(
    st.floats(0.0, 5.0), st.floats(-1e300, 1e300), st.floats(0.0, 1e300) | st.just(0.0)
)
EVENTS = st.builds(
    Event, st.just('bleed'), st.floats(0, 60), st.floats(0.01, 1e6), st.floats(0, 1e300)
) | st.builds(
    Event,
    st.sampled_from(['desaturation', 'breathing']),
    st.floats(0, 60),
    st.floats(0.01, 1e6),
    st.floats(1.0, 100.0),
)


@settings(max_examples=sampled(60, 12), deadline=None)
@given(st.lists(SHOCKS, max_size=40), st.lists(EVENTS, max_size=4), PATIENTS)
def test_vitals_stay_finite_and_possible_whatever_happens(shocks, events, patient):
    body = Physiology(quiet(0, **patient, events=tuple(events)))
    for period, force, damage in shocks:
        body.advance(period, force, damage)
        pressure, heart, saturation, breaths = body.values()
        assert 4.0 < pressure < 200.0 and 35.0 <= heart <= 166.0
        assert 50.0 <= saturation <= 100.0 and 0.0 < breaths < math.inf
        assert pressure <= body.systolic
        assert 0.0 <= body.blood_loss <= 3000.0
    news2, sofa = body.scores()
    assert 0 <= news2 <= 20 and 0 <= sofa <= 24


def test_a_long_time_is_cut_into_steps():
    once, often = Physiology(PATIENT), Physiology(PATIENT)
    for body in (once, often):
        body.blood_loss = 1000.0
    once.advance(10.0)
    let_pass(often, 10.0, 0.2)
    assert once.values() == pytest.approx(often.values())


@pytest.mark.parametrize(
    'wrong', [(-0.1,), (math.nan,), (0.05, math.nan), (0.05, math.inf), (0.05, 1.0, -1.0)]
)
def test_impossible_numbers_are_refused_and_change_nothing(wrong):
    body = Physiology(PATIENT)
    before = body.values()
    with pytest.raises(StateError, match='expected finite'):
        body.advance(*wrong)
    assert body.values() == before and body.time == 0.0


CALM = dataclasses.replace(public_cohort(0).patient(0), events=())
PACES = st.sampled_from([2.0, 7.5, 20.0, 60.0])
BLEED = Event('bleed', 0.5, 30.0, 20.0)
STAY = 12
CLOSE = {'rtol': 1e-9, 'atol': 1e-12}


def stretched(events, pace):
    """Return events in the time of a body at a pace, as a body at pace 1 has them."""
    return tuple(
        dataclasses.replace(each, start=each.start * pace, duration=each.duration * pace)
        for each in events
    )


def with_events(*events):
    return dataclasses.replace(CALM, events=tuple(events))


@settings(max_examples=sampled(25, 10), deadline=None)
@given(PACES, st.floats(0.0, 3.0), st.floats(0.1, 20.0), st.floats(1.0, 60.0), st.floats(1.0, 5.0))
def test_some_seconds_at_a_pace_are_that_many_more_at_pace_one(pace, start, lasts, rate, time):
    events = Event('bleed', start, lasts, rate), Event('desaturation', start, lasts, 9.0)
    fast = Physiology(with_events(*events), pace=pace)
    slow = Physiology(with_events(*stretched(events, pace)))
    for _ in range(round(time / TICK)):
        fast.advance(TICK, force=0.5, damage=0.01)
        slow.advance(pace * TICK, force=0.5, damage=0.01)
    np.testing.assert_allclose(fast.values(), slow.values(), rtol=1e-9)
    assert fast.time == pytest.approx(slow.time)
    assert (fast.blood_loss, fast.low_time) == pytest.approx((slow.blood_loss, slow.low_time))
    assert fast.scores() == slow.scores()


def test_coughs_keep_to_real_time_as_the_organ_that_they_move():
    cough = Event('breathing', 0.2, 3.0, 1.8)
    body = Physiology(with_events(cough), pace=30.0)
    for tick in range(1, 80):
        body.advance(TICK)
        factor = breathing_factor(spans([cough], 'breathing'), tick * TICK)[0]
        assert body.breathing == pytest.approx(body.rest_breathing * factor)


def told(pace, mode='kinematic'):
    """Return all that an operation at a pace says while somebody presses at random."""
    env, rng = SurgeryEnv(settings=WorldSettings(mode=mode, pace=pace)), np.random.default_rng(1)
    patient = dataclasses.replace(Cohort(1, 3, 1.0, 4).patient(3), events=(BLEED,))
    said = [env.reset(options={'patient': patient})[0]]
    for _ in range(40):
        state, reward, terminated, truncated, info = env.step(int(rng.integers(6)))
        said += [state, reward, info['force'], info['damage'], info['tip']]
        if terminated or truncated:
            break
    env.close()
    return said


@pytest.mark.parametrize('mode', ['dynamic', 'kinematic'])
def test_the_pace_changes_vital_signs_and_nothing_else(mode):
    first, differ = INDEX['mean_arterial_pressure'], 0
    for one, other in zip(told(1.0, mode), told(40.0, mode), strict=True):
        if np.shape(one) == (len(INDEX),):
            differ += not np.array_equal(one[first:], other[first:])
            one, other = one[:first], other[:first]
        np.testing.assert_array_equal(one, other)
    assert differ


def test_paces_that_no_body_has_are_refused():
    for wrong in (0.0, 0.5, -1.0, 601.0, math.nan, math.inf, 'fast'):
        with pytest.raises(SettingError, match='pace'):
            WorldSettings(pace=wrong)
    assert WorldSettings().pace == 1.0


def test_the_table_of_paces_is_that_of_its_result_file():
    docs = Path(__file__).parents[3] / 'docs'
    found = json.loads((docs / 'results/pace.json').read_text('utf-8'))
    who, count = {'expert': 'expert', 'stay': 'who only waits'}, found['settings']['patients']
    text = (docs / 'world.md').read_text('utf-8')
    assert f'Of {count} operations' in text and found['settings']['heterogeneity'] == 1.0
    for each in found['figures']:
        tail, far = (each[f'pressure_moved_{share}'] for share in (90, 99))
        small = f'{tail:.2f}' if tail < 0.1 else f'{tail:.1f}'
        assert (
            f'| {who[each["hands"]]}, {each["pace"]:g} '
            f'| {100.0 * each["news2_changed"] / count:.1f} % | {small} / {far:.1f} '
            f'| {each["vitals"]} | {each["successes"]} |'
        ) in text
