# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Readers of real video: what made-up collections of the same layout hold, and what is refused."""

import json
import shutil

from fdrl_ros.errors import RecordsError, SettingError, TrainingStopped
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.segmentation.readers import grasp, video
from fdrl_ros.segmentation.readers.check import check_videos
from fdrl_ros.segmentation.readers.formats import find_videos, FORMATS, open_videos
from fdrl_ros.segmentation.readers.mask_code import MaskCode
from fdrl_ros.segmentation.readers.video import Picture, Video, VideoClips
from fdrl_ros.surgery.render.parts import JAW, PARTS, SHAFT, UNLABELLED, WRIST
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
from PIL import Image
import pytest
from support.video_trees import parts, picture, SIZE, TREES, write


@pytest.fixture(params=TREES)
def name(request):
    return request.param


@pytest.fixture
def tree(name, tmp_path):
    TREES[name](tmp_path)
    return tmp_path


@pytest.fixture
def tree_of(tmp_path):
    def make(name):
        TREES[name](tmp_path)
        return tmp_path

    return make


def faults_of(root, form='auto'):
    """Return all that is wrong with a collection, by names of files and by their pixels."""
    return check_videos(find_videos(root, form)[1]).faults


def test_every_format_has_a_tree():
    assert FORMATS.keys() == TREES.keys()


def test_a_collection_is_recognised_whole_and_split_as_its_owners_do(name, tree):
    found_name, found = find_videos(tree)
    assert found_name == name and not faults_of(tree)
    split = {each: open_videos(tree, name, split=each) for each in ('training', 'testing')}
    assert {len(clips) for clips in split.values()} == {2 if name == 'grasp' else 1}
    assert len(open_videos(tree)) == len(found.videos) == sum(map(len, split.values()))
    for each, clips in split.items():
        assert all(clip.name.startswith(f'{each}/') for clip in clips)


@pytest.mark.parametrize(
    ('form', 'training', 'testing'),
    [
        ('endovis2017', [0, 1, 2], [3, 4]),
        ('endovis2018', [0, 1], [2, 3]),
    ],
)
def test_frames_and_parts_of_endovis_are_read_pixel_by_pixel(form, training, testing, tree_of):
    root = tree_of(form)
    for split, seeds in (('training', training), ('testing', testing)):
        (clip,) = open_videos(root, form, split=split)
        assert clip.rate == 2.0
        np.testing.assert_array_equal(clip.frames, [picture(seed) for seed in seeds])
        np.testing.assert_array_equal(clip.labels, [parts(seed) for seed in seeds])


def test_frames_of_sar_rarp50_are_at_5_hz_of_which_each_second_has_labels(tree_of):
    root = tree_of('sar_rarp50')
    clip = open_videos(root, split='testing')[0]
    assert clip.rate == 5.0
    np.testing.assert_array_equal(clip.frames, [picture(21 + each) for each in range(0, 21, 2)])
    for number, labels in enumerate(clip.labels):
        expected = UNLABELLED if number % 5 else parts(21 + 2 * number)
        np.testing.assert_array_equal(labels, np.broadcast_to(expected, SIZE))
    assert [len(open_videos(root, rate=rate)[0].frames) for rate in (60, 4, 1, 0.1)] == [
        21,
        11,
        3,
        3,
    ]


def test_a_clip_of_grasp_is_a_labelled_frame_with_its_history(tree_of):
    root = tree_of('grasp')
    clips = open_videos(root, split='training')
    assert [clip.name for clip in clips] == [
        'training/CASE001/000000003',
        'training/CASE001/000000039',
    ]
    assert [clip.frames.shape[0] for clip in clips] == [1, 4] and clips[1].rate == 5.0
    labels = clips[1].labels
    assert (labels[:-1] == UNLABELLED).all()
    np.testing.assert_array_equal(labels[-1] == UNLABELLED, parts(39) > 0)
    assert set(np.unique(labels[-1])) == {0, UNLABELLED}
    any_part = VideoClips(grasp.find(root, 5.0, instrument=SHAFT).videos)[1]
    np.testing.assert_array_equal(any_part.labels[-1] == SHAFT, parts(39) > 0)


