# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Journals of honest parties agree; each lie of one of them contradicts what another one wrote."""

from dataclasses import replace
import os
import tracemalloc

from fdrl_ros.crypto.keys.roster import Revoked
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.federation.journal import comparison
from fdrl_ros.federation.journal.comparison import compare
from fdrl_ros.federation.journal.journal import Head, Journal
from fdrl_ros.federation.protocol.store import Store
import pytest
from support.journals import digest, Federation, honest, HOSPITALS, ledger, policy

ROUNDS = 6


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    for each in ('fsync', 'fdatasync'):
        monkeypatch.setattr(os, each, lambda descriptor: None)


@pytest.fixture
def federation(tmp_path):
    return Federation(tmp_path / 'one')


def compared(federation, told, **options):
    federation.write(told)
    return compare(federation.journals(), federation.roster, seen={}, **options)


def change(party, kind, round, **changes):
    """Let a party note something else."""

    def apply(told):
        told.find(party, kind, round).update(changes)

    return apply


def contributor(round, name, **changes):
    """Let the key authority note something else of a contributor."""

    def apply(told):
        told.find('key_authority', 'release', round)['contributors'][name].update(changes)

    return apply


def release_of_others(told):
    contributors = told.find('key_authority', 'release', 5)['contributors']
    contributors['hospital_9'] = contributors.pop('hospital_4')


def release_twice(told):
    at = [each[:3] for each in told.lines].index(('key_authority', 'release', 5))
    party, kind, round, attempt, fields = told.lines[at]
    told.lines.insert(at + 1, (party, kind, round, attempt + 1, {**fields, 'policy': digest(9)}))


def test_honest_journals_agree(federation):
    found = compared(federation, honest(ROUNDS))
    assert found.problems == [] and found.remarks == []
    assert found.released == (1, ROUNDS)
    assert found.compared == 4 + 3 + 4 + 0 + 4 + 3 == 18
    assert list(found.parties) == [*HOSPITALS, 'aggregator', 'key_authority']


@pytest.mark.parametrize(
    ('lie', 'problem'),
    [
        (contributor(5, 'hospital_2', update=digest('another')), 'hospital_2 did not send the up'),
        (contributor(5, 'hospital_2', ledger=ledger('hospital_2', 4)), 'did not send the ledger'),
        (change('hospital_2', 'sent', 5, update=digest('another')), 'hospital_2 did not send'),
        (lambda told: told.drop('hospital_2', 'sent', 5), 'hospital_2 did not send the update'),
        (change('hospital_3', 'policy', 5, policy=policy(9)), 'hospital_3 took another policy'),
        (change('hospital_3', 'policy', 5, included=False), 'with another list of contributors'),
        (change('hospital_4', 'policy', 6, included=True), 'with another list of contributors'),
        (change('hospital_1', 'policy', 0, policy=policy(9)), 'began from another policy than'),
        (change('hospital_1', 'signed', 5, survivors=HOSPITALS[:3]), 'signed other survivors'),
        (change('aggregator', 'settle', 5, survivors=HOSPITALS[:3]), 'others than the aggregator'),
        (release_of_others, 'released for others than the aggregator'),
        (release_twice, 'the key authority released two policies'),
        (change('key_authority', 'release', 5, before=policy(1)), 'from another policy than'),
        (change('key_authority', 'release', 4, policy=policy(4)), 'neither of updates nor'),
        (lambda told: told.drop('key_authority', 'release', 5), 'it after round 4'),
        (lambda told: told.drop('key_authority', 'release', 6), 'was never released'),
    ],
)
def test_a_lie_of_one_party_contradicts_another(federation, lie, problem):
    told = honest(ROUNDS)
    lie(told)
    problems = compared(federation, told).problems
    assert any(problem in each for each in problems), problems
    assert all(each.startswith('round ') for each in problems)


def test_an_older_policy_may_be_released_again(federation):
    told = honest(ROUNDS)
    release = told.find('key_authority', 'release', 6)
    release.update(policy=policy(1), rolled_back=True, contributors={})
    for name in HOSPITALS:
        told.find(name, 'policy', 6).update(policy=policy(1), included=False)
    assert compared(federation, told).problems == []


def test_what_was_said_again_after_a_restart_is_no_contradiction(federation):
    told = honest(ROUNDS)
    again = [each for each in told.lines for _ in range(2)]
    late = next(each for each in told.lines if each[:3] == ('hospital_1', 'policy', 2))
    at = [each[:3] for each in again].index(('hospital_1', 'sent', 3))
    told.lines = [*again[: at + 1], late, *again[at + 1 :]]
    assert compared(federation, told).problems == []


def test_what_is_not_there_is_said_and_the_rest_compared(federation):
    federation.write(honest(ROUNDS))
    journals = federation.journals()
    for name in ('hospital_2', 'aggregator'):
        del journals[name]
    found = compare(journals, federation.roster, seen={})
    assert found.problems == [] and found.compared == 18 - 5
    assert found.remarks == ['no journal here of aggregator, hospital_2']
    del journals['key_authority']
    found = compare(journals, federation.roster, seen={})
    assert found.problems == [] and found.compared == 0
    assert found.remarks == ['no journal here of aggregator, hospital_2, key_authority']


