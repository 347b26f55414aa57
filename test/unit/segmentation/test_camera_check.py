# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A camera that shows nothing is told from one that works, in the pictures of every site."""

from fdrl_ros.errors import RecordsError
from fdrl_ros.segmentation.camera_check import (
    CameraCheck,
    CameraFault,
    CameraSettings,
    cell_brightness,
    CELLS,
    unevenness,
)
from fdrl_ros.segmentation.scenes import site_clip
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

PERIOD = 0.1
USUAL = CameraSettings(rate=10.0)


def scene(number: int = 0, size: int = 128) -> np.ndarray:
    return site_clip('A', 5, number, frames=1, size=size).frames[0]


def covered(brightness: float, noise: float, seed: int = 0) -> np.ndarray:
    """Return what a lamp shows on something red right before the lens, darker to the edge."""
    across = np.linspace(-0.5, 0.5, 128)
    light = brightness * (1.0 - 1.2 * (across[:, None] ** 2 + across**2))
    noisy = np.random.default_rng(seed).normal(0.0, noise, (128, 128, 3))
    return np.clip(light[..., None] * (1.0, 0.3, 0.25) + noisy, 0, 255).astype(np.uint8)


@pytest.mark.parametrize('site', 'ABCDE')
def test_pictures_of_every_site_show_something(site):
    check = CameraCheck(USUAL, 0.0)
    for number in range(3):
        for frame in site_clip(site, 1, number, frames=2, size=128).frames:
            assert check.check(frame) is None


@pytest.mark.parametrize(
    ('picture', 'found'),
    [
        (np.zeros((64, 64, 3), np.uint8), CameraFault.DARK),
        (scene() // 10, CameraFault.DARK),
        (np.full((64, 64, 3), 200, np.uint8), CameraFault.COVERED),
        (covered(250.0, 0.0), CameraFault.COVERED),
        (covered(250.0, 8.0), CameraFault.COVERED),
        (covered(90.0, 8.0), CameraFault.COVERED),
    ],
)
def test_darkness_and_a_covered_lens_are_told_in_their_first_picture(picture, found):
    check = CameraCheck(USUAL, 0.0)
    assert check.check(scene()) is None
    assert check.check(picture) is found
    assert check.check(scene(1)) is None, 'it ends with the next picture'


@pytest.mark.parametrize('repeats', [2, 3])
def test_a_frozen_camera_is_told_by_so_many_equal_pictures(repeats):
    check = CameraCheck(CameraSettings(repeats=repeats), 0.0)
    told = [check.check(scene()) for _ in range(repeats + 1)]
    assert told == [None] * (repeats - 1) + [CameraFault.FROZEN] * 2
    other = scene()
    other[3, 5, 1] ^= 1
    assert check.check(other) is None, 'one pixel is enough'


def test_without_repeats_nothing_is_frozen():
    check = CameraCheck(CameraSettings(repeats=0), 0.0)
    assert {check.check(scene()) for _ in range(9)} == {None}


def test_a_dead_camera_is_told_within_a_period_after_the_picture_that_is_missed():
    check = CameraCheck(USUAL, 7.0)
    check.note_arrival(8.0)
    assert not check.overdue(8.0 + PERIOD)
    assert check.overdue(8.0 + 2 * PERIOD)
    check.note_arrival(9.0)
    assert not check.overdue(9.0 + PERIOD)


def test_a_camera_that_never_began_is_dead_and_a_clock_that_was_set_back_begins_anew():
    check = CameraCheck(USUAL, 7.0)
    assert not check.overdue(7.0) and check.overdue(7.2)
    assert not check.overdue(1.0) and check.overdue(1.2)


@given(st.integers(CELLS, 70), st.integers(CELLS, 70), st.integers(0, 255))
def test_cells_hold_the_mean_brightness_whatever_the_size(height, width, level):
    flat = np.full((height, width, 3), level, np.uint8)
    cells = cell_brightness(flat)
    assert cells.shape == (CELLS, CELLS)
    np.testing.assert_allclose(cells, level)
    assert unevenness(cells) == 0.0


def test_cells_are_means_over_their_pixels_and_colours():
    picture = np.random.default_rng(2).integers(0, 256, (32, 48, 3)).astype(np.uint8)
    direct = picture.reshape(16, 2, 16, 3, 3).mean(axis=(1, 3, 4))
    np.testing.assert_allclose(cell_brightness(picture), direct)


def test_a_picture_smaller_than_its_cells_is_refused():
    with pytest.raises(RecordsError, match='picture of 8 x 64 pixels: expected 16 at least'):
        CameraCheck(USUAL, 0.0).check(np.zeros((8, 64, 3), np.uint8))
