# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""FedST's tables, with the paper's numbers beside ours, and what follows from them in words."""

from collections.abc import Iterator

from fdrl_ros.experiments.intervals import interval_words, sign_of
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.text_table import make_table
from fdrl_ros.experiments.studies.fedst.settings import FEDERATED, UNSEEN
from fdrl_ros.experiments.studies.fedst.summary import BEST, WAYS
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
    'Made-up video; [95 % intervals] over clips and seeds, of means over seeds. Paper: real '
    'video, other sizes.'
)
_VERBS = {-1: 'is worse than', 0: 'does not differ beyond chance from', 1: 'is better than'}
TRAINED_WELL = {'pooled': 80.0, 'fedavg': 70.0}
"""Mean Dice in percent that these reach where a study was long enough to compare anything."""


def tables(summary: Json) -> Iterator[Table]:
    """Make every table of a summary."""
    for name, methods in summary['tables'].items():
        if name == 'main':
            for measure in _UNITS:
                yield _sites_table(summary, methods, measure)
            yield _unseen_table(summary, methods)
            yield _cost_table(summary, methods)
        else:
            yield _ablation(summary, methods, _TITLES[name])
    if summary['differences']:
        yield _difference_table(summary)


def _paper(value: float | None) -> str:
    return '' if value is None else f'{value:.1f}'


def _sites_table(summary: Json, methods: list[str], measure: str) -> Table:
    heading, factor = _UNITS[measure]
    rows = []
    for name in methods:
        found = summary['methods'][name]
        cells = [
            interval_words(found['sites'][site][measure], factor=factor)
            for site in (*FEDERATED, 'mean')
        ]
        rows.append(
            (found['title'], *cells, _paper(found['paper'][0]) if measure == 'dice' else '')
        )
    title = f'Table II: {heading}, unseen clips of the sites of the federation'
    return make_table(title, ('method', *FEDERATED, 'mean', 'paper'), rows, caption=_CAPTION)


def _unseen_table(summary: Json, methods: list[str]) -> Table:
    rows = []
    for name in methods:
        found = summary['methods'][name]
        for way, scores in found[UNSEEN].items():
            words = WAYS[way] if len(found[UNSEEN]) > 1 else ''
            cells = [interval_words(scores[each], factor=_UNITS[each][1]) for each in _UNITS]
            # The paper averages what sites keep to themselves.
            paper = found['paper'][1] if way == 'average' or len(found[UNSEEN]) == 1 else None
            rows.append((found['title'], words, *cells, _paper(paper)))
    headings = ('method', 'what sites keep', *(each for each, _ in _UNITS.values()), 'paper, Dice')
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
            )
        )
    headings = (
        'method',
        'MB a round, 4 B a weight',
        'MB a round, encrypted',
        's in sites',
        's at server',
        'frames/s, one core',
    )
    caption = 'Paper: 19.71 MB for FedAvg, 13.01 for FedRep, 12.69 for FedST; 33 and 23 frames/s.'
    title = 'Table IX: what a method costs; seconds on this machine, with other work beside'
    return make_table(title, headings, rows, caption=caption)


def _ablation(summary: Json, methods: list[str], title: str) -> Table:
    rows = []
    for name in methods:
        found = summary['methods'][name]
        cells = [
            interval_words(found['sites'][site]['dice'], factor=100.0)
            for site in (*FEDERATED, 'mean')
        ]
        unseen = found[UNSEEN]
        scores = unseen.get('average') or next(iter(unseen.values()))
        cells.append(interval_words(scores['dice'], factor=100.0))
        rows.append((found['title'], *cells, *map(_paper, found['paper'])))
    headings = ('variant', *FEDERATED, 'mean', 'E', 'paper, mean', 'paper, E')
    return make_table(f'{title}, Dice, %', headings, rows, caption=_CAPTION)


def _difference_table(summary: Json) -> Table:
    rows = [
        (
            summary['methods'][name]['title'],
            interval_words(found['sites'], factor=100.0),
            interval_words(found[UNSEEN], factor=100.0),
        )
        for name, found in summary['differences'].items()
    ]
    title = 'Dice of FedST minus that of another method, points'
    caption = "Paired by seed, Student's 95 % intervals; on E with the server's own weights."
    return make_table(title, ('other', 'mean of A to D', 'E'), rows, caption=caption)


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
    for where, words in (('sites', 'on A to D'), (UNSEEN, 'on site E')):
        groups: dict[int, list[str]] = {-1: [], 0: [], 1: []}
        for name, found in summary['differences'].items():
            groups[sign_of(found[where])].append(summary['methods'][name]['title'])
        title = summary['methods'][BEST]['title'] if groups else ''
        for sign, verb in _VERBS.items():
            if groups[sign]:
                said.append(f'{title} {verb} {", ".join(groups[sign])} {words}')
    said.append('no differential privacy: epsilon is infinite for every method')
    return said
