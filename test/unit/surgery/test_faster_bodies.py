# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A body that lives faster: the same law, more of it in an operation, and nothing else."""

import dataclasses
import json
import math
from pathlib import Path

from fdrl_ros.errors import SettingError
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.state import INDEX
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.breathing import breathing_factor
from fdrl_ros.surgery.patient.cohort import Cohort, public_cohort
from fdrl_ros.surgery.patient.events import Event, spans
from fdrl_ros.surgery.patient.physiology import Physiology
from fdrl_ros.surgery.settings import WorldSettings
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from support.sample_size import sampled

PATIENT = dataclasses.replace(public_cohort(0).patient(0), events=())
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
    return dataclasses.replace(PATIENT, events=tuple(events))


@settings(max_examples=sampled(25, 10), deadline=None)
@given(PACES, st.floats(0.0, 3.0), st.floats(0.1, 20.0), st.floats(1.0, 60.0), st.floats(1.0, 5.0))
def test_some_seconds_at_a_pace_are_that_many_more_at_pace_one(pace, start, lasts, rate, time):
    events = Event('bleed', start, lasts, rate), Event('desaturation', start, lasts, 9.0)
    fast = Physiology(with_events(*events), pace=pace)
    slow = Physiology(with_events(*stretched(events, pace)))
    for _ in range(round(time / TICK)):
        fast.advance(TICK, force=0.5)
        slow.advance(pace * TICK, force=0.5)
    np.testing.assert_allclose(fast.values(), slow.values(), rtol=1e-9)
    assert fast.time == pytest.approx(slow.time)
    assert (fast.blood_loss, fast.low_time) == pytest.approx((slow.blood_loss, slow.low_time))
    assert fast.scores() == slow.scores()


def test_what_harm_bleeds_in_all_does_not_depend_on_the_pace():
    losses = []
    for pace in (1.0, 60.0):
        body = Physiology(PATIENT, pace=pace)
        body.advance(TICK, force=1.0, damage=2.0)
        for _ in range(round(1200.0 / pace / TICK)):
            body.advance(TICK)
        losses.append(body.blood_loss)
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert losses[0] == pytest.approx(0.05 * 2.0 * 120.0, rel=0.02)  # rate, harm, time of clotting


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


def test_a_bleed_ends_an_operation_by_vitals_only_where_the_body_lives_faster():
    ends = {}
    for pace in (1.0, 60.0):
        env = SurgeryEnv(settings=WorldSettings(mode='kinematic', pace=pace, horizon=120))
        _state, info = env.reset(options={'patient': with_events(BLEED)})
        pressures, scores, over = [info['mean_arterial_pressure']], {info['news2']}, False
        while not over:
            _state, _reward, terminated, truncated, info = env.step(STAY)
            over = terminated or truncated
            pressures.append(info['mean_arterial_pressure'])
            scores.add(info['news2'])
        ends[pace] = info['failure'], min(pressures), len(scores), env.operation.time
        env.close()
    assert ends[1.0][0] == 'time' and ends[1.0][1] > 80.0
    assert ends[60.0][0] == 'vitals' and ends[60.0][1] < 65.0 and ends[60.0][2] > 3
    # 65 mmHg is the pressure for a minute of the body's own time, a second of the operation's.
    assert 1.5 < ends[60.0][3] < 5.0


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
