# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Small made-up collections of video, laid out as the owners of the real ones do."""

from collections.abc import Callable, Mapping
import json
from pathlib import Path

from fdrl_ros.surgery.render.parts import BACKGROUND, JAW, SHAFT, WRIST
import numpy as np
from PIL import Image

SIZE = (24, 32)
"""Height and width of the pictures."""

COLOURS = {
    'background-tissue': (0, 0, 0),
    'instrument-shaft': (0, 255, 0),
    'instrument-clasper': (0, 255, 255),
    'instrument-wrist': (125, 255, 12),
    'kidney-parenchyma': (255, 55, 0),
}
COLOUR_OF = {
    BACKGROUND: COLOURS['background-tissue'],
    SHAFT: COLOURS['instrument-shaft'],
    WRIST: COLOURS['instrument-wrist'],
    JAW: COLOURS['instrument-clasper'],
}


def parts(seed: int) -> np.ndarray:
    """Return a random part in each pixel."""
    return np.random.default_rng(seed).integers(0, 4, SIZE, dtype=np.uint8)


def picture(seed: int) -> np.ndarray:
    """Return a random colour in each pixel."""
    return np.random.default_rng(1000 + seed).integers(0, 256, (*SIZE, 3), dtype=np.uint8)


def write(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def coded(labels: np.ndarray, values: Mapping[int, object]) -> np.ndarray:
    """Return a mask with the value, or the colour, of each label."""
    return np.array([values[part] for part in sorted(values)], np.uint8)[labels]


def endovis2017(root: Path) -> None:
    """Write one training sequence of two instruments and a probe, and one test sequence."""
    values, half = {BACKGROUND: 0, SHAFT: 10, WRIST: 20, JAW: 30}, SIZE[1] // 2
    for number in range(3):
        name, folder = f'frame{number:03d}.png', root / 'training' / 'instrument_dataset_1'
        write(folder / 'left_frames' / name, picture(number))
        mask = coded(parts(number), values)
        left, right, probe = mask.copy(), mask.copy(), np.full(SIZE, 40, np.uint8)
        left[:, half:], right[:, :half] = 0, 0
        truth = folder / 'ground_truth'
        write(truth / 'Left_Prograsp_Forceps_labels' / name, left)
        write(truth / 'Right_Prograsp_Forceps_labels' / name, right)
        write(truth / 'Other_labels' / name, probe)
    values = {BACKGROUND: 0, SHAFT: 30, WRIST: 100, JAW: 255}
    for number in range(3, 5):
        name = f'frame{222 + number}.png'
        write(root / 'frames' / 'instrument_dataset_1' / 'left_frames' / name, picture(number))
        mask = np.repeat(coded(parts(number), values)[..., None], 3, axis=2)
        labels = root / 'instrument_2017_test' / 'instrument_dataset_1' / 'gt'
        write(labels / 'PartsSegmentation' / name, mask)


def endovis2018(root: Path) -> None:
    """Write a training sequence with a mask that was repaired later, and a test sequence."""
    release, test = root / 'miccai_challenge_2018_release_1', root / 'test_data'
    seed = 0
    for top, folder in ((release, release / 'seq_1'), (test, test / 'seq_1-2020-001' / 'seq_1')):
        for number in range(2):
            name = f'frame{number:03d}.png'
            write(folder / 'left_frames' / name, picture(seed))
            write(folder / 'labels' / name, coded(parts(seed), COLOUR_OF))
            seed += 1
        table = [{'name': name, 'color': colour} for name, colour in COLOURS.items()]
        (top / 'labels.json').write_text(json.dumps(table))
    table = [{'name': name, 'color': [*colour, 128]} for name, colour in COLOURS.items()]
    (test / 'labels.json').write_text(json.dumps({'classes': table}))
    write(release / 'seq_1' / 'labels' / 'frame001.png', np.full((*SIZE, 3), 7, np.uint8))
    write(root / 'repairs' / 'repairs' / 'seq_1_frame001.png', coded(parts(1), COLOUR_OF))
    shadow = root / '__MACOSX' / 'seq_2' / 'left_frames'
    shadow.mkdir(parents=True)
    (shadow / 'frame000.png').write_bytes(b'junk')
    (release / 'seq_1' / 'labels' / '._frame000.png').write_bytes(b'junk')


def sar_rarp50(root: Path) -> None:
    """Write two videos of two seconds, pictures at 10 Hz and masks at 1 Hz."""
    values, seed = {BACKGROUND: 0, SHAFT: 3, WRIST: 2, JAW: 1}, 0
    for folder in (root / 'train1' / 'video_01', root / 'test' / 'video_41'):
        for time in range(0, 121, 6):
            write(folder / 'rgb' / f'{time:09d}.png', picture(seed))
            if time % 60 == 0:
                mask = coded(parts(seed), values)
                mask[mask == 0] = np.arange((mask == 0).sum()) % 2 * 5  # thread, which is no part
                write(folder / 'segmentation' / f'{time:09d}.png', mask)
            seed += 1


def grasp(root: Path) -> None:
    """Write two cases at 30 Hz, each with a labelled frame early and one late."""
    base = root / 'GraSP_30fps'
    for word, case in (('train', 'CASE001'), ('test', 'CASE041')):
        for number in range(40):
            write(base / 'frames' / case / f'{number:09d}.jpg', picture(number))
        for number in (3, 39):
            mask = coded(parts(number), {BACKGROUND: 0, SHAFT: 1, WRIST: 4, JAW: 7})
            write(base / 'annotations' / 'segmentations' / case / f'{number:09d}.png', mask)
        names = [f'{case}/{number:09d}.jpg' for number in (3, 39)]
        table = {'images': [{'id': i, 'file_name': name} for i, name in enumerate(names)]}
        (base / 'annotations' / f'grasp_short-term_{word}.json').write_text(json.dumps(table))


TREES: Mapping[str, Callable[[Path], None]] = {
    each.__name__: each for each in (endovis2017, endovis2018, sar_rarp50, grasp)
}
