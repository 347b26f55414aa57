# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Every planted bug of :mod:`support.mutants`, caught by who should catch it; in minutes.

`make nightly NIGHTLY=test/nightly/test_mutants.py ARGS='--save docs/results/mutants.json'` keeps
which bug was caught by whom.
"""

import time

import pytest
from support.mutants import MUTANTS
from support.mutation import AUDIT, NONE, started, verdict

SETTINGS = {'audit': AUDIT}

pytestmark = pytest.mark.slow


@pytest.mark.parametrize('flags', sorted({each.flags for each in MUTANTS.values()}))
def test_without_a_bug_the_same_audits_find_nothing(tmp_path, flags):
    process = started(NONE, tmp_path, flags)
    said, _ = process.communicate()
    assert process.returncode == 0, said


@pytest.mark.parametrize('name', MUTANTS)
def test_bug_is_caught(tmp_path, name, figures):
    begun = time.perf_counter()
    caught, said = verdict(name, started(name, tmp_path))
    mutant = MUTANTS[name]
    figures.append(
        {
            'name': name,
            'area': mutant.area,
            'breaks': mutant.breaks,
            'by': mutant.test or f'audit: {mutant.shows}',
            'caught': caught,
            'seconds': round(time.perf_counter() - begun, 1),
        }
    )
    assert caught, said