def test_a_damaged_journal_is_told_once_and_the_rest_compared(federation):
    federation.write(honest(ROUNDS))
    path = federation.path('hospital_2')
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b''.join(lines[:8] + lines[9:]))
    found = compare(federation.journals(), federation.roster, seen={})
    assert len(found.problems) == 1 and f'journal {path}: entry 9 is damaged' in found.problems[0]
    assert 'hospital_2' not in found.parties and len(found.parties) == 5
    path.write_bytes(b''.join(lines[:8]))
    seen, journals = {'hospital_2': {'me': Head(9, digest('9'))}}, federation.journals()
    assert 'was cut' in compare(journals, federation.roster, seen=seen).problems[0]
    path.unlink()
    found = compare(journals, federation.roster, seen=seen)
    assert found.problems == [f'journal {path}: No such file or directory']


def test_keys_are_those_of_the_roster_today_or_revoked(federation):
    roster, new = federation.roster, Identity.generate('hospital_2')
    members = tuple(
        replace(each, public=new.public) if each.name == 'hospital_2' else each
        for each in roster.members
    )
    old = roster.member('hospital_2').public
    rotated = replace(roster, members=members, serial=2, revoked=(Revoked('hospital_2', old, 2),))
    store = Store()
    identity = federation.identity('hospital_2')
    Journal(federation.path('hospital_2'), identity, roster.federation, store).close()
    federation.write(honest(ROUNDS))
    assert compare(federation.journals(), roster, seen={}).problems == []
    found = compare(federation.journals(), rotated, seen={})
    assert found.problems == []
    assert found.remarks == [
        'hospital_2 signs with a key that roster 2 revoked; its next start brings in the new one'
    ]
    Journal(federation.path('hospital_2'), new, roster.federation, store).close()
    found = compare(federation.journals(), rotated, seen={})
    assert found.problems == found.remarks == []
    assert found.parties['hospital_2'].keys == [old, new.public]
    (problem,) = compare(federation.journals(), roster, seen={}).problems
    assert 'which never was a key of hospital_2' in problem


def test_a_hospital_that_left_the_roster_is_still_compared(federation):
    roster = federation.roster
    gone = roster.member('hospital_4')
    members = tuple(each for each in roster.members if each is not gone)
    left = replace(
        roster,
        members=members,
        threshold=3,
        serial=2,
        revoked=(Revoked('hospital_4', gone.public, 2),),
    )
    told = honest(ROUNDS)
    change('hospital_4', 'sent', 5, update=digest('another'))(told)
    federation.write(told)
    found = compare(federation.journals(), left, seen={})
    assert found.problems == ['round 5: hospital_4 did not send the update that was released']
    assert found.remarks == ['hospital_4 signs with a key that roster 2 revoked']


def test_what_is_written_while_others_are_read_is_no_contradiction(federation, monkeypatch):
    """Hospitals and key authority go on at every moment in which their journals are read."""
    told = honest(40)
    later = [each for each in told.lines if each[2] > 20]
    told.lines = [each for each in told.lines if each[2] <= 20]
    federation.write(told)
    roster = federation.roster
    journals = {
        name: Journal(path, federation.identity(name), roster.federation)
        for name, path in federation.journals().items()
    }
    real = comparison._BandReader._advance

    def advance(reader, entries):
        for party, kind, round, attempt, fields in later[:3]:
            journals[party].append(kind, round=round, attempt=attempt, **fields)
        del later[:3]
        real(reader, entries)

    monkeypatch.setattr(comparison._BandReader, '_advance', advance)
    monkeypatch.setattr(comparison, 'BAND_ENTRIES', 1)
    found = compare(federation.journals(), roster, seen={})
    assert not later and found.problems == []
    assert found.released[1] >= 20
    for each in journals.values():
        each.close()
    monkeypatch.undo()
    assert compare(federation.journals(), roster, seen={}).released == (1, 40)


def _peak_of_comparing(federation: Federation, rounds: int) -> int:
    """Return the most bytes that Python held meanwhile, those of other tests' threads included."""
    told_bytes: list[int] = []
    tracemalloc.start()
    found = compare(
        federation.journals(),
        federation.roster,
        seen={},
        quick=True,
        progress=told_bytes.append,
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.problems == ['round 31: hospital_1 did not send the update that was released']
    assert found.released == (1, rounds) and told_bytes == sorted(told_bytes)
    return peak


def test_long_journals_are_compared_band_by_band_in_little_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, 'BAND_ENTRIES', 1)
    peaks = []
    for rounds in (60, 120):
        federation = Federation(tmp_path / f'{rounds}', HOSPITALS[:3])
        told = honest(rounds, HOSPITALS[:3])
        change('hospital_1', 'sent', 31, update=digest('another'))(told)
        federation.write(told)
        del told
        peaks.append(min(_peak_of_comparing(federation, rounds) for _ in range(3)))
    assert peaks[1] < 1.3 * peaks[0] + 60 * 100


def test_problems_are_told_up_to_a_number(federation, monkeypatch):
    monkeypatch.setattr(comparison, 'MOST_PROBLEMS', 2)
    told = honest(ROUNDS)
    for round in range(1, ROUNDS + 1):
        change('hospital_1', 'sent', round, update=digest('another'))(told)
    found = compared(federation, told)
    assert len(found.problems) == 2 and found.omitted == 2
