# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The page on the FDRL paper's experiments tells the numbers of its result file."""

from pathlib import Path

from fdrl_ros.experiments.json_file import from_json
from fdrl_ros.experiments.studies.fdrl_paper import tables
from fdrl_ros.experiments.studies.fdrl_paper.report import verdicts
from fdrl_ros.experiments.studies.fdrl_paper.settings import FdrlSettings
import pytest

DOCS = Path(__file__).resolve().parents[3] / 'docs'
FOUND = from_json((DOCS / 'results' / 'fdrl.json').read_text('utf-8'))
SETTINGS = FdrlSettings.from_mapping(FOUND['settings'])
PAGE = (DOCS / 'fdrl.md').read_text('utf-8')


def test_the_results_are_of_the_settings_that_the_command_has() -> None:
    assert SETTINGS == FdrlSettings()
    assert FOUND['seeds'] == list(SETTINGS.every_seed)


@pytest.mark.parametrize(
    'table', list(tables.tables(FOUND, SETTINGS)), ids=lambda each: each.title
)
def test_the_page_has_the_table(table) -> None:
    assert table.markdown_rows() in PAGE


@pytest.mark.parametrize('claim', tables.claims_grid(FOUND).rows, ids=lambda each: each[2])
def test_the_page_has_the_claim_with_its_verdict(claim) -> None:
    claimed, _, *cells, _ = claim
    assert f'| {" | ".join((claimed, *cells))} |' in PAGE


def test_the_page_counts_the_verdicts() -> None:
    assert verdicts(FOUND) in ' '.join(PAGE.split())


def test_the_readme_counts_the_claims_that_reproduced() -> None:
    own = [each['verdict'] for each in FOUND['claims'] if each['own']]
    readme = (DOCS.parent / 'README.md').read_text('utf-8')
    assert f'[{own.count("reproduced")} of {len(own)} reproduced](docs/fdrl.md' in readme
