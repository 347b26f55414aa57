# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A report of a study as one HTML file that needs nothing else, and the same as Markdown.

A :class:`Page` has sections of paragraphs, tables and figures. HTML holds the figures as SVG;
Markdown names their PNG files.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import os
from pathlib import Path
import platform
import re
from typing import NamedTuple

from fdrl_ros.errors import os_errors_as, StoreError
from fdrl_ros.experiments.reports.glossary import Definition, definition
from fdrl_ros.experiments.reports.text_table import DISCLAIMER, Grid
from fdrl_ros.experiments.reports.versions import commit, versions
from fdrl_ros.runtime.durable import write_whole
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

MISSING = 'not measured'
"""What a cell says of a number that there is none of."""

_TYPES = {'.png': 'image/png', '.webp': 'image/webp', '.gif': 'image/gif'}


class Picture(NamedTuple):
    """A figure: its PNG, GIF or WebP file, an SVG of the same name if there is one, and words."""

    path: Path
    words: str

    @property
    def svg(self) -> Markup:
        """Return the SVG element, whose ids no other figure of a page has."""
        text = self.path.with_suffix('.svg').read_text('utf-8')
        own = text[max(text.find('<svg'), 0) :]
        prefix = f'{self.path.stem}-'
        own = re.sub(r'\bid="', f'id="{prefix}', own)
        own = re.sub(r'(href="|url\()#', rf'\1#{prefix}', own)
        return Markup(own)  # noqa: S704 - written by matplotlib from our own numbers

    @property
    def element(self) -> Markup:
        """Return the figure as an element of a page that needs no other file."""
        if self.path.with_suffix('.svg').exists() and (drawn := self.svg):
            return drawn
        data = base64.b64encode(self.path.read_bytes()).decode()
        source = f'data:{_TYPES[self.path.suffix]};base64,{data}'
        return Markup('<img alt="{}" src="{}">').format(self.words, source)


class Notice(NamedTuple):
    """A sentence that nobody must miss: what failed, or voids a claim."""

    words: str


class Command(NamedTuple):
    """What to type."""

    words: str


Content = str | Grid | Picture | Notice | Command


class Section(NamedTuple):
    """A part of a page: heading, and paragraphs, tables and figures in their order."""

    title: str
    content: Sequence[Content]


class _Cell(NamedTuple):
    words: str
    style: str


@dataclass(frozen=True)
class Page:
    """
    A report.

    :param title: of the page.
    :param about: a paragraph below it.
    :param provenance: what the numbers depend on, by name: command, settings, seeds, digests.
    :param made_here: whether this code made the numbers, so that its versions are theirs.
    """

    title: str
    about: str
    sections: Sequence[Section]
    provenance: Mapping[str, str]
    made_here: bool = True

    def write(self, path: Path) -> list[Path]:
        """
        Write ``path`` with the suffixes html and md.

        :returns: both files.
        :raises StoreError: if they cannot be written, or a picture cannot be read.
        """
        told = dict(self.provenance)
        if self.made_here:
            told |= {'commit': commit(), **versions(), 'machine': platform.platform()}
        with os_errors_as(StoreError, 'cannot read a picture of the report'):
            forms = {'.html': self._html(told), '.md': self._markdown(told, path.parent)}
        files = []
        for suffix, text in forms.items():
            files.append(path.with_suffix(suffix))
            write_whole(files[-1], text.encode())
        return files

    def explained(self) -> list[Definition]:
        """Return what the headings of all tables mean, each term once, sorted."""
        found = {
            each
            for section in self.sections
            for part in section.content
            if isinstance(part, Grid)
            for heading in part.headings
            if (each := definition(heading))
        }
        return sorted(found, key=lambda each: each.term.lower())

    def _html(self, told: Mapping[str, str]) -> str:
        environment = Environment(
            autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        parts = [
            (each.title, [(type(part).__name__, part) for part in each.content])
            for each in self.sections
        ]
        return environment.from_string(_TEMPLATE).render(
            page=self,
            parts=parts,
            told=told,
            cells=_cells,
            explained=self.explained(),
            definition=definition,
            disclaimer=DISCLAIMER,
        )

    def _markdown(self, told: Mapping[str, str], folder: Path) -> str:
        lines = [f'# {self.title}', self.about, f'*{DISCLAIMER}*']
        for section in self.sections:
            lines.append(f'## {section.title}')
            for each in section.content:
                match each:
                    case Grid():
                        lines.append(f'**{each.title}**\n\n{each.markdown_rows()}')
                    case Picture():
                        file = Path(os.path.relpath(each.path, folder)).as_posix()
                        lines.append(f'![{each.words}]({file})\n\n{each.words}')
                    case Notice():
                        lines.append(f'**{each.words}**')
                    case Command():
                        lines.append(f'```\n{each.words}\n```')
                    case _:
                        lines.append(each)
        if explained := self.explained():
            lines.append('## What the numbers mean')
            lines.append('\n'.join(f'- **{each.term}**: {each.words}' for each in explained))
        lines.append('## How this was made')
        lines.append('\n'.join(f'- {name}: `{value}`' for name, value in told.items()))
        return '\n\n'.join(each.rstrip('\n') for each in lines) + '\n'


_VERDICTS = {
    'reproduced': 'good',
    'partly': 'partly',
    'not reproduced': 'bad',
    'met': 'good',
    'not met': 'bad',
    'rolled back': 'bad',
    'failure': 'bad',
    'success': 'good',
    MISSING: 'missing',
    'undefined': 'missing',
}
"""Style of a cell that holds a verdict."""

_NUMBER = re.compile(
    r'[+-]?[\d.,]+( ?%|e-?\d+| [a-zA-Z]{1,2})?( ?\[.*| \(.*| \.\. .*| \+- .*|\n.*)?', re.DOTALL
)


def _cells(row: Sequence[str]) -> list[_Cell]:
    """Return the cells of a row with their styles; an empty one says that nothing was measured."""
    found = []
    for each in row:
        words = each if str(each).strip() else MISSING
        style = _VERDICTS.get(words) or ('number' if _NUMBER.fullmatch(words) else '')
        found.append(_Cell(words, style))
    return found


_TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ page.title }}</title>
<style>
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #fff; --soft: #f3f4f6; --line: #ccd;
  --link: #0059a3; --good: #0072b22e; --partly: #e69f002e; --bad: #d55e0038; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #17181b;
  --soft: #22252a; --line: #444a52; --link: #7cc0ff; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 0; display: grid; grid-template-columns: 15rem minmax(0, 1fr); }
