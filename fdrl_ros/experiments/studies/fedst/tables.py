# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""FedST's tables, with the paper's numbers beside ours, and what follows from them in words."""

from collections.abc import Iterator, Sequence

from fdrl_ros.experiments.intervals import interval_words
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.text_table import make_table
from fdrl_ros.experiments.studies.fedst import paper
from fdrl_ros.experiments.studies.fedst.private import private_table
from fdrl_ros.experiments.studies.fedst.settings import FEDERATED, UNSEEN
from fdrl_ros.experiments.studies.fedst.summary import BEST, WAYS
import numpy as np
from rich.table import Table

_TITLES = {
    'components': "Table IV: FedST's components",
    'places': 'Table V: what each site keeps, encoder or decoder',
    'layers': 'Table VI: which layers of the encoder each site keeps',
    'indicators': 'Table VII: what tells the site to the channel selection',
}
_UNITS = {
    'dice': ('Dice, %', 100.0),
    'iou': ('IoU, %', 100.0),
    'hd95': ('HD95, pixels', 1.0),
    'assd': ('ASSD, pixels', 1.0),
}
_CAPTION = (
    'Made-up video. Means over seeds with 95 % intervals over clips and seeds; of the column mean '
    "Student's t over seeds. Paper: real video, frames of other sizes."
)
_VERBS = {-1: 'is worse than', 0: 'does not differ beyond chance from', 1: 'is better than'}
CHANCE = 0.05
"""Probability below which a difference is called beyond chance."""
TRAINED_WELL = {'pooled': 80.0, 'fedavg': 70.0}
"""Mean Dice in percent that these reach where a study was long enough to compare anything."""


def tables(summary: Json) -> Iterator[Table]:
    """Make every table of a summary."""
    for name, methods in summary['tables'].items():
        if name == 'main':
            for measure in _UNITS:
                yield _sites_table(summary, methods, measure)
            yield _parts_table(summary, methods)
            yield _unseen_table(summary, methods)
            yield _cost_table(summary, methods)
        else:
            yield _ablation(summary, methods, name)
    if summary['differences']:
        yield _difference_table(summary)
    if 'private' in summary:
        yield private_table(summary['private'])


def _stated(values: Sequence[float] | None, decimals: int = 1) -> str:
    """Write numbers of the paper, if it has them."""
    return ', '.join(f'{each:.{decimals}f}' for each in values or ())


def _sites_table(summary: Json, methods: list[str], measure: str) -> Table:
    heading, factor = _UNITS[measure]
    rows = []
    for name in methods:
        found = summary['methods'][name]
        cells = [
            interval_words(found['sites'][site][measure], factor=factor)
            for site in (*FEDERATED, 'mean')
        ]
        rows.append((found['title'], *cells, _stated(paper.SITES[measure].get(name))))
    title = f'Table II: {heading}, unseen clips of the sites of the federation'
    headings = ('method', *FEDERATED, 'mean', 'paper: A, B, C, D, mean')
    return make_table(title, headings, rows, caption=_CAPTION)


def _parts_table(summary: Json, methods: list[str]) -> Table:
    rows = []
    for name in methods:
        found = summary['methods'][name]
        outside = next(iter(found[UNSEEN].values()))['parts']
        cells = [
            interval_words(each, factor=100.0)
            for parts in (found['sites']['mean']['parts'], outside)
            for each in parts.values()
        ]
        rows.append((found['title'], *cells))
    labels = list(summary['methods'][methods[0]]['sites']['mean']['parts'])
    headings = ('method', *(f'{x}, A to D' for x in labels), *(f'{x}, {UNSEEN}' for x in labels))
    return make_table('Dice of each part, %', headings, rows, caption=_CAPTION)


def _unseen_table(summary: Json, methods: list[str]) -> Table:
    rows = []
    for name in methods:
        found = summary['methods'][name]
        for way, scores in found[UNSEEN].items():
            words = '' if name in ('local', 'pooled', 'fedavg') else WAYS[way]
            cells = [interval_words(scores[each], factor=_UNITS[each][1]) for each in _UNITS]
            stated = paper.UNSEEN.get(name) if way != 'server' or name == 'fedavg' else None
            rows.append((found['title'], words, *cells, _stated(stated)))
    headings = ('method', 'personal tensors', *(each for each, _ in _UNITS.values()), 'paper')
    title = 'Table III: site E, which is in no federation'
    return make_table(title, headings, rows, caption=_CAPTION)


