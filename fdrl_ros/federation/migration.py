# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Bring the state files of older versions to the present format, so that rounds go on.

Format 1 (before version 0.1.0) had a row for each thing that a party remembered, in four
encodings; format 2 (version 0.1.0) had records without proofs of guilt and projections
(docs/formats.md). Every promise is carried over: updates on disk, survivor sets that were signed
or revealed for, the sum that was chosen. So nothing is sent, revealed or decrypted otherwise.

Messages of an older protocol cannot be read any more, so no attempt goes on: an aggregator whose
survivors are fixed is refused, and hospitals take part again in the next attempt.
"""

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
import json
import os
from pathlib import Path
import sqlite3
from typing import Final

from fdrl_ros.crypto.keys.roster import SERVERS
from fdrl_ros.errors import FdrlError, StoreError
from fdrl_ros.federation.aggregator.state import AggregatorRecord
from fdrl_ros.federation.hospital.state import (
    HospitalRecord,
    LocalUpdate,
    Promises,
    Sent,
    Signed,
)
from fdrl_ros.federation.key_authority.state import KeyAuthorityRecord, Released, Served
from fdrl_ros.federation.protocol.encoding import decode, encode
from fdrl_ros.federation.protocol.message import Phase
from fdrl_ros.federation.protocol.store import FORMAT, FORMAT_ROW, OLDER
from fdrl_ros.learner.learner import TrainingResult
from fdrl_ros.policy import decode_weights
from fdrl_ros.privacy.ledger.chain import DIGEST
from fdrl_ros.runtime.durable import sync_folder

BACKUP: Final = '.format'
"""Ending, before its format, of the copy of a state file that is kept beside it."""

Rows = dict[str, bytes]


def migrate_file(
    path: Path, party: str, n_parameters: int, *, secure: bool, dry_run: bool = False
) -> bool:
    """
    Bring a party's state file to the present format, in one durable step.

    A copy of the old file stays beside it. After a kill, the file is of the old or of the present
    format, and doing it again is safe.

    :param party: 'aggregator', 'key_authority' or a hospital's name.
    :param n_parameters: weights of the federation's network.
    :param secure: whether the noise of all rounds so far was, by the federation's plan.
    :param dry_run: whether to convert without writing anything.
    :returns: whether it was of an old format.
    :raises StoreError: if it is in use, damaged, or of a newer version, or if survivors are fixed.
    """
    if not path.exists():
        return False
    try:
        with closing(sqlite3.connect(path, timeout=0.5, isolation_level=None)) as table:
            table.execute('PRAGMA locking_mode=EXCLUSIVE')
            table.execute('PRAGMA synchronous=FULL')
            table.execute('BEGIN EXCLUSIVE')
            rows = {
                str(name): bytes(value)
                for name, value in table.execute('SELECT name, value FROM entry')
            }
            found = rows.get(FORMAT_ROW, OLDER[0])
            if found == FORMAT or not rows:
                return False
            if found not in OLDER:
                raise StoreError(f'the state file {path} is of a newer version of fdrl_ros')
            converted = converted_rows(rows, party, n_parameters, secure=secure)
            if dry_run:
                return True
            _back_up(path, table, BACKUP + found.decode())
            table.execute('DELETE FROM entry')
            table.executemany('INSERT INTO entry VALUES (?, ?)', converted.items())
            table.execute('COMMIT')
            return True
    except StoreError:
        raise
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f'cannot migrate the state file {path}: {error}') from error
    except (FdrlError, ValueError, KeyError, TypeError, IndexError) as error:
        raise StoreError(f'the state file {path} is damaged: {error}') from error


def _back_up(path: Path, table: sqlite3.Connection, ending: str) -> None:
    """Copy the rows as they are into a file of their own."""
    backup = path.with_name(path.name + ending)
    part = path.with_name(backup.name + '.part')
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(part, isolation_level=None)) as copy:
        copy.execute('PRAGMA synchronous=FULL')
        copy.execute('CREATE TABLE entry (name TEXT PRIMARY KEY, value BLOB NOT NULL)')
        copy.execute('BEGIN')
        rows = table.execute('SELECT name, value FROM entry')
        copy.executemany('INSERT INTO entry VALUES (?, ?)', rows)
        copy.execute('COMMIT')
    part.replace(backup)
    sync_folder(path.parent)


def converted_rows(
    rows: Mapping[str, bytes], party: str, n_parameters: int, *, secure: bool
) -> Rows:
    """
    Convert the rows of a state file from format 1 or 2 to the present one.

    :raises StoreError: if the survivors of a round that is not over are fixed.
    """
    first, new = FORMAT_ROW not in rows, {}
    kept = {
        name: value
        for name, value in rows.items()
        if (_stays(name, party) if first else not name.startswith('received '))
    }
    if party == 'aggregator':
        new = _aggregator(rows) if first else _aggregator_2(rows)
    elif party in SERVERS:
        new = _key_authority(rows) if first else {}
        # Format 2 did not say in which rounds noise was seeded: policies of all of them are.
        new |= {} if secure else {'seeded': b'0'}
    else:
        new = _hospital(rows, n_parameters) if first else _hospital_2(rows)
    return {**kept, **new, FORMAT_ROW: FORMAT}


@dataclass(frozen=True)
class _Promises:
    """What bound a hospital in one round, in format 2."""

    round: int
    sent: tuple[bytes, ...]
    signed: tuple[Signed, ...]
    revealed: tuple[str, ...]


@dataclass(frozen=True)
class _HospitalRecord:
    """Row `state` of a hospital of format 2."""

    phase: Phase
    round: int
    attempt: int
    received: tuple[bytes, ...]
    over: int
    sending: tuple[Sent, ...]
    promises: tuple[_Promises, ...]
    ledger_seen: int
    begun: bool


def _hospital_2(rows: Mapping[str, bytes]) -> Rows:
    if 'state' not in rows:
        return {}
    old = decode(rows['state'], _HospitalRecord)
    promises = tuple(Promises(**vars(each)) for each in old.promises)
    return _written(HospitalRecord(**vars(old) | {'promises': promises}))


def _written(record: HospitalRecord) -> Rows:
    """Write a hospital's record down, beyond its attempt: nothing is sent in that one again."""
    attempt = record.attempt + 1
    left = replace(record, phase=Phase.WAITING, attempt=attempt, received=())
    return {'state': encode(left)}