nav { position: sticky; top: 0; align-self: start; height: 100vh; overflow-y: auto;
  padding: 1.5rem 1rem; background: var(--soft); font-size: 13.5px; }
nav ol { margin: 0; padding-left: 1.3rem; } nav li { margin: .35rem 0; }
main { max-width: 72rem; padding: 1.5rem 2rem 4rem; }
a { color: var(--link); } h1 { line-height: 1.2; margin-top: 0; }
h2 { border-bottom: 1px solid var(--line); padding-bottom: .2rem; margin-top: 2.5rem; }
.table { overflow-x: auto; margin: 1.2rem 0; max-width: 100%; }
table { border-collapse: collapse; font-size: 13px; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { border: 1px solid var(--line); padding: .25rem .55rem; text-align: left;
  vertical-align: top; white-space: pre-line; }
thead th { background: var(--soft); position: sticky; top: 0; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: pre; }
td:first-child { white-space: nowrap; }
td.missing { color: #8a8a8a; font-style: italic; }
tbody tr:hover { background: var(--soft); }
abbr { text-decoration: underline dotted; cursor: help; }
figure { margin: 1.2rem 0; background: #fff; color: #222; padding: .5rem; border-radius: 6px;
  border: 1px solid var(--line); break-inside: avoid; }
figure svg { width: 100%; height: auto; } figure img { max-width: 100%; display: block;
  margin: auto; image-rendering: auto; }
figcaption { font-size: 13px; color: #444; padding: .3rem .2rem 0; }
.notice { border-left: 5px solid #d55e00; background: var(--bad); padding: .6rem .9rem;
  border-radius: 3px; font-weight: 600; }
.good { background: var(--good); } .partly { background: var(--partly); }
.bad { background: var(--bad); }
pre { background: var(--soft); padding: .7rem .9rem; overflow-x: auto; border-radius: 4px; }
code { overflow-wrap: anywhere; } dt { font-weight: 600; margin-top: .6rem; }
dd { margin-left: 1.2rem; } details { margin: 1rem 0; } summary { cursor: pointer; }
@media (max-width: 60rem) { body { display: block; } nav { position: static; height: auto; }
  main { padding: 1rem; } }
@media print { body { display: block; font-size: 11px; } nav, .onscreen { display: none; }
  .table { overflow: visible; } table { font-size: 9px; } thead th { position: static; }
  tr, figure { break-inside: avoid; } h2 { break-after: avoid; }
  details > *:not(summary) { display: block; } a { color: inherit; text-decoration: none; } }
</style>
</head>
<body>
<nav aria-label="contents"><strong>Contents</strong>
<ol>
{% for title, content in parts %}
<li><a href="#part-{{ loop.index }}">{{ title }}</a></li>
{% endfor %}
{% if explained %}
<li><a href="#part-meaning">What the numbers mean</a></li>
{% endif %}
<li><a href="#part-made">How this was made</a></li>
</ol></nav>
<main>
<h1>{{ page.title }}</h1>
<p>{{ page.about }}</p>
<p><em>{{ disclaimer }}</em></p>
{% for title, content in parts %}
<h2 id="part-{{ loop.index }}">{{ title }}</h2>
{% for kind, part in content %}
{% if kind == 'Grid' %}
<div class="table"><table>
<caption>{{ part.title }}</caption>
<thead><tr>
{% for each in part.headings %}
{% set means = definition(each) %}
<th scope="col">
{%- if means %}<abbr title="{{ means.words }}">{{ each }}</abbr>{% else %}{{ each }}{% endif -%}
</th>
{% endfor %}
</tr></thead>
<tbody>
{% for row in part.rows %}
<tr>
{% for each in cells(row) %}
<td class="{{ each.style }}">{{ each.words }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table></div>
{% elif kind == 'Picture' %}
<figure>{{ part.element }}<figcaption>{{ part.words }}</figcaption></figure>
{% elif kind == 'Notice' %}
<p class="notice">{{ part.words }}</p>
{% elif kind == 'Command' %}
<pre><code>{{ part.words }}</code></pre>
{% else %}
<p>{{ part }}</p>
{% endif %}
{% endfor %}
{% endfor %}
{% if explained %}
<h2 id="part-meaning">What the numbers mean</h2>
<p class="onscreen">Point at a heading of a table for the same words.</p>
<details open><summary>{{ explained | length }} terms</summary><dl>
{% for each in explained %}
<dt>{{ each.term }}</dt><dd>{{ each.words }}</dd>
{% endfor %}
</dl></details>
{% endif %}
<h2 id="part-made">How this was made</h2>
<div class="table"><table><tbody>
{% for name, value in told.items() %}
<tr><th scope="row">{{ name }}</th><td><code>{{ value }}</code></td></tr>
{% endfor %}
</tbody></table></div>
</main>
</body>
</html>
"""
