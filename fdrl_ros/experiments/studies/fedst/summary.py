# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sum up FedST's study: intervals over clips and seeds, differences paired by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from fdrl_ros.experiments.intervals import (
    holm,
    interval,
    over_clips_and_seeds,
    p_value,
    paired,
)
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.fedst.settings import FEDERATED, FedstSettings, TABLES, UNSEEN
from fdrl_ros.experiments.studies.fedst.study import clip_means, MEASURES, overall
from fdrl_ros.segmentation.training.methods import METHODS
import numpy as np

BEST = 'fedst'
"""The method that the others are compared with."""

WAYS = {'server': "server's own", 'average': "sites' average", 'own': ''}
"""Where a model for a site outside takes the personal tensors from."""


def summarise(parts: Sequence[Json], settings: FedstSettings) -> Json:
    """
    Sum up.

    :returns: settings; `methods`: of each its scores by site and measure, its cost and speed;
        `differences`: Dice of FedST minus each other, mean of sites A to D and site E, each over
        seeds and over clips and seeds, and `p`, corrected by Holm for the number of methods.
    """
    by_method = {
        name: sorted((p for p in parts if p['method'] == name), key=lambda part: part['seed'])
        for name in settings.methods
    }
    methods = {name: _method(name, found) for name, found in by_method.items()}
    return {
        'settings': asdict(settings),
        'tables': {name: list(TABLES[name]) for name in settings.chosen},
        'methods': methods,
        'differences': _differences(by_method) if BEST in by_method else {},
    }


def _method(name: str, parts: Sequence[Json]) -> Json:
    method = METHODS[name]
    sites = {site: _scores([part['sites'][site] for part in parts]) for site in FEDERATED}
    mean: Json = {
        measure: interval([_mean_of_sites(part, measure) for part in parts])
        for measure in MEASURES
    }
    mean['parts'] = {
        label: interval([_mean_of_sites(part, 'dice', label) for part in parts])
        for label in parts[0]['sites'][FEDERATED[0]]['dice']
    }
    ways = _ways(name, parts[0])
    return {
        'title': method.title,
        'sites': {**sites, 'mean': mean},
        UNSEEN: {way: _scores([_unseen(part, way) for part in parts]) for way in ways},
        **{
            key: interval([part[key] for part in parts])
            for key in (
                'upload_bytes',
                'upload_counted',
                'seconds_sites',
                'seconds_server',
                'frames_per_second',
            )
        },
    }


def _ways(name: str, part: Json) -> list[str]:
    """
    Return the ways to a model for a site outside, the paper's first.

    Without SERQ nobody trains the server's own personal tensors, so there is no model of them.
    """
    unseen = part['unseen']
    if 'average' in unseen:
        return ['average', 'server'] if METHODS[name].serq else ['average']
    return ['server'] if 'server' in unseen else ['own']


def _unseen(part: Json, way: str) -> Json:
    """Return the scores on the site outside; of models that trained alone their mean."""
    found: Json = part['unseen'].get(way) or _averaged(part['unseen'])
    return found


def _scores(of_seeds: Sequence[Json]) -> Json:
    """Return intervals over clips and seeds: mean of parts, and each part's Dice."""
    found: Json = {}
    for measure in MEASURES:
        clips = [clip_means(scores[measure]) for scores in of_seeds]
        found[measure] = over_clips_and_seeds(clips, np.random.default_rng(0))
    found['parts'] = {
        part: over_clips_and_seeds(
            [_numbers(scores['dice'][part]) for scores in of_seeds], np.random.default_rng(0)
        )
        for part in of_seeds[0]['dice']
    }
    return found


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [np.nan if each is None else each for each in values]


def _averaged(models: Mapping[str, Json]) -> Json:
    """Average the scores of several models clip by clip, over those that are defined."""
    first = next(iter(models.values()))

    def mean(measure: str, part: str) -> list[float | None]:
        rows = [_numbers(each[measure][part]) for each in models.values()]
        columns = [[x for x in column if not np.isnan(x)] for column in zip(*rows, strict=True)]
        return [float(np.mean(each)) if each else None for each in columns]

    return {
        measure: {part: mean(measure, part) for part in first[measure]} for measure in MEASURES
    }


def _mean_of_sites(part: Json, measure: str, label: str | None = None) -> float:
    """Return the mean over sites A to D, of one part of the instrument or of all."""
    scores = [part['sites'][site][measure] for site in FEDERATED]
    if label is not None:
        scores = [{label: each[label]} for each in scores]
    return float(np.mean([overall(each) for each in scores]))


def _differences(by_method: Mapping[str, Sequence[Json]]) -> Json:
    """Return the Dice of FedST minus that of each other method, paired by seed and by clip."""

    def clips(part: Json, place: str) -> list[float]:
        if place == UNSEEN:
            return clip_means(_unseen(part, _ways(part['method'], part)[0])['dice'])
        return [x for site in FEDERATED for x in clip_means(part['sites'][site]['dice'])]

    def values(part: Json, place: str) -> float:
        if place == UNSEEN:
            return overall(_unseen(part, _ways(part['method'], part)[0])['dice'])
        return _mean_of_sites(part, 'dice')

    best = by_method[BEST]
    others = {name: parts for name, parts in by_method.items() if name != BEST}
    found: Json = {name: {} for name in others}
    for place in ('sites', UNSEEN):
        for name, parts in others.items():
            seeds = paired([values(x, place) for x in best], [values(x, place) for x in parts])
            each = [
                np.subtract(clips(one, place), clips(other, place)).tolist()
                for one, other in zip(best, parts, strict=True)
            ]
            over_clips = over_clips_and_seeds(each, np.random.default_rng(0))
            found[name][place] = {'seeds': seeds, 'clips': over_clips}
        ps = holm([p_value(found[name][place]['seeds']) for name in others])
        for name, p in zip(others, ps, strict=True):
            found[name][place]['p'] = p
    return found
