# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The report of FedST's study: tables, pictures of every site, and two clips."""

from collections.abc import Sequence
from pathlib import Path

from fdrl_ros.experiments.json_file import from_json, Json
from fdrl_ros.experiments.reports.command import command_of
from fdrl_ros.experiments.reports.page import Page, Picture, Section
from fdrl_ros.experiments.reports.study_pages import (
    grids_of,
    measured_by,
    provenance,
    sentence,
)
from fdrl_ros.experiments.studies.fedst.settings import FEDERATED, FedstSettings, UNSEEN
from fdrl_ros.experiments.studies.fedst.study import RATE, unpacked, unseen_clips
from fdrl_ros.experiments.studies.fedst.tables import tables, verdicts
from fdrl_ros.segmentation.overlay import overlaid
from fdrl_ros.segmentation.training.methods import METHODS
import numpy as np
from numpy.typing import NDArray
from PIL import Image

_SHOWN = ('local', 'fedavg', 'fedst')
"""Methods whose labels are shown, of those that there are."""

_LARGER = 2  # times that pictures are enlarged


def fedst_page(directory: Path, summary: Json) -> Page:
    """
    Draw one frame of every site and two clips into a study's directory, and make its report.

    :raises OSError: if a picture cannot be written.
    """
    settings = FedstSettings.from_mapping(summary['settings'])
    shown = {
        name: from_json(path.read_text('utf-8'))
        for name in _SHOWN
        if (path := directory / 'parts' / f'{name}_{settings.seed}.json').exists()
    }
    columns = ', '.join(('frame', 'truth', *(METHODS[name].title for name in shown)))
    strips = {site: _strips(site, settings, list(shown.values())) for site in _SITES}
    frames = [
        _picture(directory / f'frame_{site}.png', [strip[len(strip) // 2]], f'Site {site}.')
        for site, strip in strips.items()
    ]
    clips = [
        _picture(directory / f'clip_{site}.webp', strips[site], f'A clip of site {site}.')
        for site in (FEDERATED[0], UNSEEN)
    ]
    words = f'From left to right: {columns}. Blue is shaft, yellow wrist, red jaw.'
    return Page(
        'FedST on made-up surgical video',
        'FedST beside FedAvg, FedRep, FedDP, every site alone, and all clips in one place. The '
        "paper's video is not public, so methods are compared, not digits.",
        [
            Section('What came out', list(map(sentence, verdicts(summary)))),
            Section('One frame of every site', [words, *frames]),
            Section('Clips', [words, *clips]),
            Section('Tables', grids_of(tables(summary))),
        ],
        {
            'command': command_of(directory, 'fdrl reproduce fedst'),
            **measured_by(directory),
            **provenance(summary),
        },
        made_here=False,
    )


_SITES = (*FEDERATED, UNSEEN)


def _strips(site: str, settings: FedstSettings, parts: Sequence[Json]) -> NDArray[np.uint8]:
    """Return frame, truth and predictions side by side, shape (frames, height, width, 3)."""
    clip = unseen_clips(settings, site, settings.seed)[0]
    labels = [clip.labels]
    labels += [unpacked(part['examples'][site], clip.labels.shape) for part in parts]
    return np.concatenate([clip.frames, *(overlaid(clip.frames, each) for each in labels)], axis=2)


def _picture(
    path: Path, frames: Sequence[NDArray[np.uint8]] | NDArray[np.uint8], words: str
) -> Picture:
    """Write a picture, or several that move."""
    height, width = frames[0].shape[:2]
    size = width * _LARGER, height * _LARGER
    images = [Image.fromarray(each).resize(size, Image.Resampling.NEAREST) for each in frames]
    more: Json = {'save_all': True, 'append_images': images[1:], 'duration': round(1000.0 / RATE)}
    images[0].save(path, **({**more, 'loop': 0, 'quality': 70} if len(images) > 1 else {}))
    return Picture(path, words)
