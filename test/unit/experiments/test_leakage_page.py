# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The page on leakage tells the numbers of its result file."""

from pathlib import Path

from fdrl_ros.experiments.json_file import from_json
from fdrl_ros.experiments.studies.leakage.settings import AttackSettings
from fdrl_ros.experiments.studies.leakage.tables import (
    effectiveness,
    FORMS,
    inversion,
    overview,
)
import pytest

DOCS = Path(__file__).resolve().parents[3] / 'docs'
FOUND = from_json((DOCS / 'results' / 'attack.json').read_text('utf-8'))
PAGE = (DOCS / 'leakage.md').read_text('utf-8')
TABLES = [*(overview(FOUND, metric) for metric in FORMS), inversion(FOUND), effectiveness(FOUND)]


@pytest.mark.parametrize('table', TABLES, ids=lambda each: each.title)
def test_the_page_has_the_table(table) -> None:
    assert table.markdown_rows() in PAGE


def test_the_results_are_of_the_settings_that_the_command_has() -> None:
    assert AttackSettings.from_mapping(FOUND['settings']) == AttackSettings()


def test_sentences_tell_what_was_found() -> None:
    words = ' '.join(PAGE.split())
    for name in ('matched', 'memorising', 'private'):
        change = FOUND['regimes'][name]['plr']['change_percent']
        mean, low, high = (round(-change[each]) for each in ('mean', 'high', 'low'))
        assert f'by {mean} [{low}, {high}] %' in words
        lead = FOUND['regimes'][name]['own_minus_aggregate']
        told = '{mean:.3f} [{low:.3f}, {high:.3f}]'.format(**lead)
        assert f'{told} ({name})' in words
    assert not any(each['broken'] for each in FOUND['regimes'].values())
