# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Patients that come round by round: as if all had been there at once, and durable in one file."""

from dataclasses import fields

from fdrl_ros.errors import RecordsError
from fdrl_ros.learner.checkpoint import pack, unpack
from fdrl_ros.learner.online_files import PatientLog
from fdrl_ros.learner.records.transitions import GrowingRecords, Transitions
from hypothesis import given, settings, strategies
import numpy as np
import pytest
from support.sample_size import sampled
from support.small_hospital import joined, records_of

HEAD = 8 + 8 + 32  # bytes before the arrays of a round
IDENTITY = {'hospital': 'hospital_1', 'states': 3}


def records(first, lengths):
    """Return patients, numbered from the first on, with so many transitions each."""
    return records_of(lengths, (3, 2), first)


def parts(lengths):
    made, first = [], 0
    for each in lengths:
        made.append(records(first, each))
        first += len(each)
    return made


LENGTHS = strategies.lists(
    strategies.lists(strategies.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=7
)


@given(
    lengths=LENGTHS,
    n_step=strategies.one_of(strategies.none(), strategies.integers(1, 4)),
    unit=strategies.sampled_from(['patient', 'transition']),
)
@settings(max_examples=sampled(30, 10), deadline=None)
def test_grown_records_are_what_the_joined_ones_are(lengths, n_step, unit):
    growing = GrowingRecords(discount=0.9, n_step=n_step, unit=unit)
    earlier = []
    for number, each in enumerate(made := parts(lengths), 1):
        growing.add(each, bytes([number]))
        whole = joined(made[:number])
        expected = Transitions.from_records(whole, discount=0.9, n_step=n_step, unit=unit)
        found = growing.transitions(None)
        np.testing.assert_array_equal(found.table, expected.table)
        for field in (each for each in fields(Transitions) if each.name != 'lines'):
            np.testing.assert_array_equal(
                getattr(found, field.name), getattr(expected, field.name)
            )
        assert (growing.n_patients, growing.n_transitions, growing.longest) == (
            whole.n_patients,
            whole.n_transitions,
            whole.longest,
        )
        assert growing.digest() == bytes([number])
        earlier.append((found, expected))
    for found, expected in earlier:  # more patients change nothing that was handed out
        np.testing.assert_array_equal(found.states, expected.states)
        np.testing.assert_array_equal(found.starts, expected.starts)


def test_a_patient_who_comes_twice_and_another_form_are_refused_and_change_nothing():
    growing = GrowingRecords(discount=0.9, n_step=1, unit='patient')
    growing.add(records(0, [2, 3]), b'1')
    with pytest.raises(RecordsError, match='twice'):
        growing.add(records(1, [2]), b'2')
    with pytest.raises(RecordsError, match='states of new records are'):
        growing.add(records_of([2], (6, 2), 5), b'2')
    assert growing.n_patients == 2 and len(growing.transitions(None).states) == 5


@given(lengths=LENGTHS)
@settings(max_examples=10, deadline=None)
def test_what_is_logged_comes_back_and_its_digest_names_all_before(tmp_path_factory, lengths):
    path = tmp_path_factory.mktemp('log') / 'turns'
    with PatientLog(path, IDENTITY) as log:
        written = [log.append(new) for new in parts(lengths)]
        assert log.next_stored() is None and log.count == len(lengths)
    with PatientLog(path, IDENTITY) as log:
        found = list(iter(log.next_stored, None))
    assert [(one.digest, one.records.digest()) for one in found] == [
        (one.digest, one.records.digest()) for one in written
    ]
    assert len({one.digest for one in found}) == len(found)


THREE = [[3, 2], [4], [1, 1]]


@pytest.fixture
def path(tmp_path):
    """Three rounds."""
    with PatientLog(tmp_path / 'turns', IDENTITY) as log:
        for each in parts(THREE):
            log.append(each)
    return tmp_path / 'turns'


def test_a_round_whose_writing_was_cut_short_anywhere_does_not_count(path):
    whole, third = path.read_bytes(), parts(THREE)[2]
    begun = len(whole) - len(pack({}, third.arrays())) - HEAD
    for size in range(begun, len(whole), 7):
        path.write_bytes(whole[:size])
        with PatientLog(path, IDENTITY) as log:
            assert log.count == 2
            log.append(third)
        assert path.read_bytes() == whole


def test_a_changed_bit_is_refused_wherever_it_is(path):
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in (0, 20, 90, len(whole) - 1, *rng.integers(len(whole), size=30)):
        content = bytearray(whole)
        content[at] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        with pytest.raises(RecordsError):
            PatientLog(path, IDENTITY)
        assert path.read_bytes() == content
    path.write_bytes(whole)
    with PatientLog(path, IDENTITY) as log:
        assert log.count == 3


def test_rounds_of_something_else_are_refused(path, tmp_path):
    with pytest.raises(RecordsError, match='collected for states = 3, not 4'):
        PatientLog(path, IDENTITY | {'states': 4})
    with pytest.raises(RecordsError, match='other settings'):
        PatientLog(path, {'hospital': 'hospital_1'})
    (tmp_path / 'text').write_text('text')
    with pytest.raises(RecordsError, match='does not hold the patients of rounds'):
        PatientLog(tmp_path / 'text', IDENTITY)
    with pytest.raises(RecordsError, match='cannot use'):
        PatientLog(tmp_path / 'missing' / 'turns', IDENTITY)


@pytest.mark.parametrize(
    'data',
    [
        b'text\n',
        b'{}\n',
        b'[]\n',
        b'{"arrays": {"a": ["<f8", [2]]}}\n12345678',
        b'{"arrays": {"a": ["<f8", [1]]}}\n123456789',
        b'{"arrays": {"a": ["|O", [1]]}}\n12345678',
        b'{"arrays": {"a": ["<f8", [-1]]}}\n12345678',
        b'{"arrays": {"a": ["nothing", [1]]}}\n12345678',
    ],
)
def test_what_is_no_packed_array_is_refused(data):
    with pytest.raises(ValueError):
        unpack(data)
