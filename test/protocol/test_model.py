# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
SPIN visits every state of the models of a round, and finds each planted fault in them.

Two are of hospitals that all mask with all, two of hospitals in a ring, two of buckets.
"""

from pathlib import Path
import shutil
import subprocess

import pytest

MODELS = Path(__file__).parents[1] / 'model'

pytestmark = pytest.mark.skipif(
    not (shutil.which('spin') and shutil.which('gcc')),
    reason='needs SPIN and a C compiler: apt-get install spin gcc',
)


def search(model: str, folder: Path, *defined: str, what: str = '-safety') -> str:
    """
    Return what SPIN says of a model; it writes its verifier into the folder.

    :param what: `-safety` for states without a way on, `-l` for runs without an end.
    """
    flags = [f'-D{each}' for each in defined]
    command = ['spin', *flags, '-search', what, '-m1000000', str(MODELS / f'{model}.pml')]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert 'State-vector' in found.stdout, found.stdout + found.stderr
    return found.stdout


@pytest.mark.parametrize(
    ('model', 'defined'),
    [
        ('secrecy', ()),
        ('secrecy_ring', ()),
        ('progress', ()),
        ('progress', ('CRASHES=5',)),
        ('progress_ring', ()),
        ('progress_ring', ('T=3',)),
        ('secrecy_buckets', ()),
        ('progress_buckets', ()),
        ('progress_buckets', ('THREES',)),
        ('progress_buckets', ('THREES', 'LAST')),
        ('progress_buckets', ('SILENT', 'CRASHES=1')),
        ('progress_buckets', ('THREES', 'SILENT', 'CRASHES=1')),
        ('progress_buckets', ('THREES', 'SILENT', 'CRASHES=1', 'LAST')),
    ],
)
def test_no_state_breaks_a_promise_or_is_stuck(model, defined, tmp_path):
    found = search(model, tmp_path, *defined)
    assert 'errors: 0' in found, found
    assert 'max search depth too small' not in found
    if model.startswith('progress'):  # its process ends only when the round does
        if 'SILENT' not in defined:  # they keep a round from its last phases
            assert '(0 of' in found.split('unreached in proctype round')[1], found
        found = search(model, tmp_path, *defined, what='-l')
        assert 'errors: 0' in found and 'non-progress cycles' in found, found


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
        ('secrecy_ring', 'LOW_THRESHOLD', 'assertion violated'),
        ('secrecy_ring', 'NO_WITNESSES', 'assertion violated'),
        ('secrecy_ring', 'FEW_WITNESSES', 'assertion violated'),
        ('secrecy_ring', 'ANYBODY_SIGNS', 'assertion violated'),
        ('secrecy_ring', 'SIGNS_ANYTHING', 'assertion violated'),
        ('secrecy_ring', 'FORGETS', 'assertion violated'),
        ('progress_ring', 'QUORUM_ALONE', 'invalid end state'),
        ('progress_ring', 'NEIGHBOURS_ALONE', 'invalid end state'),
        ('progress_ring', 'NO_PATIENCE', 'invalid end state'),
        ('progress_ring', 'UNBOUND', 'invalid end state'),
        ('secrecy_buckets', 'LOW_THRESHOLD', 'assertion violated'),
        ('secrecy_buckets', 'FORGETS', 'assertion violated'),
        ('secrecy_buckets', 'FORGETS_BUCKETS', 'assertion violated'),
        ('secrecy_buckets', 'SMALL_BUCKET', 'assertion violated'),
        ('secrecy_buckets', 'TWO_SETS', 'assertion violated'),
        ('progress_buckets', 'COUNTS_HOSPITALS', 'invalid end state'),
        ('progress_buckets', 'FORGETS_BOUND', 'invalid end state'),
        ('progress_buckets', 'KEEPS_BUCKETS', 'invalid end state'),
        ('progress_buckets', 'NO_PATIENCE', 'invalid end state'),
        ('progress_buckets', 'UNBOUND', 'invalid end state'),
    ],
)
def test_a_planted_fault_is_found(model, fault, words, tmp_path):
    also = {'NEIGHBOURS_ALONE': ['T=3'], 'KEEPS_BUCKETS': ['THREES']}
    found = search(model, tmp_path, fault, *also.get(fault, []))
    assert 'errors: 1' in found, found
    assert f'{words} ' in found, found


@pytest.mark.parametrize(
    'defined',
    [
        ('NEVER_ABANDONS', 'THREES'),
        ('NEVER_ABANDONS', 'THREES', 'LAST'),
        ('NEVER_COUNTS', 'SILENT'),
        ('NEVER_COUNTS', 'THREES', 'SILENT', 'LAST'),
    ],
    ids=' '.join,
)
def test_a_round_that_waits_for_ever_is_found(defined, tmp_path):
    found = search('progress_buckets', tmp_path, *defined, what='-l')
    assert 'errors: 1' in found and 'non-progress cycle (' in found, found
