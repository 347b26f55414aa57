# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A file of a segmenter that nobody trained, and what nodes need besides a directory."""

from pathlib import Path

from fdrl_ros.resources import resource
from fdrl_ros.segmentation.network.segmenter import Segmenter
from fdrl_ros.segmentation.network.segmenter_file import save_segmenter, SavedSegmenter
from fdrl_ros.segmentation.network.sizes import SegmenterSettings
from fdrl_ros.segmentation.text import text_vectors


def untrained(folder: Path) -> Path:
    """Write the file of a small segmenter into a folder."""
    path = folder / 'segmenter.npz'
    network = Segmenter(SegmenterSettings('tiny'))
    save_segmenter(path, SavedSegmenter.of(network, text_vectors()['A'], 'A'))
    return path


def needed(name: str, folder: Path) -> list[str]:
    """Return the parameters that a node does not begin without."""
    match name.rpartition('/')[2]:
        case 'monitor':
            return [f'plan:={resource("config/operation_plan.yaml")}']
        case 'segmenter':
            return [f'file:={untrained(folder)}']
    return []
