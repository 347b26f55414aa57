# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A row of TRAITS and a block of world.yaml make a procedure; what is missing fails at import."""

import json
import os
import subprocess
import sys

from fdrl_ros.errors import ResourceError, SettingError
from fdrl_ros.surgery import constants
from fdrl_ros.surgery.patient.cohort import Cohort, public_cohort
from fdrl_ros.surgery.tasks import DEFAULT_PROCEDURES, procedures
from fdrl_ros.surgery.tasks.outcome import failure_code
from fdrl_ros.surgery.tasks.procedures import of_each_kind, TRAITS, Traits
import pytest
from support import added_procedures

BASES = ('incision', 'needle_pass', 'peg_transfer', 'follow')
NUMBERS = [(base, number) for base in BASES for number in TRAITS[base].numbers]
COMMON = ('target_force', 'tolerance', 'warn_force', 'force_limit', 'contact_radius')
COMMON += ('hold_time', 'horizon')
SHIELD_READS = {
    *(('incision', 'depth'), ('incision', 'length_high'), ('needle_pass', 'height')),
    *(('needle_pass', 'rise'), ('needle_pass', 'way_high'), ('follow', 'height')),
    *(('follow', 'radius'), ('peg_transfer', 'height'), ('peg_transfer', 'way_high')),
    *(('peg_transfer', number) for number in ('peg', 'play', 'spring', 'pick_tolerance')),
}
"""Numbers that the shield must heed too."""


CHANGES = {'depth_limit': 0.2, 'pick_tolerance': 0.05, 'place_tolerance': 0.1}
CHANGES['position_tolerance'] = 0.2
"""Factors that every operation feels; for other numbers 1.3 does."""


def row_of(base, name):
    """Return the text of a row as that of another procedure, which nobody does."""
    row, flags = TRAITS[base], ('circles', 'rides', 'pegs')
    told = ''.join(f', {flag}={getattr(row, flag)}' for flag in flags)
    return f"Traits('{name}', 'another', '{row.task}', {{'general': 0.0}}{told})"


def block_of(base):
    names = (*COMMON, *TRAITS[base].numbers)
    return {number: constants.constant(f'{base}.{number}') for number in names}


def python(folder, *words):
    """Run Python on a copy of the package."""
    path = os.pathsep.join([str(folder), *sys.path])
    return subprocess.run(
        [sys.executable, *words],
        env={**os.environ, 'PYTHONPATH': path},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope='module')
def digests(tmp_path_factory):
    """Return what procedures do that differ from ours in nothing, and in one number each."""
    folder, rows, blocks = tmp_path_factory.mktemp('copy'), [], {}
    for base in BASES:
        for number in ('', *TRAITS[base].numbers):
            name = f'{base}_{number}'
            rows.append(row_of(base, name))
            blocks[name] = block_of(base)
            if number:
                blocks[name][number] *= CHANGES.get(number, 1.3)
    rows.append(row_of('palpation', 'another_press'))
    blocks['another_press'] = block_of('palpation')
    added_procedures.copy_with(folder, rows, blocks)
    done = python(folder, added_procedures.__file__, *BASES, *blocks)
    assert done.returncode == 0, done.stderr
    defaults = 'from fdrl_ros.surgery.patient.cohort import *; print(public_cohort(0).procedures)'
    assert python(folder, '-c', defaults).stdout.strip() == str(DEFAULT_PROCEDURES)
    return json.loads(done.stdout)


@pytest.mark.parametrize('base', BASES)
def test_a_procedure_of_the_same_numbers_is_the_same(digests, base):
    assert digests[f'{base}_'] == digests[base]


@pytest.mark.parametrize(('base', 'number'), NUMBERS)
def test_a_procedure_heeds_each_of_its_own_numbers(digests, base, number):
    ours, others = digests[base], digests[f'{base}_{number}']
    places = ('single', 'batch', 'shield')[: 2 + ((base, number) in SHIELD_READS)]
    assert [place for place in places if ours[place] == others[place]] == []


def test_a_new_press_leaves_the_default_procedures_alone():
    assert Cohort(0, 1, 0.0, 1).procedures == public_cohort(0).procedures == DEFAULT_PROCEDURES


def test_a_number_that_is_missing_fails_at_import_by_procedure_and_name(tmp_path):
    block = block_of('reach')
    del block['position_tolerance']
    added_procedures.copy_with(tmp_path, [row_of('reach', 'hover_2')], {'hover_2': block})
    done = python(tmp_path, '-c', 'import fdrl_ros.surgery.tasks.procedures')
    assert 'ResourceError' in done.stderr
    assert 'hover_2.position_tolerance' in done.stderr


@pytest.mark.parametrize(('base', 'number'), NUMBERS)
def test_a_row_needs_every_number_of_its_kind(monkeypatch, base, number):
    row, name = TRAITS[base], f'{base}_without_{number}'
    known = {f'{name}.{each}': value for each, value in row.numbers.items() if each != number}
    monkeypatch.setattr(constants, 'constants', lambda: known)
    with pytest.raises(ResourceError, match=rf'{name}\.{number}$'):
        Traits(name, '', row.task, row.shares, row.circles, row.rides, row.pegs)


@pytest.mark.parametrize(
    ('name', 'wrong'),
    [
        ('task', {'task': 'suture'}),
        ('shares', {'shares': {}}),
        ('shares', {'shares': {'dental': 1.0}}),
        ('circles', {'task': 'press', 'circles': True}),
        ('pegs', {'pegs': True}),
    ],
)
def test_a_row_that_contradicts_itself_is_refused_by_procedure_and_name(name, wrong):
    row = {'name': 'new', 'purpose': '', 'task': 'hover', 'shares': {'general': 0.0}, **wrong}
    with pytest.raises(SettingError, match=rf'^new\.{name} '):
        Traits(**row)


def test_a_kind_without_a_class_and_an_unknown_loss_are_refused_by_name():
    with pytest.raises(SettingError, match=r'^reach\.task .*somewhere'):
        of_each_kind({'press': 1}, 'somewhere')
    with pytest.raises(SettingError, match='melted'):
        failure_code('melted')


def test_a_number_of_a_procedure_that_nobody_can_do_is_refused_by_procedure_and_name():
    told = vars(procedures.procedure_named('incision'))
    with pytest.raises(SettingError, match=r'^incision\.hold_time = 0.3: expected 0, as no inci'):
        procedures.Procedure(**{**told, 'hold_time': 0.3})
