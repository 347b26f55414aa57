# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl draw`: what is drawn can be opened, moves, and a place that cannot be written is told."""

from pathlib import Path

from click.testing import CliRunner
from fdrl_ros.benchmark.pictures import draw_procedures, HEIGHT, WIDTH
from fdrl_ros.cli.commands import main
from fdrl_ros.env.settings import WorldSettings
from fdrl_ros.env.state import PROCEDURE_NAMES
from fdrl_ros.trainer.learner import TrainingStopped
import numpy as np
from PIL import Image, ImageChops
import pytest

PUBLISHED = Path(__file__).parents[2] / 'docs/images/procedures'
KINEMATIC = WorldSettings(mode='kinematic')


def test_expert_is_drawn_still_and_moving(tmp_path):
    still, moving = draw_procedures(tmp_path / 'new', ['reach'], moving=True, world=KINEMATIC)
    with Image.open(still) as image:
        assert image.size == (WIDTH, HEIGHT)
        assert len(image.convert('RGB').getcolors(WIDTH * HEIGHT)) > 100
    with Image.open(moving) as image:
        first = image.convert('RGB')
        image.seek(image.n_frames - 1)
        assert image.n_frames > 4
        assert ImageChops.difference(first, image.convert('RGB')).getbbox() is not None


@pytest.mark.parametrize('name', PROCEDURE_NAMES)
def test_published_pictures_are_what_the_documented_command_draws(tmp_path, name):
    """The organ with its dent, the arm and the arrow of force; rounding may move an edge."""
    (drawn,) = draw_procedures(tmp_path, [name], index=4)
    images = [
        np.asarray(Image.open(each).convert('RGB'), int)
        for each in (drawn, PUBLISHED / f'{name}.png')
    ]
    assert (abs(images[0] - images[1]).max(axis=2) > 8).mean() < 0.01


def test_drawing_stops_when_told_and_says_where_it_cannot_write(tmp_path):
    with pytest.raises(TrainingStopped):
        draw_procedures(tmp_path, ['reach'], world=KINEMATIC, stopped=lambda: True)
    (tmp_path / 'file').touch()
    for arguments, words in (
        ([str(tmp_path / 'file' / 'below')], 'cannot draw'),
        ([str(tmp_path), '--procedures', 'tonsillectomy'], 'tonsillectomy'),
    ):
        result = CliRunner().invoke(main, ['draw', *arguments])
        assert result.exit_code == 1 and words in result.output
