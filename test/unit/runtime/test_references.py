# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""References to a user's classes, in files and in modules."""

from collections import OrderedDict
import hashlib
import pickle

from fdrl_ros.errors import PluginError
from fdrl_ros.runtime.references import load_reference, reference_digest
import pytest

PATIENT = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Patient:
    age: int = 3
"""


def test_a_class_in_a_module_or_a_file_is_found(tmp_path):
    assert load_reference('collections:OrderedDict') is OrderedDict
    assert load_reference('collections:OrderedDict.fromkeys')('ab') == {'a': None, 'b': None}
    file = tmp_path / 'ward.py'
    file.write_text(PATIENT)
    kind = load_reference(f'{file}:Patient')
    assert kind().age == 3
    assert load_reference(f'{file}:Patient') is kind  # run once
    assert pickle.loads(pickle.dumps(kind(4))) == kind(4)


def test_a_changed_file_is_another_module(tmp_path):
    file = tmp_path / 'ward.py'
    file.write_text(PATIENT)
    before, digest = load_reference(f'{file}:Patient'), reference_digest(f'{file}:Patient')
    assert digest == hashlib.sha256(PATIENT.encode()).digest()
    file.write_text(PATIENT.replace('3', '5'))
    assert (before().age, load_reference(f'{file}:Patient')().age) == (3, 5)
    assert reference_digest(f'{file}:Patient') != digest
    assert reference_digest('collections:OrderedDict') == b''


@pytest.mark.parametrize(
    ('content', 'said'),
    [
        (PATIENT, "has no 'Ward': it has dataclass, Patient"),
        ('x = 1\nclass Ward(:\n', r'ward\.py line 2: invalid syntax'),
        ('x = 1\n\nimport no_such_module\n', r'ward\.py line 3: ModuleNotFoundError: .*no_such'),
        ('def f():\n    return 1 / 0\n\nf()\n', r'ward\.py line 2: ZeroDivisionError'),
        (None, 'No such file'),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_file_and_line(tmp_path, content, said):
    file = tmp_path / 'ward.py'
    if content is not None:
        file.write_text(content)
    with pytest.raises(PluginError, match=said) as refused:
        load_reference(f'{file}:Ward')
    assert refused.value.reference == f'{file}:Ward'


@pytest.mark.parametrize('text', ['Ward', 'ward.py', ':Ward', 'ward.py:', 'no.such.module:Ward'])
def test_what_is_no_reference_is_refused(text):
    with pytest.raises(PluginError):
        load_reference(text)
