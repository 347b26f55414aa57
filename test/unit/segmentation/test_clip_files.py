# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Clips in a directory: drawn once, gone on with, read when asked for, refused when damaged."""

from dataclasses import replace
import json

from click.testing import CliRunner
from fdrl_ros.cli.commands import main
from fdrl_ros.errors import RecordsError, SettingError, StoreError, TrainingStopped
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.segmentation.clip_files import ABOUT, clip_path, ClipFiles, Drawn, make_clips
from fdrl_ros.segmentation.readers.formats import open_videos
from fdrl_ros.segmentation.scenes import site_clip
from fdrl_ros.segmentation.sheet import write_moving, write_sheet
import numpy as np
from PIL import Image
import pytest

DRAWN = Drawn('B', clips=3, frames=2, size=24, rate=5.0, seed=4)


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    directory = tmp_path_factory.mktemp('clips')
    make_clips(directory, DRAWN)
    return directory


def test_clips_are_read_as_they_were_drawn(made):
    files = ClipFiles(made)
    assert len(files) == 3 and files.drawn == DRAWN
    expected = site_clip('B', 4, 2, frames=2, size=24, rate=5.0)
    for clip in (files[2], files[-1], files[1:][1]):
        assert np.array_equal(clip.frames, expected.frames)
        assert np.array_equal(clip.labels, expected.labels)
        assert (clip.name, clip.rate) == (expected.name, 5.0)
    assert [each.name for each in files] == [f'site_B/{number:04d}' for number in range(3)]
    with pytest.raises(IndexError):
        files[3]


def test_stopped_work_goes_on_where_it_was(tmp_path):
    reports = []
    with pytest.raises(TrainingStopped):
        make_clips(tmp_path, DRAWN, Caller(reports.append, lambda: len(reports) == 2))
    with pytest.raises(RecordsError, match='2 of 3 clips are there'):
        ClipFiles(tmp_path)
    kept = clip_path(tmp_path, 0).stat().st_mtime_ns
    assert len(make_clips(tmp_path, DRAWN)) == 3
    assert clip_path(tmp_path, 0).stat().st_mtime_ns == kept


def test_damaged_and_missing_clips_are_drawn_anew(made, tmp_path):
    before = [clip.frames for clip in make_clips(tmp_path, DRAWN)]
    shortened(clip_path(tmp_path, 0))
    clip_path(tmp_path, 1).unlink()
    with pytest.raises(RecordsError, match='holds made-up clips'):
        open_videos(tmp_path)
    after = [clip.frames for clip in make_clips(tmp_path, DRAWN)]
    assert all(map(np.array_equal, before, after))


def test_other_clips_are_not_mixed_in(made, tmp_path):
    for name, value in (('seed', 5), ('site', 'C'), ('frames', 3), ('clips', 9)):
        with pytest.raises(StoreError, match='holds other clips'):
            make_clips(made, replace(DRAWN, **{name: value}))
    with pytest.raises(SettingError, match='site'):
        make_clips(tmp_path / 'new', replace(DRAWN, site='Z'))
    (tmp_path / 'file').touch()
    with pytest.raises(StoreError, match='cannot write'):
        make_clips(tmp_path / 'file', DRAWN)


def saved(path, **changed):
    clip = site_clip('B', 4, 1, frames=2, size=24)
    arrays = {'frames': clip.frames, 'labels': clip.labels, 'rate': 5.0, 'name': 'x', **changed}
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})


def shortened(path):
    path.write_bytes(path.read_bytes()[:-200])


@pytest.mark.parametrize(
    ('damage', 'words'),
    [
        (lambda path: path.write_bytes(b'no clip'), 'cannot be read'),
        (shortened, 'cannot be read'),
        (lambda path: saved(path, labels=None), 'cannot be read'),
        (lambda path: saved(path, labels=np.zeros((2, 24, 23), np.uint8)), 'do not fit'),
        (lambda path: saved(path, labels=np.full((2, 24, 24), 9, np.uint8)), r'labels \[9\]'),
        (lambda path: saved(path, frames=np.zeros((2, 24, 24, 3))), 'float64'),
        (lambda path: saved(path, rate=7.0), 'expected'),
    ],
)
def test_damage_is_told_with_the_name_of_the_file(tmp_path, damage, words):
    make_clips(tmp_path, DRAWN)
    damage(clip_path(tmp_path, 1))
    files = ClipFiles(tmp_path)
    assert files[0].rate == 5.0
    with pytest.raises(RecordsError, match=words) as caught:
        files[1]
    assert '00001.npz' in str(caught.value)


@pytest.mark.parametrize('text', ['', '[]', '{"format": "x"}', '{"format": 1'])
def test_what_is_no_directory_of_clips_is_refused(tmp_path, text):
    with pytest.raises(RecordsError, match='cannot be read'):
        ClipFiles(tmp_path)
    (tmp_path / ABOUT).write_text(text)
    with pytest.raises(RecordsError, match='fdrl video make'):
        ClipFiles(tmp_path)


def test_commands_draw_and_show(tmp_path):
    def run(*words):
        return CliRunner().invoke(main, ['video', *map(str, words)])

    clips = tmp_path / 'clips'
    few = ('--clips', 2, '--frames', 2, '--size', 24)
    result = run('make', clips, '--site', 'D', *few)
    assert result.exit_code == 0 and 'Hysterectomy' in result.output
    assert json.loads((clips / ABOUT).read_text())['surgery'] == 'Hysterectomy'
    for words in ((clips,), ('--site', 'E', '--size', 24)):
        sheet = tmp_path / 'sheet.png'
        assert run('show', *words, '--clips', 2, '--columns', 2, '--save', sheet).exit_code == 0
        with Image.open(sheet) as image:
            assert image.size == (48, 96)
    assert run('show', clips, '--save', tmp_path / 'moving.gif').exit_code == 0
    with Image.open(tmp_path / 'moving.gif') as image:
        assert image.n_frames == 2 and image.size == (48, 24)
    for words, said in (
        (('show',), 'site'),
        (('show', clips, '--site', 'A'), 'site'),
        (('show', clips, '--first', 2), 'first'),
        (('show', clips, '--save', tmp_path / 'x.txt'), 'save'),
        (('show', tmp_path), 'cannot be read'),
        (('make', clips, '--site', 'A', *few), 'holds other clips'),
    ):
        result = run(*words)
        assert result.exit_code == 1 and said in result.output, result.output


def test_pictures_that_cannot_be_written_are_told(tmp_path):
    clip = site_clip('A', 0, 0, frames=2, size=16)
    (tmp_path / 'file').touch()
    path = tmp_path / 'file' / 'below.gif'
    for write in (lambda: write_sheet(path, [clip], 2), lambda: write_moving(path, clip)):
        with pytest.raises(StoreError, match='cannot write'):
            write()
