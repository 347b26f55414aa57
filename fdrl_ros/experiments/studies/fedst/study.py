# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Measure FedST and its rivals: one part is one method with one seed.

A part draws the clips of its seed, trains by its method, and labels unseen clips of every site.
All methods of a seed have the same clips and the same pre-trained start.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
import time
import zlib

from fdrl_ros.errors import os_errors_as, StoreError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.fedst.settings import (
    FEDERATED,
    FedstSettings,
    SCARCE,
    SERVER,
    UNSEEN,
)
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.learner.torch.gradients import device_named
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.segmentation.clip import Clip, HISTORY, history
from fdrl_ros.segmentation.metrics import evaluate
from fdrl_ros.segmentation.network.segmenter import Segmenter
from fdrl_ros.segmentation.network.segmenter_file import save_segmenter, SavedSegmenter
from fdrl_ros.segmentation.scenes import site_clip
from fdrl_ros.segmentation.text import prompt_vectors
from fdrl_ros.segmentation.training.batches import as_input
from fdrl_ros.segmentation.training.methods import METHODS
from fdrl_ros.segmentation.training.run import (
    steps_of,
    train,
    Trained,
    VideoSites,
    Weights,
)
import numpy as np
from numpy.typing import NDArray
import torch

RATE = 5.0
"""Frames a second: 0.2 s apart, as in the paper."""

Scores = Mapping[str, Sequence[float | None]]
"""A measure of each clip, by part."""

MEASURES = ('dice', 'iou', 'hd95', 'assd')
_TEST = 100_000  # number of a site's first unseen clip
_AT_ONCE = 16  # frames that are labelled together


def run_fedst(directory: Path, settings: FedstSettings, caller: Caller = NOBODY) -> list[Json]:
    """
    Measure every method with every seed.

    :param directory: gets ``parts/``, one JSON file a method and seed, and is gone on from them;
        ``segmenters/`` gets the models of the first seed, a file a method and site.
    :returns: the parts, each with `method` and `seed`.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    :raises PolicyError: if there is no such device.
    """
    device_named(settings.device, exact=False)
    study = Study('fedst', directory / 'parts', measure, workers=settings.workers)
    seeds = range(settings.seed, settings.seed + settings.seeds)
    return study.run(
        [
            _part(settings, name, seed, directory / 'segmenters')
            for seed in seeds
            for name in settings.methods
        ],
        caller,
    )


def _part(settings: FedstSettings, name: str, seed: int, segmenters: Path) -> Part:
    method = METHODS[name]
    free = ('tables', 'seeds', 'seed', 'workers', 'device')
    relevant = {key: each for key, each in asdict(settings).items() if key not in free}
    definition = {key: each for key, each in asdict(method).items() if key != 'title'}
    own = {'method': name, 'seed': seed, 'definition': definition, 'settings': relevant}
    effort = steps_of(method, len(FEDERATED), settings.schedule) * (
        3.0 if method.temporal else 1.0
    )
    return Part(
        f'{name}_{seed}',
        own,
        (settings, name, seed, segmenters if seed == settings.seed else None),
        f'{method.title}, seed {seed}',
        effort,
    )


def measure(
    settings: FedstSettings, name: str, seed: int, segmenters: Path | None, *, work: Work
) -> Json:
    """
    Measure one method with one seed.

    :param segmenters: folder that gets the trained models; None keeps none.
    """
    torch.set_num_threads(1)
    method = METHODS[name]
    total = steps_of(method, len(FEDERATED), settings.schedule)

    def told(done: int, who: str) -> None:
        work.check()
        work.tell(done, total + 1, who)

    sites = draw_sites(settings, seed)
    checkpoint = work.directory / 'training.npz'
    device = device_named(settings.device, exact=False).type
    trained = train(
        method, settings.size, sites, settings.schedule, seed, told, checkpoint, device
    )
    vectors = sites.vectors[method.prompt or 'text']
    if segmenters is not None:
        save(segmenters, name, trained, vectors)
    found: Json = {'sites': {}, 'unseen': {}, 'examples': {}}
    for site in FEDERATED:
        segmenter, clips = trained.segmenter(site), unseen_clips(settings, site, seed)
        found['sites'][site] = score(segmenter, clips, vectors[site])
        found['examples'][site] = packed(predict(segmenter, clips[0], vectors[site]))
        work.check()
    outside = unseen_clips(settings, UNSEEN, seed)
    for way in trained.unseen:
        segmenter = trained.segmenter(way)
        found['unseen'][way] = score(segmenter, outside, vectors[UNSEEN])
        found['examples'].setdefault(
            UNSEEN, packed(predict(segmenter, outside[0], vectors[UNSEEN]))
        )
        work.check()
    return found | {
        'upload_bytes': trained.upload[0],
        'upload_counted': trained.upload[1],
        'seconds_sites': trained.seconds[0],
        'seconds_server': trained.seconds[1],
        'frames_per_second': speed(trained, outside[0], vectors[UNSEEN]),
    }