def _aggregator_2(rows: Mapping[str, bytes]) -> Rows:
    if 'state' not in rows:
        return {}
    record = decode(rows['state'] + encode(()), AggregatorRecord)  # `bound` is new, and the last
    _check_survivors(record.round, record.survivors)
    return {'state': encode(record)}


def _check_survivors(round: int, survivors: Collection[str]) -> None:
    if survivors:
        raise StoreError(
            f'the survivors of round {round} are fixed, and what they sent cannot be read by this '
            'version: start all parties with the version that wrote it once more, and stop them '
            'when the round has ended, or was abandoned as its missing hospitals were withdrawn'
        )


def _stays(name: str, party: str) -> bool:
    """Tell whether a row is the same in both formats: counters, journal, ledger heads, orders."""
    same = ('counter', 'synced', 'journal', 'journal behind', 'paused', 'stopped', 'withdrawn')
    # In a hospital's file `ledger seen` is a counter; a server's is the head of a hospital `seen`.
    counter = name == 'ledger seen' and party not in SERVERS
    heads = name.startswith('ledger ') and not counter
    orders = name.startswith(('order ', 'refused ')) or name == 'unnoted order'
    return name in same or heads or orders or name == 'weights'


@dataclass(frozen=True)
class _Heard:
    """Row `heard` of a hospital of format 1."""

    round: int
    attempt: int
    messages: tuple[bytes, ...]


def _hospital(rows: Mapping[str, bytes], n_parameters: int) -> Rows:
    record = HospitalRecord(
        over=int(rows.get('over', b'0')),
        ledger_seen=int(rows.get('ledger seen', b'0')),
        begun='begun' in rows,
    )
    if 'heard' in rows:
        heard = decode(rows['heard'], _Heard)
        record = replace(record, round=heard.round, attempt=heard.attempt)
    for name, value in sorted(rows.items()):
        match name.split(' '):
            case 'sent', round:
                for at in range(0, len(value), DIGEST):
                    record = record.with_sent(int(round), value[at : at + DIGEST])
            case 'settled', round, attempt:
                record = record.with_signed((int(round), int(attempt)), json.loads(value))
            case 'revealed', round:
                record = record.with_revealed(int(round), json.loads(value))
    if sending := json.loads(rows.get('sending', b'null')):
        setup, update_hash = (bytes.fromhex(sending[name]) for name in ('setup', 'hash'))
        chunks = tuple((start, count) for start, count in sending['chunks'])
        sent = Sent(sending['of'][0], sending['of'][1], setup, update_hash, chunks)
        record = replace(record, sending=(sent,))
    new = _written(record)
    if 'update' in rows:
        new['update'] = encode(_old_update(rows['update'], n_parameters))
    return new


def _old_update(data: bytes, n_parameters: int) -> LocalUpdate:
    line, rest = data.split(b'\n', 1)
    head = json.loads(line)
    result = TrainingResult(
        weights=decode_weights(rest[: 4 * n_parameters], n_parameters),
        epsilon=head['epsilon'],
        ledger_entries=head['ledger_entries'],
        ledger_head=bytes.fromhex(head['ledger_head']),
        ledger_base_entries=head['ledger_base_entries'],
        ledger_base_head=bytes.fromhex(head['ledger_base_head']),
        ledger_links=rest[4 * n_parameters :],
    )
    return LocalUpdate(head['round'], bytes.fromhex(head['base']), result)


def _aggregator(rows: Mapping[str, bytes]) -> Rows:
    attempt = int(rows.get('round', b'1')), int(rows.get('attempt', b'0'))
    phase = Phase.OPEN if attempt[1] else Phase.WAITING
    fixed = json.loads(rows.get('fixed', b'null'))
    if fixed and (fixed['round'], fixed['attempt']) == attempt:
        _check_survivors(attempt[0], fixed['survivors'])
    return {'state': encode(AggregatorRecord(phase, *attempt))}


def _key_authority(rows: Mapping[str, bytes]) -> Rows:
    new = {
        name: encode(_old_released(value))
        for name, value in rows.items()
        if name.startswith('policy ') or name == 'summed'
    }
    round, phase = 0, Phase.WAITING
    if 'released' in rows:
        released = _old_released(rows['released'])
        new[f'policy {released.round}'] = encode(released)
        round, phase = released.round, Phase.RELEASED
    chosen, _, sum_hash = rows.get('decrypting', b'0 ').partition(b' ')
    if int(chosen) > round:
        phase = Phase.SUM
    served = tuple(
        Served(name.removeprefix('served '), int(value))
        for name, value in sorted(rows.items())
        if name.startswith('served ')
    )
    record = KeyAuthorityRecord(phase, round, int(chosen), sum_hash, served)
    return {**new, 'state': encode(record)}


def _old_released(data: bytes) -> Released:
    line, weights = data.split(b'\n', 1)
    head = json.loads(line)
    head['weights'] = decode_weights(weights, len(weights) // 4)
    head['update_hashes'] = bytes.fromhex(head['update_hashes'])
    return Released(**head | {name: tuple(head[name]) for name in ('contributors', 'sizes')})
