# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Reports of studies: one HTML file that needs nothing else, and the same as Markdown."""

from html.parser import HTMLParser
from pathlib import Path

from fdrl_ros.errors import StoreError
from fdrl_ros.experiments.plots.drawing import drawing
from fdrl_ros.experiments.reports.page import Page, Picture, Section
from fdrl_ros.experiments.reports.text_table import DISCLAIMER, Grid
import pytest


class Reader(HTMLParser):
    """Collects text, ids, and what refers to them."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == 'id':
                self.ids.append(str(value))
            elif value and name.endswith('href') and value.startswith('#'):
                self.references.append(value[1:])
            elif value and value.startswith('url(#'):
                self.references.append(value[5:-1])


def figure(path: Path) -> Picture:
    with drawing(path, (3.0, 2.0), 'what it shows', suffixes=('.png', '.svg')) as drawn:
        drawn.subplots().plot([1, 2, 3], [1, 4, 9], 'o-')
    return Picture(path, 'what it shows')


def test_a_page_says_all_in_both_forms_and_escapes_it(tmp_path: Path) -> None:
    table = Grid('a < b', ('x & y', 'verdict'), [('<script>', 'reproduced')])
    pictures = [figure(tmp_path / f'{name}.png') for name in ('one', 'two')]
    page = Page('Title', 'About', [Section('Part', ['1 < 2', table, *pictures])], {'seed': '1'})
    page.write(tmp_path / 'report')
    html = (tmp_path / 'report.html').read_text()
    reader = Reader()
    reader.feed(html)
    words = ' '.join(reader.words)
    for said in ('Title', 'About', DISCLAIMER, '1 < 2', 'a < b', 'x & y', '<script>', 'commit'):
        assert said in words
    assert '<script>' not in html and 'class="good"' in html
    assert reader.references and set(reader.references) <= set(reader.ids)
    assert {each.split('-')[0] for each in reader.ids} == {'one', 'two', 'part'}
    text = (tmp_path / 'report.md').read_text()
    assert '| <script> | reproduced |' in text and '![what it shows](two.png)' in text
    assert '- seed: `1`' in text and DISCLAIMER in text


def test_a_page_that_cannot_be_written_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match='cannot write'):
        Page('Title', 'About', [], {}).write(tmp_path / 'missing' / 'report')


def test_the_same_figure_is_the_same_svg(tmp_path: Path) -> None:
    first, second = (figure(tmp_path / each / 'a.png') for each in _folders(tmp_path))
    assert first.svg == second.svg


def _folders(path: Path) -> tuple[str, str]:
    for name in ('x', 'y'):
        (path / name).mkdir()
    return 'x', 'y'
