# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A round journal loses no entry, takes no other one, and shows whatever was done to it."""

from datetime import datetime, UTC
import hashlib
import json
import os
from pathlib import Path
import signal
import tempfile

from fdrl_ros.crypto.keys.signing import fingerprint, Identity
from fdrl_ros.errors import (
    JournalCutError,
    JournalDamagedError,
    JournalError,
    JournalLockedError,
    JournalOwnerError,
    JournalSignatureError,
    StoreError,
)
from fdrl_ros.federation.journal import journal as module
from fdrl_ros.federation.journal import reader
from fdrl_ros.federation.journal.journal import FILE, Head, head_noted, Journal, read
from fdrl_ros.federation.journal.reader import (
    Event,
    FIELDS,
    JournalReader,
    MOST_BYTES,
    MOST_LETTERS,
    parse_line,
    write_line,
)
from fdrl_ros.federation.protocol.store import Store
from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from support.journals import verify

NAME, FEDERATION = 'hospital_1', 'trial'
PARTY = Identity.generate(NAME)
KEYS = [PARTY.public]
UPDATE = hashlib.sha256(b'update').digest()
RELEASE = {'contributors': {}, 'before': UPDATE, 'policy': UPDATE}
RELEASE |= {'rolled_back': False, 'reason': ''}
SENT = {'update': UPDATE, 'ledger': Head(12, UPDATE)}


def opened(path, store=None, identity=PARTY, federation=FEDERATION):
    return Journal(path, identity, federation, store)


def filled(path, count, store=None, first=1):
    with opened(path, store) as journal:
        for round in range(first, first + count):
            head = journal.append('sent', round=round, attempt=1, **SENT)
    return head


