# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A report of FedST's study in one HTML file: tables, pictures of every site, and a clip."""

import base64
from collections.abc import Sequence
from html import escape
import io
from pathlib import Path

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.text_table import DISCLAIMER
from fdrl_ros.experiments.studies.fedst.settings import FEDERATED, FedstSettings, UNSEEN
from fdrl_ros.experiments.studies.fedst.study import RATE, unpacked, unseen_clips
from fdrl_ros.experiments.studies.fedst.tables import tables, verdicts
from fdrl_ros.segmentation.overlay import overlaid
from fdrl_ros.segmentation.training.methods import METHODS
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.table import Table

_SHOWN = ('local', 'fedavg', 'fedst')
"""Methods whose labels are shown, of those that there are."""

_STYLE = (
    'body{font-family:sans-serif;max-width:1100px;margin:2em auto;padding:0 1em}'
    'table{border-collapse:collapse;font-size:13px;margin:2em 0}caption{text-align:left}'
    'caption b,caption span{display:block}th,td{border:1px solid #999;padding:.2em .5em}'
    'img{image-rendering:pixelated;max-width:100%}'
)
_LARGER = 2  # times that pictures are enlarged


def write_report(
    path: Path, summary: Json, parts: Sequence[Json], settings: FedstSettings
) -> None:
    """
    Write the report.

    :param parts: of which those of the first seed are shown.
    :raises OSError: if it cannot be written.
    """
    printed = ''.join(map(_html, tables(summary)))
    said = ''.join(f'<li>{each}</li>' for each in verdicts(summary))
    shown = {
        part['method']: part
        for part in parts
        if part['seed'] == settings.seed and part['method'] in _SHOWN
    }
    names = [name for name in _SHOWN if name in shown]
    columns = ', '.join(('frame', 'truth', *(METHODS[name].title for name in names)))
    body = [
        '<h1>FedST on made-up surgical video</h1>',
        f'<p>{DISCLAIMER}</p>',
        f'<ul>{said}</ul>',
        f'<h2>One frame of every site</h2><p>From left to right: {columns}. Blue is shaft, yellow '
        'wrist, red jaw.</p>',
    ]
    strips = {site: _strips(site, settings, [shown[name] for name in names]) for site in _SITES}
    for site, strip in strips.items():
        middle = strip[len(strip) // 2]
        body.append(f'<h3>Site {site}</h3>{_picture([middle], f"a frame of site {site}")}')
    body.append(
        f'<h2>A clip of site {FEDERATED[0]}</h2>{_picture(strips[FEDERATED[0]], "a clip")}'
    )
    body.append(f'<h2>A clip of site {UNSEEN}</h2>{_picture(strips[UNSEEN], "a clip")}')
    body.append(f'<h2>Tables</h2>{printed}')
    page = '<!doctype html><html lang="en"><meta charset="utf-8"><title>FedST</title>'
    path.write_text(f'{page}<style>{_STYLE}</style>{"".join(body)}</html>\n', 'utf-8')


def _html(table: Table) -> str:
    """Return a table as an element of a page."""
    columns = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    head, *rows = (
        ''.join(f'<td>{escape(cell)}</td>' for cell in row) for row in zip(*columns, strict=True)
    )
    about = f'<b>{escape(str(table.title))}</b><span>{escape(str(table.caption))}</span>'
    body = ''.join(f'<tr>{row}</tr>' for row in rows)
    return (
        f'<table><caption>{about}</caption><thead><tr>{head.replace("td>", "th>")}</tr></thead>'
        f'<tbody>{body}</tbody></table>'
    )


_SITES = (*FEDERATED, UNSEEN)


def _strips(site: str, settings: FedstSettings, parts: Sequence[Json]) -> NDArray[np.uint8]:
    """Return frame, truth and predictions side by side, shape (frames, height, width, 3)."""
    clip = unseen_clips(settings, site, settings.seed)[0]
    labels = [clip.labels]
    labels += [unpacked(part['examples'][site], clip.labels.shape) for part in parts]
    return np.concatenate([clip.frames, *(overlaid(clip.frames, each) for each in labels)], axis=2)


def _picture(frames: Sequence[NDArray[np.uint8]] | NDArray[np.uint8], what: str) -> str:
    """Return a picture, or several that move, as an element of a page."""
    height, width = frames[0].shape[:2]
    size = width * _LARGER, height * _LARGER
    images = [Image.fromarray(each).resize(size, Image.Resampling.NEAREST) for each in frames]
    out = io.BytesIO()
    form = 'webp' if len(images) > 1 else 'png'
    more = {'save_all': True, 'append_images': images[1:], 'duration': round(1000.0 / RATE)}
    images[0].save(out, form, **({**more, 'loop': 0, 'quality': 70} if len(images) > 1 else {}))
    data = base64.b64encode(out.getvalue()).decode()
    return f'<img alt="{what}, and how it is labelled" src="data:image/{form};base64,{data}">'
