# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A live video: the same as four frames at once, the right four, and a new beginning when due."""

from fdrl_ros.errors import RecordsError
from fdrl_ros.segmentation.network.segmenter import Segmenter
from fdrl_ros.segmentation.network.sizes import SegmenterSettings
from fdrl_ros.segmentation.network.streaming import likeliest, Stream
from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
import torch

TEXT = np.random.default_rng(0).normal(size=8).astype(np.float32)
FRAMES = np.random.default_rng(1).integers(0, 256, (24, 32, 64, 3), np.uint8)


@pytest.fixture(scope='module')
def segmenter():
    made = Segmenter(SegmenterSettings(text=8))
    with torch.no_grad():  # as after training: earlier frames and text matter
        made.temporal.v.weight.mul_(10.0)
        made.head.fc.weight.mul_(4.0)
    return made


def together(segmenter, numbers):
    """Segment four frames in one pass."""
    clip = torch.from_numpy(FRAMES[numbers]).permute(0, 3, 1, 2)[None] / 255.0
    with torch.no_grad():
        return segmenter(clip, torch.from_numpy(TEXT)[None])[0].softmax(0).numpy()


def check(segmenter, found, numbers):
    expected = together(segmenter, numbers)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-5)
    assert found.labels.dtype == np.uint8
    np.testing.assert_array_equal(found.labels, found.probabilities.argmax(0))


@pytest.mark.parametrize('rate', [5, 10, 15])
def test_a_stream_gives_what_one_pass_over_four_frames_gives(segmenter, rate):
    stream, step = Stream(segmenter, TEXT), rate / 5
    difference = together(segmenter, [0, 0, 0, 9]) - together(segmenter, [9] * 4)
    assert np.abs(difference).max() > 1e-3
    for number in range(14):
        found = stream.segment(FRAMES[number], 100.0 + number / rate)
        check(segmenter, found, [max(0, int(number - i * step)) for i in (3, 2, 1, 0)])


def test_of_frames_at_odd_times_the_nearest_count(segmenter):
    stream = Stream(segmenter, TEXT)
    for number, stamp in enumerate((0.0, 0.13, 0.31, 0.46, 0.55, 0.70)):
        found = stream.segment(FRAMES[number], stamp)
    check(segmenter, found, [1, 2, 3, 5])  # nearest to 0.1, 0.3 and 0.5 s


@pytest.mark.parametrize('stamp', [0.9, 0.3, 0.4])
def test_a_gap_and_a_step_back_begin_anew(segmenter, stamp):
    stamp += 0.2 if stamp > 0.5 else 0.0
    stream = Stream(segmenter, TEXT)
    for number, earlier in enumerate((0.0, 0.2, 0.4)):
        stream.segment(FRAMES[number], earlier)
    check(segmenter, stream.segment(FRAMES[7], stamp), [7] * 4)
    assert stream.kept == 1


def test_another_size_and_an_order_begin_anew(segmenter):
    stream = Stream(segmenter, TEXT)
    stream.segment(FRAMES[0, :, :32], 0.0)
    check(segmenter, stream.segment(FRAMES[1], 0.2), [1] * 4)
    stream.begin_anew()
    check(segmenter, stream.segment(FRAMES[2], 0.4), [2] * 4)


@given(st.lists(st.floats(1e-5, 0.3), min_size=1, max_size=30))
@settings(max_examples=10, deadline=None)
def test_memory_is_bounded_at_any_rate(segmenter, gaps):
    stream, time = Stream(segmenter, TEXT), 0.0
    frame = FRAMES[0, :, :32]
    for number in range(100):
        time += gaps[number % len(gaps)]
        stream.segment(frame, time)
        assert 1 <= stream.kept <= 62


@pytest.mark.parametrize('size', [(31, 64), (17, 33), (32, 40), (1, 1)])
def test_frames_of_any_size_are_segmented_as_if_their_edges_went_on(segmenter, size):
    height, width = size
    stream, padded = Stream(segmenter, TEXT), Stream(segmenter, TEXT)
    for number in range(3):
        frame = FRAMES[number, :height, :width]
        rows = np.minimum(np.arange(32), height - 1)
        columns = np.minimum(np.arange(32 if width <= 32 else 64), width - 1)
        found = stream.segment(frame, 0.2 * number)
        expected = padded.segment(frame[rows][:, columns], 0.2 * number).probabilities
        np.testing.assert_allclose(
            found.probabilities, expected[:, :height, :width], rtol=0, atol=1e-6
        )
        np.testing.assert_array_equal(found.labels, found.probabilities.argmax(0))
    assert found.labels.shape == size and found.probabilities.shape == (4, *size)


def test_another_size_that_is_padded_alike_begins_anew(segmenter):
    stream = Stream(segmenter, TEXT)
    stream.segment(FRAMES[0, :31], 0.0)
    check(segmenter, stream.segment(FRAMES[1], 0.2), [1] * 4)


def test_bad_frames_are_refused_and_the_video_goes_on(segmenter):
    stream = Stream(segmenter, TEXT)
    stream.segment(FRAMES[0], 0.0)
    for frame, stamp, words in (
        (FRAMES[1].astype(np.float32), 0.2, 'float32'),
        (FRAMES[1, :, :, :2], 0.2, 'expected uint8'),
        (FRAMES[1, :0], 0.2, 'expected uint8'),
        (FRAMES[1], np.nan, 'finite time'),
    ):
        with pytest.raises(RecordsError, match=words):
            stream.segment(frame, stamp)
    check(segmenter, stream.segment(FRAMES[1], 0.2), [0, 0, 0, 1])


@pytest.mark.parametrize('text', [TEXT[:7], TEXT[None], np.full(8, np.nan, np.float32)])
def test_a_text_vector_of_another_form_is_refused(segmenter, text):
    with pytest.raises(RecordsError, match='text vector'):
        Stream(segmenter, text)


def test_single_frames_need_no_history():
    segmenter = Segmenter(SegmenterSettings(temporal=False, text=8))
    stream = Stream(segmenter, TEXT)
    for number in range(3):
        found = stream.segment(FRAMES[number], 0.2 * number)
        check(segmenter, found, [number] * 4)
    assert stream.kept == 1


def test_a_stream_leaves_the_segmenter_trainable(segmenter):
    Stream(segmenter, TEXT).segment(FRAMES[0, :, :32], 0.0)
    clips = torch.rand(1, 4, 3, 32, 32)
    segmenter(clips, torch.from_numpy(TEXT)[None]).sum().backward()


@given(st.integers(0, 1000))
def test_the_likeliest_part_is_the_first_greatest(seed):
    logits = torch.from_numpy(np.random.default_rng(seed).integers(-2, 3, (4, 5, 3)))
    assert torch.equal(likeliest(logits).long(), logits.argmax(0))
