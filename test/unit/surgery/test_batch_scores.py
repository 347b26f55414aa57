# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Scores of many patients are those of each alone, at every limit of the tables too."""

import dataclasses

from fdrl_ros.surgery.patient.batch_scores import BatchScores
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.patient.labs import draw_labs, Labs
from fdrl_ros.surgery.patient.physiology import Physiology
from fdrl_ros.surgery.patient.scores import LOW_PRESSURE, OXYGEN, PULSE, RATE, SATURATION_RATIO
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np

PATIENT = public_cohort(0).patient(0)
BODIES = st.tuples(
    st.floats(0.0, 1.0),
    st.floats(4.0, 200.0) | st.just(LOW_PRESSURE),
    st.floats(35.0, 166.0) | st.sampled_from(PULSE[0]),
    st.floats(0.0, 100.0) | st.sampled_from(OXYGEN[0]),
    st.floats(0.0, 80.0) | st.sampled_from(RATE[0]),
    st.floats(0.0, 90.0),
)


def hold(scores, bodies):
    """Compare a batch with its bodies, put into its rows before, as they are now."""
    vitals = np.array([each.values() for each in bodies]).T
    news2, sofa = scores.of(vitals, np.array([each.stroke for each in bodies]))
    assert news2.tolist() == [each.news2().total for each in bodies]
    assert sofa.tolist() == [each.sofa().total for each in bodies]
    return sofa


@settings(max_examples=100, deadline=None)
@given(st.lists(BODIES, min_size=2, max_size=6), st.integers(0, 99))
def test_scores_of_a_batch_are_those_of_each_patient_alone(people, seed):
    rng, bodies = np.random.default_rng(seed), []
    scores = BatchScores(len(people) + 1)
    for row, (severity, *vitals, stroke) in enumerate(people):
        labs = draw_labs(rng, severity)
        body = Physiology(dataclasses.replace(PATIENT, labs=labs))
        scores.put(row, body)
        body.pressure, body.heart, body.saturation, body.breathing = vitals
        body.stroke = stroke
        bodies.append(body)
    scores.keep(np.arange(len(people))[::-1])
    hold(scores, bodies[::-1])


def test_a_ratio_of_saturation_and_oxygen_counts_up_to_its_limit():
    body = Physiology(dataclasses.replace(PATIENT, labs=Labs(inspired_oxygen=0.25)))
    scores = BatchScores(1)
    scores.put(0, body)
    for limit, points in zip(SATURATION_RATIO, (4, 3, 2, 1), strict=True):
        for body.saturation, more in ((0.25 * limit, 0), (np.nextafter(0.25 * limit, 100.0), 1)):
            assert hold(scores, [body]).tolist() == [points - more]
