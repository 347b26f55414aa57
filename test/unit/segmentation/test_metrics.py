# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Dice, IoU, HD95 and ASSD agree with MONAI, with direct formulas and with numbers by hand."""

import math
import subprocess
import sys

from fdrl_ros.errors import RecordsError
from fdrl_ros.segmentation.metrics import confusion, DISTANCES, evaluate, OVERLAPS
from fdrl_ros.surgery.render.parts import BACKGROUND, JAW, PARTS, SHAFT, UNLABELLED, WRIST
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
import numpy as np
import pytest
from support.sample_size import sampled

shape = st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9))
pairs = shape.flatmap(
    lambda size: st.tuples(
        arrays(np.uint8, size, elements=st.integers(0, 3)),
        arrays(np.uint8, size, elements=st.sampled_from([0, 1, 2, 3, UNLABELLED])),
    )
)


def frame(text):
    """Make a frame out of lines of digits; x: nobody labelled the pixel."""
    rows = [[UNLABELLED if each == 'x' else int(each) for each in row] for row in text.split()]
    return np.array([rows], np.uint8)


def edge(mask):
    """Return the places of the pixels that have a neighbour which is not of the mask."""
    padded = np.pad(mask, 1)
    inner = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return np.argwhere(mask & ~inner)


def surface_distances(one, other):
    """Return the distance of each point of one edge to the nearest of the other."""
    between = np.linalg.norm(edge(one)[:, None] - edge(other)[None], axis=2)
    return between.min(axis=1)


def test_overlap_by_hand():
    found = evaluate(frame('0110 0220'), frame('0111 0002'))
    assert found.parts == PARTS[1:] == ('shaft', 'wrist', 'jaw')
    # shaft: 2 of 2 and 3; wrist: none of 2 and 1; jaw: absent from both.
    np.testing.assert_array_equal(found.measures['dice'], [[2 * 2 / 5, 0.0, math.nan]])
    np.testing.assert_array_equal(found.measures['iou'], [[2 / 3, 0.0, math.nan]])
    assert found.measures.keys() == {*OVERLAPS}


def test_pixels_that_nobody_labelled_count_for_nothing():
    found = evaluate(frame('1123 3321'), frame('11xx x0xx'))
    np.testing.assert_array_equal(found.measures['dice'], [[1.0, math.nan, 0.0]])
    nothing = evaluate(frame('123'), frame('xxx'))
    assert np.isnan(nothing.measures['dice']).all() and math.isnan(nothing.overall('dice'))


def test_a_binary_evaluation_asks_for_any_part():
    found = evaluate(frame('0123 0000'), frame('3210 00xx'), binary=True)
    assert found.parts == ('instrument',)
    assert found.measures['dice'] == pytest.approx(2 * 2 / 6)
    assert found.measures['iou'] == pytest.approx(2 / 4)


def test_distances_by_hand():
    predicted, labels = np.zeros((2, 1, 12, 20), np.uint8)
    predicted[0, 5, 2:12], labels[0, 5, 2:15] = SHAFT, SHAFT  # a line, and three pixels more
    predicted[0, 0, 0] = WRIST
    found = evaluate(predicted, labels, distances=True)
    assert found.measures.keys() == {*OVERLAPS, *DISTANCES}
    # From the labels' 13 points: ten times 0, then 1, 2, 3; from the prediction's: 0.
    assert found.measures['assd'][0, 0] == pytest.approx(6 / 23)
    assert found.measures['hd95'][0, 0] == pytest.approx(np.percentile([0] * 10 + [1, 2, 3], 95))
    # The wrist is absent from the labels, the jaw from both.
    assert np.isnan(found.measures['assd'][0, 1:]).all()
    assert np.isnan(found.measures['hd95'][0, 1:]).all()
    np.testing.assert_array_equal(found.measures['dice'][0, 1:], [0.0, math.nan])


def test_means_are_over_what_is_defined_and_the_rest_is_counted():
    predicted = np.concatenate([frame('11'), frame('20'), frame('00')])
    labels = np.concatenate([frame('10'), frame('22'), frame('00')])
    found = evaluate(predicted, labels)
    assert len(found) == 3
    np.testing.assert_array_equal(found.mean('iou'), [0.5, 0.5, math.nan])
    np.testing.assert_array_equal(found.undefined('iou'), [2, 2, 3])
    assert found.overall('iou') == 0.5
    none = evaluate(np.zeros((0, 4, 4), np.uint8), np.zeros((0, 4, 4), np.uint8))
    assert len(none) == 0 and math.isnan(none.overall('dice'))


