# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A report of a study as one HTML file that needs nothing else, and the same as Markdown.

A :class:`Page` has sections of paragraphs, tables and figures. HTML holds the figures as SVG;
Markdown names their PNG files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
import platform
import re
from typing import NamedTuple

from fdrl_ros.experiments.reports.text_table import DISCLAIMER, Grid
from fdrl_ros.experiments.reports.versions import commit, versions
from fdrl_ros.runtime.durable import write_whole
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup


class Picture(NamedTuple):
    """A figure: its PNG file, an SVG file of the same name beside it, and what it shows."""

    path: Path
    words: str

    @property
    def svg(self) -> Markup:
        """Return the SVG element, whose ids no other figure of a page has."""
        text = self.path.with_suffix('.svg').read_text('utf-8')
        own = text[text.index('<svg') :]
        prefix = f'{self.path.stem}-'
        own = re.sub(r'\bid="', f'id="{prefix}', own)
        own = re.sub(r'(href="|url\()#', rf'\1#{prefix}', own)
        return Markup(own)  # noqa: S704 - written by matplotlib from our own numbers


class Section(NamedTuple):
    """A part of a page: heading, and paragraphs, tables and figures in their order."""

    title: str
    content: Sequence[str | Grid | Picture]


@dataclass(frozen=True)
class Page:
    """
    A report.

    :param title: of the page.
    :param about: a paragraph below it.
    :param provenance: what the numbers depend on, by name: command, settings, seeds, digests.
    """

    title: str
    about: str
    sections: Sequence[Section]
    provenance: Mapping[str, str]

    def write(self, path: Path) -> None:
        """
        Write ``path`` with the suffixes html and md.

        :raises StoreError: if they cannot be written.
        """
        where = {'commit': commit(), **versions(), 'machine': platform.platform()}
        told = {**self.provenance, **where}
        write_whole(path.with_suffix('.html'), self._html(told).encode())
        write_whole(path.with_suffix('.md'), self._markdown(told).encode())

    def _html(self, told: Mapping[str, str]) -> str:
        environment = Environment(
            autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        parts = [
            (each.title, [(type(part).__name__, part) for part in each.content])
            for each in self.sections
        ]
        return environment.from_string(_TEMPLATE).render(
            page=self, parts=parts, told=told, verdicts=_VERDICTS, disclaimer=DISCLAIMER
        )

    def _markdown(self, told: Mapping[str, str]) -> str:
        lines = [f'# {self.title}', self.about, f'*{DISCLAIMER}*']
        for section in self.sections:
            lines.append(f'## {section.title}')
            for each in section.content:
                if isinstance(each, Grid):
                    lines.append(f'**{each.title}**\n\n{each.markdown_rows()}')
                elif isinstance(each, Picture):
                    lines.append(f'![{each.words}]({each.path.name})\n\n{each.words}')
                else:
                    lines.append(each)
        lines.append('## How this was made')
        lines.append('\n'.join(f'- {name}: `{value}`' for name, value in told.items()))
        return '\n\n'.join(each.rstrip('\n') for each in lines) + '\n'


_VERDICTS = {'reproduced': 'good', 'partly': 'partly', 'not reproduced': 'bad'}
"""Style of a cell that holds a verdict."""

_TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ page.title }}</title>
<style>
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto;
  padding: 0 1rem; }
.table { overflow-x: auto; margin: 1.5rem 0; }
table { border-collapse: collapse; font-size: 13px; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { border: 1px solid #8886; padding: .25rem .5rem; text-align: left; vertical-align: top; }
figure { margin: 1.5rem 0; background: #fff; color: #222; padding: .5rem; border-radius: 4px; }
figure svg { width: 100%; height: auto; }
.good { background: #0072b233; }
.partly { background: #e69f0033; }
.bad { background: #d55e0033; }
code { overflow-wrap: anywhere; }
</style>
</head>
<body>
<h1>{{ page.title }}</h1>
<p>{{ page.about }}</p>
<p><em>{{ disclaimer }}</em></p>
{% for title, content in parts %}
<h2>{{ title }}</h2>
{% for kind, part in content %}
{% if kind == 'Grid' %}
<div class="table"><table>
<caption>{{ part.title }}</caption>
<thead><tr>{% for each in part.headings %}<th>{{ each }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in part.rows %}
<tr>
{% for each in row %}
<td class="{{ verdicts.get(each, '') }}">{{ each }}</td>
{% endfor %}
</tr>
{% endfor %}
</tbody>
</table></div>
{% elif kind == 'Picture' %}
<figure>{{ part.svg }}</figure>
{% else %}
<p>{{ part }}</p>
{% endif %}
{% endfor %}
{% endfor %}
<h2>How this was made</h2>
<div class="table"><table><tbody>
{% for name, value in told.items() %}
<tr><th>{{ name }}</th><td><code>{{ value }}</code></td></tr>
{% endfor %}
</tbody></table></div>
</body>
</html>
"""
