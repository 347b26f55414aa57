# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`benchmark/segmentation.py`: both ways do the same work, and every promised figure has a row."""

import pytest


@pytest.fixture
def work(module):
    return module('segmentation')


@pytest.mark.parametrize('kind', ['stream', 'naive'])
def test_work_counts_frames(work, kind):
    repeated = getattr(work, kind)('tiny', 32)
    assert [repeated() for _ in range(5)] == [1] * 5


def test_a_training_step_counts_one(work):
    assert work.step('tiny')() == 1


def test_every_promised_figure_has_a_row(work):
    names = {row.name for row in (*work.ROWS, *work.UPLOADS)}
    assert names >= {
        'tiny_128_fps',
        'b0_128_fps',
        'b0_256_fps',
        'cached_over_naive',
        'upload_fraction_queries',
        'upload_fraction_channels',
    }
    assert {row.own for row in work.ROWS} <= work.measurements().keys()


def test_uploads_are_fractions_and_megabytes(work):
    whole, megabytes = work.shared('tiny', 'none')
    part, less = work.shared('tiny', 'queries')
    assert whole == 1.0 and less == pytest.approx(part * megabytes)