def _cost_table(summary: Json, methods: list[str]) -> Table:
    rows = []
    for name in methods:
        found = summary['methods'][name]

        def words(key: str, form: str, factor: float, found: Json = found) -> str:
            return interval_words(found[key], form, factor)

        rows.append(
            (
                found['title'],
                words('upload_counted', '.2f', 1e-6),
                words('upload_bytes', '.2f', 1e-6),
                words('seconds_sites', '.0f', 1.0),
                words('seconds_server', '.0f', 1.0),
                words('frames_per_second', '.0f', 1.0),
                _stated(paper.COST.get(name), 2),
            )
        )
    headings = (
        'method',
        'MB a round, 4 B a weight',
        'MB a round, encrypted',
        's but SERQ',
        's of SERQ',
        'frames/s, 16 a pass',
        'paper: MB, frames/s',
    )
    caption = (
        'Seconds and frames/s on this machine with other work beside; seconds include encryption. '
        'FedRep and FedDP keep what their papers keep, and nothing else of those is here.'
    )
    title = 'Table IX: what a method costs'
    return make_table(title, headings, rows, caption=caption)


def _ablation(summary: Json, methods: list[str], table: str) -> Table:
    rows = []
    for name in methods:
        found = summary['methods'][name]
        cells = [
            interval_words(found['sites'][site]['dice'], factor=100.0)
            for site in (*FEDERATED, 'mean')
        ]
        outside = next(iter(found[UNSEEN].values()))
        cells.append(interval_words(outside['dice'], factor=100.0))
        rows.append((found['title'], *cells, _stated(paper.ABLATIONS[table].get(name))))
    headings = ('variant', *FEDERATED, 'mean', UNSEEN, f'paper: mean, {UNSEEN}')
    return make_table(f'{_TITLES[table]}, Dice, %', headings, rows, caption=_CAPTION)


def _difference_table(summary: Json) -> Table:
    rows, tested = [], summary['settings']['seeds'] > 1
    for name, found in summary['differences'].items():
        cells = [
            words
            for place in ('sites', UNSEEN)
            for words in (
                interval_words(found[place]['seeds'], factor=100.0),
                interval_words(found[place]['clips'], factor=100.0),
                f'{found[place]["p"]:.3f}' if tested else 'one seed',
            )
        ]
        rows.append((summary['methods'][name]['title'], *cells))
    title = 'Dice of FedST minus that of another method, points'
    caption = (
        "95 % intervals: over seeds by Student's t, and by bootstrap over clips and seeds, which "
        "is too narrow for few seeds; p of the former, corrected by Holm. On E by sites' average."
    )
    kinds = ('over seeds', 'over clips and seeds', 'p')
    headings = ('other', *(f'{place}: {x}' for place in ('A to D', UNSEEN) for x in kinds))
    return make_table(title, headings, rows, caption=caption)


def verdicts(summary: Json) -> list[str]:
    """Return in sentences what the study shows; what did not come out first."""
    said = []
    for name, least in TRAINED_WELL.items():
        if name not in summary['methods']:
            continue
        found = summary['methods'][name]
        mean = 100.0 * found['sites']['mean']['dice']['mean']
        if mean < least:
            said.append(
                f'{found["title"]} reaches {mean:.1f} % mean Dice on A to D, below {least:g}: '
                'this study is under-trained, and its order means little'
            )
    differences = summary['differences']
    if differences and summary['settings']['seeds'] < 2:
        said.append('one seed: whether differences are beyond chance is not tested')
        differences = {}
    for where, words in (('sites', 'on A to D'), (UNSEEN, 'on site E')):
        groups: dict[int, list[str]] = {-1: [], 0: [], 1: []}
        for name, found in differences.items():
            sign = int(np.sign(found[where]['seeds']['mean']))
            beyond = found[where]['p'] < CHANCE
            groups[sign if beyond else 0].append(summary['methods'][name]['title'])
        title = summary['methods'][BEST]['title'] if differences else ''
        for sign, verb in _VERBS.items():
            if groups[sign]:
                said.append(f'{title} {verb} {", ".join(groups[sign])} {words}')
    said.append('the compared methods have no differential privacy: their epsilon is infinite')
    return said
