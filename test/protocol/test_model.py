# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""SPIN visits every state of two models of a round, and finds each planted fault in them."""

from pathlib import Path
import shutil
import subprocess

import pytest

MODELS = Path(__file__).parents[1] / 'model'

pytestmark = pytest.mark.skipif(
    not (shutil.which('spin') and shutil.which('gcc')),
    reason='needs SPIN and a C compiler: apt-get install spin gcc',
)


def search(model: str, folder: Path, *defined: str) -> str:
    """Return what SPIN says of a model; it writes its verifier into the folder."""
    flags = [f'-D{each}' for each in defined]
    command = ['spin', *flags, '-search', '-safety', '-m1000000', str(MODELS / f'{model}.pml')]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert 'State-vector' in found.stdout, found.stdout + found.stderr
    return found.stdout


@pytest.mark.parametrize(
    ('model', 'defined'),
    [('secrecy', ()), ('progress', ()), ('progress', ('CRASHES=5',))],
)
def test_no_state_breaks_a_promise_or_is_stuck(model, defined, tmp_path):
    found = search(model, tmp_path, *defined)
    assert 'errors: 0' in found, found
    assert 'max search depth too small' not in found
    if model == 'progress':  # its process ends only when the round does
        assert '(0 of' in found.split('unreached in proctype round')[1], found


@pytest.mark.parametrize(
    ('model', 'fault', 'words'),
    [
        ('secrecy', 'LOW_THRESHOLD', 'assertion violated'),
        ('secrecy', 'FORGETS', 'assertion violated'),
        ('secrecy', 'SIGNS_ANYTHING', 'assertion violated'),
        ('secrecy', 'GOES_BACK', 'assertion violated'),
        ('progress', 'NO_PATIENCE', 'invalid end state'),
        ('progress', 'UNBOUND', 'invalid end state'),
        ('progress', 'REVEALS_EARLY', 'invalid end state'),
    ],
)
def test_a_planted_fault_is_found(model, fault, words, tmp_path):
    found = search(model, tmp_path, fault)
    assert 'errors: 1' in found, found
    assert f'{words} ' in found, found
