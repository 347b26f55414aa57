# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
EndoVis 2018, the Robotic Scene Segmentation Challenge: porcine videos, one mask a frame.

The table of classes and colours lies beside the sequences. What was read of the layout: the
challenge's page as github.com/open-mmlab/mmsegmentation quotes it (projects/medical, rate), the
labels.json in github.com/mli0603/EndoVis2018, the names of the archives and the repaired masks in
the data set creator of mml (DKFZ). The layout of the test set is known from users alone.
"""

from collections.abc import Mapping, Sequence
import json
from pathlib import Path
from typing import Any, Final

from fdrl_ros.segmentation.readers.mask_code import Colour, MaskCode
from fdrl_ros.segmentation.readers.video import (
    folders_named,
    Found,
    Picture,
    pictures_in,
    Split,
    Video,
)
from fdrl_ros.surgery.render.parts import BACKGROUND, JAW, SHAFT, WRIST

EXPECTED: Final = (
    'seq_N/ with left_frames/ and labels/, labels.json in the folder above or at the top'
)

FRAMES_RATE: Final = 2.0
"""Nominal: the owners took frames without motion out."""

CLASSES: Final = {
    'instrument-shaft': SHAFT,
    'instrument-wrist': WRIST,
    'instrument-clasper': JAW,
}
"""The parts of robotic instruments; every other class of the table is background."""


def find(root: Path, rate: float) -> Found:
    """Find the sequences below a folder; below one that is named test_data, the test set's."""
    videos: list[Video] = []
    faults: list[str] = []
    folders = list(folders_named(root, r'seq_\d+'))
    code = _code(root, folders, faults) if folders else None
    repaired: dict[str, Path] = {}  # such as seq_1_frame042.png
    for each in folders_named(root, 'repairs'):
        repaired |= pictures_in(each) | pictures_in(each / 'repairs')
    for folder in folders:
        split: Split = 'training'
        if 'test_data' in folder.relative_to(root.parent).parts:
            split = 'testing'
        pictures, masks = pictures_in(folder / 'left_frames'), pictures_in(folder / 'labels')
        if not pictures:
            faults.append(f'{folder / "left_frames"}: no pictures')
            continue
        for name in sorted(masks.keys() - pictures.keys()):
            faults.append(f'{folder / "left_frames" / name}: missing, the frame of {masks[name]}')
        if split == 'training':
            masks |= {
                name: repaired[f'{folder.name}_{name}']
                for name in pictures
                if f'{folder.name}_{name}' in repaired
            }
        for name in sorted(pictures.keys() - masks.keys()):
            faults.append(f'{folder / "labels" / name}: missing, the mask of {pictures[name]}')
        frames = tuple(
            Picture(path, (masks[name],)) for name, path in pictures.items() if name in masks
        )
        if code is not None:
            made = Video(f'{split}/{folder.name}', split, FRAMES_RATE, frames, code)
            videos.append(made.sampled(rate))
    return Found(tuple(videos), tuple(faults))


def _code(root: Path, folders: Sequence[Path], faults: list[str]) -> MaskCode | None:
    """Join the tables of classes, of which each release has its own."""
    tables = {
        above / 'labels.json'
        for folder in folders
        for above in folder.parents
        if above.is_relative_to(root) and (above / 'labels.json').is_file()
    }
    parts: dict[Colour, int] = {}
    for table in sorted(tables):
        try:
            own = dict(map(_class, _classes(json.loads(table.read_text('utf-8')))))
        except (OSError, ValueError, TypeError, KeyError) as error:
            faults.append(f'{table}: no table of names and colours of classes: {error!r}')
            continue
        other = sorted(each for each in own if parts.get(each, own[each]) != own[each])
        if other:
            faults.append(f'{table}: colours {other} mean another part than in another table')
        parts |= own
    lacking = [name for name, part in CLASSES.items() if part not in parts.values()]
    if lacking:
        faults.append(f'{root}: no labels.json has the colours of {", ".join(lacking)}')
        return None
    return MaskCode(parts)


def _classes(table: Any) -> Sequence[Mapping[str, Any]]:
    """Return the classes of a table: it is their list, or has it under a name."""
    classes: Sequence[Mapping[str, Any]] = table['classes'] if isinstance(table, dict) else table
    return classes


def _class(entry: Mapping[str, Any]) -> tuple[Colour, int]:
    """Return the colour of a class, whose transparency does not count, and the part."""
    red, green, blue = map(int, entry['color'][:3])
    return (red, green, blue), CLASSES.get(str(entry['name']), BACKGROUND)