@given(pairs)
def test_the_confusion_matrix_counts_every_labelled_pixel(pair):
    predicted, labels = pair
    matrix = confusion(predicted, labels)
    for number, counts in enumerate(matrix):
        for label in range(4):
            for part in range(4):
                both = (labels[number] == label) & (predicted[number] == part)
                assert counts[label, part] == both.sum()


@given(pairs)
def test_measures_stay_in_their_ranges_and_dice_is_a_function_of_iou(pair):
    found = evaluate(*pair).measures
    dice, iou = found['dice'], found['iou']
    np.testing.assert_array_equal(np.isnan(dice), np.isnan(iou))
    defined = ~np.isnan(dice)
    assert ((iou[defined] >= 0) & (dice[defined] <= 1)).all()
    np.testing.assert_allclose(dice[defined], 2 * iou[defined] / (1 + iou[defined]))


@given(pairs)
def test_distances_are_those_between_all_points_of_both_edges(pair):
    predicted, labels = pair
    found = evaluate(predicted, labels, distances=True)
    for column, part in enumerate((SHAFT, WRIST, JAW)):
        for number in range(len(predicted)):
            truth = labels[number] == part
            guess = (predicted[number] == part) & (labels[number] != UNLABELLED)
            hd95, assd = (found.measures[each][number, column] for each in DISTANCES)
            if not (guess.any() and truth.any()):
                assert math.isnan(hd95) and math.isnan(assd)
                continue
            ways = surface_distances(guess, truth), surface_distances(truth, guess)
            assert hd95 == pytest.approx(max(np.percentile(each, 95) for each in ways))
            assert assd == pytest.approx(np.concatenate(ways).mean())


@settings(max_examples=sampled(100, 20))
@given(pairs)
@pytest.mark.filterwarnings('ignore::FutureWarning', 'ignore:.*is all 0')
def test_measures_are_those_of_monai(pair):
    monai = pytest.importorskip('monai.metrics')
    predicted, labels = pair
    found = evaluate(predicted, labels, distances=True).measures
    masks = [
        np.stack([(each == part) & (labels != UNLABELLED) for part in range(1, 4)], axis=1)
        for each in (predicted, labels)
    ]
    theirs = {
        'dice': monai.compute_dice(*map(torch_of, masks), ignore_empty=True),
        'iou': monai.compute_iou(*map(torch_of, masks), ignore_empty=False),
        'hd95': monai.compute_hausdorff_distance(*masks, include_background=True, percentile=95),
        'assd': monai.compute_average_surface_distance(
            *masks, include_background=True, symmetric=True
        ),
    }
    guess, truth = (each.any(axis=(2, 3)) for each in masks)
    for measure, values in theirs.items():
        # Where a part is absent, MONAI's measures return 1, infinity or NaN, each in its own way.
        defined = guess & truth if measure in DISTANCES else truth
        np.testing.assert_allclose(found[measure][defined], values.numpy()[defined], rtol=1e-5)


def torch_of(masks):
    return pytest.importorskip('torch').tensor(masks)


@pytest.mark.parametrize(
    ('predicted', 'labels', 'words'),
    [
        (frame('01'), frame('012'), r'\(1, 1, 2\), labels \(1, 1, 3\): expected two of the same'),
        (frame('04'), frame('00'), r'predicted \[4\]: expected 0 to 3$'),
        (frame('0x'), frame('00'), r'predicted \[255\]: expected 0 to 3$'),
        (frame('00'), frame('05'), r'labels \[5\]: expected 0 to 3, or 255'),
        (frame('00') - np.int64(1), frame('00'), r'predicted \[-1\]'),
        (frame('00') * 0.5, frame('00'), 'predicted float64: expected whole numbers'),
        (frame('00')[0], frame('00')[0], 'expected two of the same shape'),
    ],
)
def test_what_is_no_part_is_refused(predicted, labels, words):
    with pytest.raises(RecordsError, match=words):
        evaluate(predicted, labels)


def test_labels_of_the_background_are_no_part():
    assert BACKGROUND == 0 and evaluate(frame('00'), frame('00')).undefined('dice').sum() == 3


def test_overlap_and_readers_load_without_torch():
    look = (
        'import sys, fdrl_ros.segmentation.metrics, fdrl_ros.segmentation.readers.check; '
        'sys.exit(bool({"torch", "monai"} & {*sys.modules}))'
    )
    assert subprocess.run([sys.executable, '-c', look]).returncode == 0
