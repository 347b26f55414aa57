# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Some planted bugs of every area, caught by the audit or a test; `make nightly` plants all."""

import json
from pathlib import Path

import pytest
from support.mutants import Mutant, MUTANTS
from support.mutation import started, verdict

ROOT = Path(__file__).resolve().parents[3]
FAST = (
    'same noise every round',
    'a clean gradient behind the noise',
    'clipping per layer',
    'private priorities charged as Poisson',
    'a step that nobody charged',
    'a block for other gradients',
    'noise before the charge',
    'a second decryption',
    'masks of half the range',
    'values beyond the limit',
    'clipping after the sum',
)


def test_bugs_are_caught(tmp_path: Path) -> None:
    """Two at a time."""
    for turn in range(0, len(FAST), 2):
        names = FAST[turn : turn + 2]
        running = [started(name, tmp_path / name.replace(' ', '_')) for name in names]
        found = {name: verdict(name, each) for name, each in zip(names, running, strict=True)}
        for name, (caught, said) in found.items():
            assert caught, f'{name}: {said}'


@pytest.mark.parametrize('name', MUTANTS)
def test_bugs_fit_the_sources(name: str) -> None:
    mutant = MUTANTS[name]
    source = mutant.applied((ROOT / mutant.file).read_text('utf-8'))
    if not mutant.compiled:
        compile(source, name, 'exec')
    assert bool(mutant.test) != bool(mutant.shows)


def test_the_page_names_every_bug_and_the_figures_say_that_each_was_caught() -> None:
    page = ' '.join((ROOT / 'docs/privacy.md').read_text('utf-8').split())
    saved = json.loads((ROOT / 'docs/results/mutants.json').read_text('utf-8'))
    assert {each['name'] for each in saved['figures'] if each['caught']} == MUTANTS.keys()
    for name in MUTANTS:
        assert name in page, name


def test_bugs_are_of_every_area() -> None:
    areas = {each.area for each in MUTANTS.values()}
    assert areas == {MUTANTS[name].area for name in FAST}
    assert areas == {
        'sampling', 'clipping', 'noise', 'accounting', 'reuse', 'order', 'late rounds', 'layers',
        'masks', 'quantisation',
    }  # fmt: skip
    assert len(MUTANTS) >= 20 and isinstance(MUTANTS[FAST[0]], Mutant)