def save(directory: Path, name: str, trained: Trained, vectors: Mapping[str, Weights]) -> None:
    """
    Write the segmenters of a method, which robots run: ``NAME_SITE.npz`` for each site.

    :raises StoreError: if one cannot be written.
    """
    with os_errors_as(StoreError, f'cannot make {directory}'):
        directory.mkdir(parents=True, exist_ok=True)
    for site in trained.weights:
        saved = SavedSegmenter.of(trained.segmenter(site), vectors[site], site)
        save_segmenter(directory / f'{name}_{site}.npz', saved)


def draw_sites(settings: FedstSettings, seed: int) -> VideoSites:
    """Draw the clips of a seed that are trained on."""
    training = {}
    for site in FEDERATED:
        count = max(1, settings.clips // 10) if site == SCARCE else settings.clips
        training[site] = _clips(settings, site, seed, range(count))
    synthetic = _clips(settings, SERVER, seed, range(settings.synthetic_clips))
    return VideoSites(training, synthetic, prompt_vectors((*FEDERATED, UNSEEN), seed))


def unseen_clips(settings: FedstSettings, site: str, seed: int) -> list[Clip]:
    """Draw the unseen clips of a site."""
    return _clips(settings, site, seed, range(_TEST, _TEST + settings.test_clips))


def _clips(settings: FedstSettings, site: str, seed: int, numbers: Sequence[int]) -> list[Clip]:
    size = {'frames': settings.frames, 'size': settings.pixels}
    return [site_clip(site, seed, number, rate=RATE, **size) for number in numbers]


def predict(segmenter: Segmenter, clip: Clip, vector: Weights) -> NDArray[np.uint8]:
    """
    Label the frames of a clip.

    :returns: a part's number in each pixel, shape (frames, height, width).
    """
    count = HISTORY if segmenter.settings.temporal else 1
    text = torch.from_numpy(np.array(vector, np.float32))[None]
    found = []
    with torch.inference_mode():
        frames = as_input(clip.frames).split(_AT_ONCE)
        features = torch.cat([segmenter.features(each) for each in frames])
        for newest in torch.arange(len(clip.frames)).split(_AT_ONCE):
            logits = segmenter.segment(
                features[torch.from_numpy(history(newest.numpy(), count))],
                text.expand(len(newest), -1),
            )
            found.append(logits.argmax(dim=1).to(torch.uint8))
    return torch.cat(found).numpy()


def score(segmenter: Segmenter, clips: Sequence[Clip], vector: Weights) -> Json:
    """Compare predictions with labels: each measure of each clip by part, NaN if undefined."""
    scored = [
        evaluate(predict(segmenter, clip, vector), clip.labels, distances=True) for clip in clips
    ]
    parts = scored[0].parts
    return {
        measure: {
            part: [float(each.mean(measure)[at]) for each in scored]
            for at, part in enumerate(parts)
        }
        for measure in MEASURES
    }


def packed(labels: NDArray[np.uint8]) -> str:
    """Return label pictures as text for a part's file."""
    return base64.b64encode(zlib.compress(labels.tobytes(), 9)).decode()


def unpacked(text: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return what :func:`packed` wrote."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(shape)


def speed(trained: Trained, clip: Clip, vector: Weights) -> float:
    """Return how many frames a second a model of a method labels, on one core."""
    segmenter = trained.segmenter(FEDERATED[0])
    predict(segmenter, clip, vector)
    begun = time.perf_counter()
    predict(segmenter, clip, vector)
    return len(clip.frames) / (time.perf_counter() - begun)


def clip_means(scores: Scores) -> list[float]:
    """Return of each clip the mean over the parts that are defined in it, NaN if none is."""
    rows = [[np.nan if each is None else each for each in clips] for clips in scores.values()]
    table = np.array(rows, np.float64)
    known = ~np.isnan(table)
    with np.errstate(invalid='ignore'):
        mean: list[float] = (np.where(known, table, 0.0).sum(0) / known.sum(0)).tolist()
    return mean


def overall(scores: Scores) -> float:
    """Return the mean over the clips where a measure is defined, NaN if it is nowhere."""
    known = [each for each in clip_means(scores) if not np.isnan(each)]
    return float(np.mean(known)) if known else float('nan')