def rounds(path):
    return [entry.round for entry in read(path)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / FILE


@pytest.fixture
def unsynced(monkeypatch):
    for each in ('fsync', 'fdatasync'):
        monkeypatch.setattr(os, each, lambda descriptor: None)


def test_an_entry_says_who_did_what_when_and_what_came_before(path):
    moment = datetime(2026, 5, 4, 3, 2, 1, 500_000, UTC)
    with Journal(path, PARTY, FEDERATION, clock=moment.timestamp) as journal:
        begun = journal.head
        head = journal.append('sent', round=7, attempt=2, **SENT)
        assert journal.head == head and list(journal.entries()) == list(read(path))
    first, entry = read(path)
    assert first.kind == 'begin' and first.fields == {'form': 1, 'public': PARTY.public.hex()}
    assert entry[:3] == (2, begun.digest.hex(), '2026-05-04T03:02:01.500Z')
    assert entry[3:9] == (NAME, FEDERATION, 7, 2, 'sent', fingerprint(PARTY.public))
    assert entry.fields == {'update': UPDATE.hex(), 'ledger': f'12:{UPDATE.hex()}'}
    assert (
        entry.head == head == Head(2, hashlib.sha256(path.read_bytes().split(b'\n')[1]).digest())
    )
    assert path.stat().st_mode & 0o777 == 0o600
    line = json.loads(path.read_text().splitlines()[1])
    assert [line[name] for name in entry._fields[:11]] == list(entry[:11])


def test_an_entry_is_on_the_disk_when_append_returns(path, monkeypatch):
    synced = []
    with opened(path) as journal, monkeypatch.context() as patch:
        size = lambda descriptor: synced.append(os.fstat(descriptor).st_size)  # noqa: E731
        patch.setattr(os, 'fdatasync', size)
        journal.append('sent', round=1, attempt=1, **SENT)
        assert synced == [path.stat().st_size]


def test_a_journal_goes_on_after_a_restart(path):
    filled(path, 3)
    with opened(path) as journal:
        assert journal.newest_round('sent') == 3 and journal.newest_round('policy') is None
    head = filled(path, 2)
    assert rounds(path) == [0, 1, 2, 3, 1, 2]
    assert verify(path, KEYS, party=NAME, federation=FEDERATION, seen={'me': head}).head == head


def test_a_journal_in_memory_is_the_same_without_a_file():
    with opened(None) as journal:
        journal.append('signed', round=1, survivors=('hospital_1', 'hospital_2'))
        assert [entry.kind for entry in journal.entries()] == ['begin', 'signed']
        for _ in range(module.KEPT_IN_MEMORY):
            head = journal.append('revealed', seeds=(), masks=())
        kept = list(journal.entries())
    assert len(kept) == module.KEPT_IN_MEMORY and kept[-1].head == head
    assert head.entries == module.KEPT_IN_MEMORY + 2


def test_with_a_store_a_start_reads_the_end_alone(path):
    store = Store()
    filled(path, 20, store)
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    with opened(path, store) as journal:
        assert journal.newest_round('sent') == 20
        journal.append('sent', round=21, **SENT)
    with pytest.raises(JournalDamagedError, match='entry [12]'):
        verify(path, KEYS)


@pytest.mark.parametrize(('noted', 'stride'), [(False, 3), (True, 7)])
def test_a_kill_at_any_byte_of_a_write_loses_and_forges_nothing(path, noted, stride, unsynced):
    """A kill leaves a beginning of the line, or the line before its head was noted."""
    store = Store()
    opened(path, store).close()
    first = path.read_bytes()
    filled(path, 1, store)
    note, before = store.get('journal'), path.read_bytes()
    filled(path, 1)
    line = path.read_bytes().removeprefix(before)
    for count in (*range(0, len(line) - 1, stride), len(line) - 1, len(line)):
        path.write_bytes(before + line[:count])
        store.put('journal', note)
        whole = count >= len(line) - 1
        with opened(path, store if noted else None) as journal:
            assert journal.head.entries == 2 + whole
            journal.append('sent', round=9, **SENT)
        assert rounds(path) == [0, 1, 1, 9] if whole else [0, 1, 9]
    for count in range(0, len(first), 10):  # nor does one in the very first line
        path.write_bytes(first[:count])
        with opened(path) as journal:
            assert journal.head.entries == 1


def test_zeros_that_a_power_cut_left_are_removed(path):
    filled(path, 2)
    whole = path.read_bytes()
    for rest in (bytes(40), b'{"number":4,' + bytes(40)):
        path.write_bytes(whole + rest)
        assert verify(path, KEYS).cut_short
        with opened(path) as journal:
            assert journal.head.entries == 3
        assert path.read_bytes() == whole


@pytest.mark.parametrize('step', ['write', 'half', 'fdatasync', 'note', 'done'])
def test_a_party_killed_at_any_step_goes_on_from_every_entry_that_was_noted(path, tmp_path, step):
    """In a process of its own, by SIGKILL."""
    state, told = tmp_path / 'state.sqlite', tmp_path / 'told'
    for first in (1, 3):
        if not (child := os.fork()):
            try:
                _append_until_killed(path, state, told, first, step)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        done = [int(each) for each in told.read_text().split()]
        store = Store(state)
        with opened(path, store) as journal:
            found = [entry.round for entry in journal.entries() if entry.kind == 'sent']
        store.close()
        written = [] if step in ('write', 'half') else [first + 1]
        assert found == (done if done[-1] == first + 1 else done + written)
        told.write_text(' '.join(map(str, found)) + ' ')
    assert verify(path, KEYS, seen={'state': head_noted(state)}).head == head_noted(state)


def _append_until_killed(path, state, told, first, step):
    store = Store(state)
    journal = opened(path, store)
    journal.append('sent', round=first, **SENT)
    with told.open('a') as file:
        file.write(f'{first} ')

    def kill(*unused):
        os.kill(os.getpid(), signal.SIGKILL)

    real = os.write
    if step == 'half':
        os.write = lambda descriptor, data: (real(descriptor, data[: len(data) // 2]), kill())
    elif step == 'note':
        store.put = kill
    elif step != 'done':
        setattr(os, step, kill)
    journal.append('sent', round=first + 1, **SENT)
    with told.open('a') as file:
        file.write(f'{first + 1} ')
    kill()


def test_a_second_writer_is_refused(path):
    with opened(path), pytest.raises(JournalLockedError, match='already open'):
        opened(path)
    ready, tell = os.pipe()
    ended, end = os.pipe()
    if not (owner := os.fork()):
        journal = opened(path)
        journal.append('sent', **SENT)
        if os.fork():
            signal.pause()
        os.write(tell, b'x')  # the worker: by now it has let go of its parent's journal
        os.close(end)
        os.read(ended, 1)  # a worker lives on when its parent is killed
        os._exit(0)
    os.read(ready, 1)
    with pytest.raises(JournalLockedError):
        opened(path)
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    with opened(path) as journal:
        assert journal.head.entries == 2
    for each in (ready, tell, ended, end):
        os.close(each)


def test_a_forked_child_cannot_write_its_parents_journal(path):
    with opened(path) as journal:
        if not (child := os.fork()):
            try:
                journal.append('sent', **SENT)
            except JournalError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert journal.append('sent', **SENT).entries == 2


def test_a_cut_is_noticed_by_who_kept_the_head_and_by_nobody_else(path):
    store = Store()
    head = filled(path, 4, store)
    lines = path.read_bytes().splitlines(keepends=True)
    for count in range(len(lines)):
        path.write_bytes(b''.join(lines[:count]))
        assert verify(path, KEYS).head.entries == count  # whole lines off the end: see the docs
        with pytest.raises(
            JournalCutError, match=f'ends with entry {count}, and the store saw 5:'
        ):
            verify(path, KEYS, seen={'the store': head})
        with pytest.raises(JournalCutError, match='was cut or changed'):
            opened(path, store)
    path.unlink()
    with pytest.raises(JournalCutError):
        opened(path, store)
    path.write_bytes(b''.join(lines))
    with opened(path, store) as journal:
        assert journal.head == head


def test_another_history_is_noticed_by_who_kept_the_head(path, tmp_path):
    store = Store()
    head = filled(path, 4, store)
    os.rename(path, tmp_path / 'older')
    filled(path, 9, first=2)  # the same entries in the same millisecond were the same history
    with pytest.raises(JournalCutError, match='was cut or changed'):
        opened(path, store)
    with pytest.raises(JournalDamagedError, match='entry 5 .* another one than the store saw'):
        verify(path, KEYS, seen={'the store': head})


def test_a_damaged_note_is_told(path, tmp_path):
    store = Store(tmp_path / 'state.sqlite')
    store.put('journal', b'["12", 0]')
    with pytest.raises(StoreError, match='state.sqlite is damaged: journal'):
        opened(path, store)
    store.close()
    with pytest.raises(StoreError, match='state.sqlite is damaged: journal'):
        head_noted(tmp_path / 'state.sqlite')
    assert head_noted(tmp_path / 'none.sqlite') is None


def test_a_new_key_is_introduced_by_an_entry_and_the_old_one_stays_known(path):
    store, new = Store(), Identity.generate(NAME)
    filled(path, 2, store)
    with opened(path, store, new) as journal:
        journal.append('sent', round=3, **SENT)
    kinds = [(entry.kind, entry.key) for entry in read(path)]
    old, young = (fingerprint(each.public) for each in (PARTY, new))
    assert kinds == [('begin', old), *2 * [('sent', old)], ('rotate', young), ('sent', young)]
    for quick in (False, True):
        found = verify(path, [new.public, PARTY.public], quick=quick)
        assert found.keys == [PARTY.public, new.public]
    for keys in ([new.public], KEYS, []):
        with pytest.raises(JournalSignatureError, match='never was a key of hospital_1'):
            verify(path, keys)
    assert verify(path, None).head.entries == 5
    with opened(path, store, new) as journal:
        assert journal.head.entries == 5


def test_a_journal_of_a_strangers_key_is_not_gone_on_with(path, tmp_path):
    """Who has no key of the party can make a journal, or add to one, but not have it taken."""
    store, stranger = Store(), Identity.generate(NAME)
    filled(path, 2)
    with pytest.raises(JournalSignatureError, match='knows of no such key'):
        opened(path, None, stranger)
    filled(tmp_path / 'other', 2, store)
    with opened(tmp_path / 'other', store, stranger) as journal:
        journal.append('sent', round=3, **SENT)
    os.replace(tmp_path / 'other', path)
    for each in (None, Store()):
        with pytest.raises(JournalSignatureError, match='knows of no such key'):
            opened(path, each)


def test_a_journal_is_of_one_party_and_federation(path):
    filled(path, 1)
    with pytest.raises(JournalOwnerError, match="entry 1 is of federation 'trial', not 'other'"):
        opened(path, federation='other')
    with pytest.raises(JournalOwnerError, match="of party 'hospital_1', not 'hospital_2'"):
        opened(path, identity=Identity.generate('hospital_2'))
    with pytest.raises(JournalOwnerError):
        verify(path, KEYS, party='hospital_2')


@pytest.mark.parametrize(
    ('kind', 'fields'),
    [
        ('weights', {'weights': b'1'}),
        ('sent', {'update': UPDATE}),
        ('sent', {**SENT, 'patients': 'Ann'}),
        ('sent', {**SENT, 'update': UPDATE + b'1'}),
        ('sent', {**SENT, 'ledger': '12'}),
        ('signed', {'survivors': ['Ann Other']}),
        ('policy', {'policy': UPDATE, 'included': 1}),
        ('fail', {'reason': 1.5}),
        ('fail', {'reason': None}),
        ('begin', {'form': 1, 'public': UPDATE}),
        ('rotate', {'public': UPDATE}),
        ('release', RELEASE | {'contributors': {'hospital_1': {'size': 1, 'update': UPDATE}}}),
        ('release', RELEASE | {'contributors': {'Ann': SENT | {'size': 1}}}),
        ('release', RELEASE | {'rolled_back': 0}),
    ],
)
def test_nothing_else_is_ever_written(path, kind, fields):
    with opened(path) as journal:
        before = path.read_bytes()
        with pytest.raises(JournalError):
            journal.append(kind, round=1, **fields)
        with pytest.raises(JournalError):
            journal.append('sent', round=-1, **SENT)
        assert path.read_bytes() == before
        assert journal.append('sent', **SENT).entries == 2


def test_text_of_others_is_bounded_and_cannot_break_a_line(path):
    with opened(path) as journal:
        journal.append('fail', reason='a\n"}{\x1b[2J' + 'é' * 2000)
        with pytest.raises(JournalError, match=f'expected below {MOST_BYTES}'):
            journal.append('signed', survivors=['hospital_1'] * (MOST_BYTES // 12))
    _, entry = read(path)
    reason = entry.fields['reason']
    assert reason.startswith('a\n"}{\x1b[2Jé') and len(reason) == MOST_LETTERS
    assert path.read_bytes().isascii() and verify(path, KEYS).head.entries == 2


@pytest.mark.parametrize('harm', ['full', 'error'])
def test_a_write_that_fails_closes_the_journal_and_the_next_start_mends_it(
    path, monkeypatch, harm
):
    real = os.write

    def write(descriptor, data):
        if harm == 'error':
            raise OSError(5, 'Input/output error')
        return real(descriptor, data[:100])

    with opened(path) as journal:
        monkeypatch.setattr(os, 'write', write)
        with pytest.raises(JournalError, match='cannot be written: (the disk is full|Input)'):
            journal.append('sent', round=1, **SENT)
        monkeypatch.undo()
        with pytest.raises(JournalError, match='is closed'):
            journal.append('sent', round=1, **SENT)
    with opened(path) as journal:
        assert journal.head.entries == 1


def test_a_journal_that_was_changed_or_moved_while_it_was_open_is_not_written(path, tmp_path):
    with opened(path) as journal:
        with path.open('ab') as file:
            file.write(b'{}\n')
        with pytest.raises(JournalCutError, match='changed while it was open'):
            journal.append('sent', **SENT)
    path.unlink()
    with opened(path) as journal:
        path.rename(tmp_path / 'away')
        with pytest.raises(JournalError):
            journal.append('sent', **SENT)
    os.symlink(tmp_path / 'away', path)
    with pytest.raises(JournalError):
        opened(path)
    for bad in (tmp_path, tmp_path / 'none' / FILE):
        with pytest.raises(JournalError):
            opened(bad)
        with pytest.raises(JournalError):
            verify(bad, KEYS)


def test_every_signature_is_looked_at_unless_quickly(path):
    """Only the party itself can sign after a line that it did not sign."""
    head, lines = Head(0, bytes(32)), []
    common = {'time': '2026-05-04T03:02:01.500Z', 'federation': FEDERATION}
    for number in range(1200):
        kind, fields = ('sent', SENT) if number else ('begin', {'form': 1, 'public': PARTY.public})
        line, _ = write_line(PARTY, head, Event(kind, number, 0, fields), **common)
        if number == 700:
            line = line[:-3] + (b'0' if line[-3:-2] != b'0' else b'1') + line[-2:]
        lines.append(line + b'\n')
        head = parse_line(line).head
    path.write_bytes(b''.join(lines))
    assert verify(path, KEYS, quick=True).head == head
    with pytest.raises(JournalSignatureError, match='entry 701: .* did not sign it'):
        verify(path, KEYS)
    path.write_bytes(b''.join(lines[:701]))
    with pytest.raises(JournalSignatureError, match='entry 701'):
        verify(path, KEYS, quick=True)


def test_a_journal_can_be_read_while_it_is_written(path, tmp_path):
    filled(path, 3)
    content, other = path.read_bytes(), tmp_path / 'growing'
    for step in (13, 100, 449, 450, 451):
        walk, found = JournalReader(other), []
        for end in (*range(0, len(content), step), len(content)):
            other.write_bytes(content[:end])
            found += walk.entries()
        assert [entry.round for entry in found] == [0, 1, 2, 3]
        whole = verify(path, KEYS)
        assert (walk.place, walk.keys, walk.times) == (whole.place, whole.keys, whole.times)


def _whole_journal():
    with tempfile.TemporaryDirectory() as folder:
        path, store, new = Path(folder) / FILE, Store(), Identity.generate(NAME)
        filled(path, 3, store)
        with opened(path, store, new) as journal:
            for round in (4, 5):
                journal.append('policy', round=round, policy=UPDATE, included=True)
        return path.read_bytes(), [PARTY.public, new.public], list(read(path))


WHOLE, BOTH, ENTRIES = _whole_journal()
LINES = WHOLE.splitlines(keepends=True)


def _edited(draw):
    """Flip, remove, insert or swap bytes or lines."""
    lines = draw(st.booleans())
    parts = list(LINES) if lines else [WHOLE[at : at + 1] for at in range(len(WHOLE))]
    one, other = sorted(draw(st.integers(0, len(parts) - 1)) for _ in range(2))
    match draw(st.sampled_from(['change', 'swap', 'insert', 'cut'])):
        case 'change' if not lines:
            parts[one] = bytes([parts[one][0] ^ draw(st.integers(1, 255))])
        case 'swap':
            parts[one], parts[other] = parts[other], parts[one]
        case 'insert':
            parts.insert(other, parts[one])
        case _:
            del parts[one : max(one + 1, other)]
    return b''.join(parts)


@settings(max_examples=80, deadline=None)
@given(st.composite(_edited)(), st.booleans())
def test_whatever_is_changed_is_found_except_a_cut_that_nobody_remembers(content, quick):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        path.write_bytes(content)
        found = None
        try:
            summary = verify(path, BOTH, quick=quick)
            found = list(read(path))
        except JournalError:
            pass
        else:
            # What is left is a beginning of what was written, and nothing else.
            assert found == ENTRIES[: len(found)] and summary.head.entries == len(found)
        try:
            verify(path, BOTH, seen={'the store': ENTRIES[-1].head}, quick=quick)
        except JournalError:
            assert content != WHOLE
        else:
            assert found == ENTRIES and (content == WHOLE or summary.cut_short)


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=400), st.sampled_from([b'', LINES[0], b'{"number":1,"previous":"']))
def test_garbage_is_no_journal_and_no_crash(garbage, before):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        path.write_bytes(before + garbage)
        try:
            assert verify(path, KEYS).head.entries <= 1
        except JournalError:
            pass


@pytest.mark.parametrize(
    'fields',
    [
        '{"a":' * 100_000 + '1' + '}' * 100_000,
        '{"reason":NaN}',
        '{"reason":"\\ud800"}',
        '{"a":1,"a":1}',
    ],
)
def test_a_line_of_strange_json_is_refused(path, fields):
    line = LINES[1].replace(b'"kind":"sent"', b'"kind":"fail"')
    begin, end = line.index(b'"fields":') + 9, line.index(b',"signature"')
    path.write_bytes(LINES[0] + line[:begin] + fields.encode() + line[end:])
    with pytest.raises(JournalDamagedError):
        verify(path, KEYS)


def test_kinds_of_a_later_version_are_chained_and_signed_like_the_others(path, monkeypatch):
    monkeypatch.setattr(reader, 'FIELDS', {**FIELDS, 'novel': ('shape',)})
    monkeypatch.setitem(reader.VALUES, 'shape', [range(3)])
    with opened(path) as journal:
        journal.append('novel', shape=[1, 2])
    monkeypatch.undo()
    assert verify(path, KEYS).head.entries == 2
