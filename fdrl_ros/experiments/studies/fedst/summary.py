# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Sum up FedST's study: intervals over clips and seeds, differences paired by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from fdrl_ros.experiments.intervals import Interval, interval, over_clips_and_seeds, paired
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.fedst.settings import FEDERATED, FedstSettings, TABLES, UNSEEN
from fdrl_ros.experiments.studies.fedst.study import clip_means, MEASURES, overall
from fdrl_ros.segmentation.training.methods import METHODS
import numpy as np

BEST = 'fedst'
"""The method that the others are compared with."""

WAYS = {'server': "server's own", 'average': "sites' average", 'own': ''}
"""How a model for a site outside comes by what is personal."""


def summarise(parts: Sequence[Json], settings: FedstSettings) -> Json:
    """
    Sum up.

    :returns: settings; `methods`: of each its scores by site and measure, its cost and speed;
        `differences`: Dice of FedST minus each other, mean of sites A to D and site E.
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
    ways = [way for way in parts[0]['unseen'] if way not in FEDERATED]
    if not ways:  # models that trained alone: their mean stands for one of them
        parts = [{**part, 'unseen': {'own': _joined(part['unseen'])}} for part in parts]
        ways = ['own']
    sites = {site: _scores([part['sites'][site] for part in parts]) for site in FEDERATED}
    mean = {
        measure: interval([_mean_of_sites(part, measure) for part in parts])
        for measure in MEASURES
    }
    return {
        'title': method.title,
        'paper': list(method.paper),
        'sites': {**sites, 'mean': mean},
        UNSEEN: {way: _scores([part['unseen'][way] for part in parts]) for way in ways},
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


def _joined(models: Mapping[str, Json]) -> Json:
    """Join the scores of several models, as if each clip had been labelled by each."""
    first = next(iter(models.values()))
    return {
        measure: {
            part: [value for each in models.values() for value in each[measure][part]]
            for part in first[measure]
        }
        for measure in MEASURES
    }


def _mean_of_sites(part: Json, measure: str) -> float:
    return float(np.mean([overall(part['sites'][site][measure]) for site in FEDERATED]))


def _unseen_dice(part: Json, way: str) -> float:
    unseen = part['unseen']
    scores = unseen[way] if way in unseen else unseen.get('server') or unseen.get('own')
    return overall((scores or _joined(unseen))['dice'])


def _differences(by_method: Mapping[str, Sequence[Json]]) -> dict[str, dict[str, Interval]]:
    """Return the Dice of FedST minus that of each other method, paired by seed."""
    best = by_method[BEST]
    found = {}
    for name, others in by_method.items():
        if name == BEST:
            continue
        one, other = ([_mean_of_sites(part, 'dice') for part in parts] for parts in (best, others))
        unseen, of_other = (
            [_unseen_dice(part, 'server') for part in parts] for parts in (best, others)
        )
        found[name] = {'sites': paired(one, other), UNSEEN: paired(unseen, of_other)}
    return found