def test_only_frames_that_are_asked_for_are_read(tree_of, monkeypatch):
    clips = open_videos(tree_of('endovis2017'), split='training')
    read, load = [], video._load

    def counting(path):
        read.append(path.name)
        return load(path)

    monkeypatch.setattr(video, '_load', counting)
    assert len(clips) == len(clips[:1]) == 1 and len(clips[1:]) == 0 and not read
    part = clips.read(0, 1, 2)
    assert set(read) == {'frame001.png'}
    np.testing.assert_array_equal(part.frames, clips[0].frames[1:2])
    with pytest.raises(RecordsError, match='no frame from 7 to None, of 3 frames'):
        clips.read(0, 7)
    with pytest.raises(IndexError):
        clips[1]


def test_frames_shrink_by_area_and_labels_by_the_nearest_pixel(tree_of):
    root = tree_of('endovis2018')
    clip = open_videos(root, split='training', size=(SIZE[0] // 2, SIZE[1] // 4))[0]
    blocks = picture(0).reshape(SIZE[0] // 2, 2, SIZE[1] // 4, 4, 3).mean(axis=(1, 3))
    assert np.abs(clip.frames[0] - blocks).max() <= 1.0
    np.testing.assert_array_equal(clip.labels[0], parts(0)[1::2, 2::4])
    assert open_videos(root, size=16)[0].frames.shape == (2, 16, 16, 3)


def test_endovis_2017_is_cropped_to_the_picture_of_the_camera(tmp_path):
    frame, mask = np.zeros((1080, 1920, 3), np.uint8), np.zeros((1080, 1920), np.uint8)
    frame[28:1052, 320:1600], mask[28, 320], mask[1051, 1599] = 9, 10, 30
    folder = tmp_path / 'instrument_dataset_4'
    write(folder / 'left_frames' / 'frame000.png', frame)
    write(folder / 'ground_truth' / 'Vessel_Sealer_labels' / 'frame000.png', mask)
    (clip,) = open_videos(tmp_path)
    assert clip.frames.shape == (1, 1024, 1280, 3) and (clip.frames == 9).all()
    assert (clip.labels[0, 0, 0], clip.labels[0, -1, -1]) == (SHAFT, JAW)


MASKS = {
    'endovis2017': 'training/instrument_dataset_1/ground_truth/Left_Prograsp_Forceps_labels/'
    'frame001.png',
    'endovis2018': 'miccai_challenge_2018_release_1/seq_1/labels/frame000.png',
    'sar_rarp50': 'train1/video_01/segmentation/000000060.png',
    'grasp': 'GraSP_30fps/annotations/segmentations/CASE001/000000039.png',
}
PICTURES = {
    'endovis2017': 'training/instrument_dataset_1/left_frames/frame001.png',
    'endovis2018': 'miccai_challenge_2018_release_1/seq_1/left_frames/frame000.png',
    'sar_rarp50': 'train1/video_01/rgb/000000060.png',
    'grasp': 'GraSP_30fps/frames/CASE001/000000039.jpg',
}


def test_a_missing_mask_is_named(name, tree):
    (tree / MASKS[name]).unlink()
    (fault,) = faults_of(tree)
    assert fault.startswith(f'{tree / MASKS[name]}: missing, the mask of')
    with pytest.raises(RecordsError, match='missing, the mask of .*`fdrl video check'):
        open_videos(tree)


def test_a_mask_without_its_frame_is_named(name, tree):
    (tree / PICTURES[name]).unlink()
    if name == 'endovis2017':  # nothing says that there was one
        assert not faults_of(tree)
        return
    (fault,) = faults_of(tree)
    assert fault.startswith(f'{tree / PICTURES[name]}: missing, the frame of')


def test_a_picture_that_is_none_is_named(name, tree):
    for path in (tree / MASKS[name], tree / PICTURES[name]):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        (fault,) = faults_of(tree)
        assert fault.startswith(f'{path}: no readable picture: ')
        clips = open_videos(tree, split='training')  # names of files alone are in order
        with pytest.raises(RecordsError, match='no readable picture'):
            list(clips)
        path.write_bytes(whole)
    (tree / MASKS[name]).write_text('no picture')
    assert 'no readable picture' in faults_of(tree)[0]


def test_a_mask_of_another_size_is_named(name, tree):
    with Image.open(tree / MASKS[name]) as mask:
        mask.crop((0, 0, 30, 20)).save(tree / MASKS[name])
    (fault,) = faults_of(tree)
    assert fault.startswith(f'{tree / MASKS[name]}: 30 x 20 pixels: expected 32 x 24, as ')


def test_an_unknown_label_is_named(name, tree):
    if name == 'grasp':
        return  # where every value is an instrument
    with Image.open(tree / MASKS[name]) as mask:
        pixels = np.array(mask)
    pixels[3, 4] = 77
    write(tree / MASKS[name], pixels)
    (fault,) = faults_of(tree)
    value = '(77, 77, 77)' if name == 'endovis2018' else '77'
    assert fault.startswith(f'{tree / MASKS[name]}: values {value}: expected ')


def test_all_faults_are_listed(tree_of):
    root = tree_of('endovis2018')
    sequence = root / 'test_data' / 'seq_1-2020-001' / 'seq_1'
    (sequence / 'labels' / 'frame000.png').unlink()
    (sequence / 'left_frames' / 'frame001.png').write_text('no picture')
    (root / MASKS['endovis2018']).write_text('no picture')
    shutil.copytree(sequence.parent, root / 'test_data' / 'again')
    faults = faults_of(root)
    assert (
        len(faults) == 6 and sum('testing/seq_1 is there 2 times' in each for each in faults) == 1
    )
    with pytest.raises(RecordsError, match=r'\(and 2 more\)'):
        open_videos(root)


def test_pixels_are_counted(tree_of):
    contents = check_videos(find_videos(tree_of('sar_rarp50'))[1])
    assert contents.clips == {'training': 1, 'testing': 1}
    assert (contents.frames, contents.labelled) == (22, 6)
    labels = np.stack([parts(seed) for seed in (0, 10, 20, 21, 31, 41)])
    expected = {part: (labels == number).sum() for number, part in enumerate(PARTS)}
    assert contents.pixels == {**expected, 'unlabelled': 0}


def test_a_check_stops_where_the_caller_wants(tree):
    with pytest.raises(TrainingStopped):
        check_videos(find_videos(tree)[1], Caller(stopped=lambda: True))


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (lambda root: (root / 'seq_1').mkdir(), 'left_frames: no pictures'),
        (lambda root: (root / 'video_7').mkdir(), 'rgb: no pictures; extract them: rarptk unpack'),
        (
            lambda root: write(root / 'video_7/rgb/000000006.png', picture(0)),
            'segmentation: no masks',
        ),
        (
            lambda root: write(root / 'instrument_dataset_2/left_frames/frame0.png', picture(0)),
            'instrument_dataset_2: no labels: expected ground_truth/',
        ),
        (lambda root: (root / 'annotations').mkdir(), 'frames: no such folder'),
    ],
)
def test_half_a_layout_is_named(change, words, tmp_path):
    change(tmp_path)
    assert words in ' '.join(faults_of(tmp_path))


def test_names_of_sar_rarp50_are_numbers(tree_of):
    root = tree_of('sar_rarp50')
    (root / 'train1/video_01/rgb/000000060.png').rename(root / 'train1/video_01/rgb/sixty.png')
    assert 'expected names by number of the frame' in faults_of(root)[0]


@pytest.mark.parametrize(
    ('name', 'words'),
    [
        ('CASE001/000.jpg', 'expected a name of 9 digits (30 Hz) or 5 (1 Hz)'),
        ('/etc/000000001.jpg', 'expected a frame below'),
    ],
)
def test_names_that_are_none_of_grasp_are_named(name, words, tree_of):
    root = tree_of('grasp') / 'GraSP_30fps'
    table = root / 'annotations' / 'grasp_short-term_train.json'
    table.write_text(json.dumps({'images': [{'file_name': name}]}))
    (fault,) = faults_of(root)
    assert words in fault


def test_a_table_of_grasp_that_is_none_is_named(tree_of):
    root = tree_of('grasp') / 'GraSP_30fps'
    for table in ('{', '{}', '[1]', '{"images": [1]}'):
        path = root / 'annotations' / 'grasp_short-term_test.json'
        path.write_text(table)
        (fault,) = faults_of(root)
        assert fault.startswith(f'{path}: no COCO file with images: ')


@pytest.mark.parametrize(
    'table',
    [
        '{',
        '{}',
        '[{"name": "x"}]',
        '[{"name": "x", "color": 3}]',
        '[{"name": "instrument-shaft", "color": [0, 0, 0]}]',
    ],
)
def test_a_table_of_classes_that_is_none_is_named(table, tree_of):
    root = tree_of('endovis2018')
    for each in root.rglob('labels.json'):
        each.write_text(table)
    faults = ' '.join(faults_of(root))
    assert 'labels.json has the colours of ' in faults
    with pytest.raises(RecordsError):
        open_videos(root)


def test_tables_that_contradict_each_other_are_named(tree_of):
    root = tree_of('endovis2018')
    other = [{'name': 'thread', 'color': [0, 255, 0]}]
    (root / 'test_data' / 'labels.json').write_text(json.dumps(other))
    assert 'colours [(0, 255, 0)] mean another part than in' in ' '.join(faults_of(root))


def test_what_is_no_collection_is_refused_with_what_was_expected(tmp_path):
    with pytest.raises(RecordsError, match='nowhere: no such folder'):
        find_videos(tmp_path / 'nowhere')
    with pytest.raises(
        RecordsError, match='there is nothing: expected endovis2017: instrument_da'
    ):
        find_videos(tmp_path)
    TREES['grasp'](tmp_path)
    with pytest.raises(RecordsError, match='there is GraSP_30fps: expected sar_rarp50: train1/'):
        find_videos(tmp_path, 'sar_rarp50')
    TREES['sar_rarp50'](tmp_path)
    with pytest.raises(RecordsError, match='looks like sar_rarp50 and grasp: say which'):
        find_videos(tmp_path)
    assert find_videos(tmp_path, 'grasp')[0] == 'grasp'
    shutil.rmtree(tmp_path / 'test')
    with pytest.raises(RecordsError, match='no testing videos'):
        open_videos(tmp_path, 'sar_rarp50', split='testing')
    for wrong in ({'form': 'endovis'}, {'rate': 0.0}, {'rate': float('nan')}, {'size': 0}):
        with pytest.raises(SettingError):
            open_videos(tmp_path, **{'form': 'grasp', **wrong})


def test_frames_of_different_sizes_need_a_size(tree_of):
    root = tree_of('endovis2018')
    write(root / PICTURES['endovis2018'], picture(0)[:20])
    write(root / MASKS['endovis2018'], np.zeros((20, 32, 3), np.uint8))
    with pytest.raises(RecordsError, match='training/seq_1: frames of different sizes: choose'):
        open_videos(root, split='training')[0]
    assert open_videos(root, size=16)[0].frames.shape == (2, 16, 16, 3)


@pytest.mark.parametrize('mode', ['L', 'RGB', 'RGBA', 'P', 'LA', 'I;16'])
def test_grey_masks_may_be_stored_in_any_mode(mode):
    values = np.array([[0, 1], [2, 3]], np.uint8)
    mask = Image.fromarray(values)
    mask = Image.fromarray(values.astype(np.uint16)) if mode == 'I;16' else mask.convert(mode)
    assert mask.mode == mode
    code = MaskCode({0: 0, 1: JAW, 2: WRIST, 3: SHAFT})
    np.testing.assert_array_equal(code.labels(mask), [[0, JAW], [WRIST, SHAFT]])
    with pytest.raises(RecordsError, match='values 3: expected 0, 1, 2'):
        MaskCode({0: 0, 1: JAW, 2: WRIST}).labels(mask)


def test_colours_are_no_grey_values():
    with pytest.raises(RecordsError, match='colours: expected grey values'):
        MaskCode({0: 0}).labels(Image.new('RGB', (2, 2), (1, 2, 3)))


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 11), st.floats(0.1, 100.0))
def test_thinned_videos_keep_their_labels_and_are_no_slower_than_asked(count, gap, first, rate):
    frames = tuple(
        Picture(number, (number,) if number >= first and (number - first) % gap == 0 else ())
        for number in range(count)
    )
    whole = Video('v', 'training', 10.0, frames, MaskCode({0: 0}))
    thin = whole.sampled(rate)
    numbers = [each.path for each in thin.frames]
    assert len(set(np.diff(numbers))) <= 1  # evenly
    if len(numbers) > 1:
        assert thin.rate == pytest.approx(10.0 / (numbers[1] - numbers[0]))
    assert thin.rate >= min(rate, 10.0) - 1e-6
    labelled = [each for each in frames if each.masks]
    if 0 < len(labelled) < count:
        assert {*labelled} <= {*thin.frames}
