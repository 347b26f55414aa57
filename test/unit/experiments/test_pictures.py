# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl draw`: what is drawn can be opened, moves, and a place that cannot be written is told."""

from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner
from fdrl_ros.cli.commands import main
from fdrl_ros.errors import TrainingStopped
from fdrl_ros.experiments.plots.pictures import draw_procedures, HEIGHT, WIDTH
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
from fdrl_ros.surgery.patient.cohort import mixture
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
from PIL import Image, ImageChops
import pytest
from support.sample_size import sampled

PUBLISHED = Path(__file__).parents[3] / 'docs/images/procedures'
KINEMATIC = WorldSettings(mode='kinematic')


def patients(procedure, index=0):
    return [mixture(3, 0.5, 1).patient(index, procedure=procedure)]


def test_expert_is_drawn_still_and_moving(tmp_path):
    still, moving = draw_procedures(
        tmp_path / 'new', patients('reach'), moving=True, world=replace(KINEMATIC, horizon=8)
    )
    with Image.open(still) as image:
        assert image.size == (WIDTH, HEIGHT)
        assert len(image.convert('RGB').getcolors(WIDTH * HEIGHT)) > 100
    with Image.open(moving) as image:
        first = image.convert('RGB')
        image.seek(image.n_frames - 1)
        assert image.n_frames > 4
        assert ImageChops.difference(first, image.convert('RGB')).getbbox() is not None
        corners = []  # tissue breathes there, and nothing flickers
        for number in range(image.n_frames):
            image.seek(number)
            corner = image.convert('RGB').crop((0, 0, WIDTH // 4, HEIGHT // 4))
            corners.append(np.asarray(corner, float).mean(axis=(0, 1)))
        assert np.abs(np.diff(corners, axis=0)).max() < 3.0


def test_the_force_on_the_tip_can_be_seen():
    pixels = np.asarray(Image.open(PUBLISHED / 'palpation.png').convert('RGB'), int)
    red, green, blue = np.moveaxis(pixels, 2, 0)
    assert ((red > 180) & (green > 140) & (blue < 60)).sum() > 200  # the arrow


@pytest.mark.parametrize('name', PROCEDURE_NAMES[: sampled(len(PROCEDURE_NAMES), 2)])
def test_published_pictures_are_what_the_documented_command_draws(tmp_path, name):
    """The organ with its dent, the arm and the arrow of force; rounding may move an edge."""
    (drawn,) = draw_procedures(tmp_path, patients(name, 4))
    images = [
        np.asarray(Image.open(each).convert('RGB'), int)
        for each in (drawn, PUBLISHED / f'{name}.png')
    ]
    assert (abs(images[0] - images[1]).max(axis=2) > 8).mean() < 0.01


def test_drawing_stops_when_told_and_says_where_it_cannot_write(tmp_path):
    with pytest.raises(TrainingStopped):
        stopped = Caller(stopped=lambda: True)
        draw_procedures(tmp_path, patients('reach'), world=KINEMATIC, caller=stopped)
    (tmp_path / 'file').touch()
    for arguments, words in (
        ([str(tmp_path / 'file' / 'below')], 'cannot draw'),
        ([str(tmp_path), '--procedures', 'tonsillectomy'], 'tonsillectomy'),
    ):
        result = CliRunner().invoke(main, ['draw', *arguments])
        assert result.exit_code == 1 and words in result.output
