# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Bring the state files of an older version to the present format, so that rounds go on.

Format 1 (before version 0.1.0) had a row for each thing that a party remembered, in four
encodings; format 2 has one record in one encoding (docs/formats.md). Every promise is carried
over: attempts that are under way, updates and shares on disk, survivor sets that were signed or
revealed for, the sum that was chosen. So nothing is sent, revealed or decrypted otherwise.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
import json
import os
from pathlib import Path
import sqlite3
from typing import Final

from fdrl_ros.crypto.keys.roster import SERVERS
from fdrl_ros.errors import FdrlError, StoreError
from fdrl_ros.federation.aggregator.state import AggregatorRecord, Chunk, UpdateIndex
from fdrl_ros.federation.hospital.state import HospitalRecord, LocalUpdate, Sent
from fdrl_ros.federation.key_authority.state import KeyAuthorityRecord, Released, Served
from fdrl_ros.federation.protocol.encoding import decode, encode
from fdrl_ros.federation.protocol.message import Phase
from fdrl_ros.federation.protocol.store import FORMAT, FORMAT_ROW
from fdrl_ros.learner.learner import TrainingResult
from fdrl_ros.policy import decode_weights
from fdrl_ros.privacy.ledger.chain import DIGEST
from fdrl_ros.runtime.durable import sync_folder

BACKUP: Final = '.format1'
"""Ending of the copy of a state file that is kept beside it."""

Rows = dict[str, bytes]


def migrate_file(path: Path, party: str, n_parameters: int, *, dry_run: bool = False) -> bool:
    """
    Bring a party's state file to the present format, in one durable step.

    A copy of the old file stays beside it. After a kill, the file is of the old or of the present
    format, and doing it again is safe.

    :param party: 'aggregator', 'key_authority' or a hospital's name.
    :param n_parameters: weights of the federation's network.
    :param dry_run: whether to convert without writing anything.
    :returns: whether it was of the old format.
    :raises StoreError: if it is in use, damaged, or of a newer version.
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
            if rows.get(FORMAT_ROW, FORMAT) != FORMAT:
                raise StoreError(f'the state file {path} is of a newer version of fdrl_ros')
            if FORMAT_ROW in rows or not rows:
                return False
            converted = converted_rows(rows, party, n_parameters)
            if dry_run:
                return True
            _back_up(path, table)
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


def _back_up(path: Path, table: sqlite3.Connection) -> None:
    """Copy the rows as they are into a file of their own."""
    backup = path.with_name(path.name + BACKUP)
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


def converted_rows(rows: Mapping[str, bytes], party: str, n_parameters: int) -> Rows:
    """
    Convert the rows of a state file from format 1 to format 2.

    :raises StoreError: if they are not those of a party.
    """
    if party in SERVERS:
        new = _aggregator(rows) if party == 'aggregator' else _key_authority(rows)
    else:
        new = _hospital(rows, n_parameters)
    kept = {name: value for name, value in rows.items() if _stays(name, party)}
    return {**kept, **new, FORMAT_ROW: FORMAT}


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
        record = replace(record, round=heard.round, attempt=heard.attempt, received=heard.messages)
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
    new = {'state': encode(replace(record, phase=_hospital_phase(record)))}
    if 'update' in rows:
        new['update'] = encode(_old_update(rows['update'], n_parameters))
    return new


def _hospital_phase(record: HospitalRecord) -> Phase:
    """Return the phase that a hospital waits in, out of what it promised in its attempt."""
    promises = record.of(record.round)
    if record.round <= record.over:
        return Phase.RELEASED if record.over else Phase.WAITING
    if promises.revealed:
        return Phase.SUM
    if any(each.attempt == record.attempt for each in promises.signed):
        return Phase.REVEAL
    if any(each.id == record.id for each in record.sending):
        return Phase.SETTLE
    return Phase.TRAIN if record.received else Phase.WAITING


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
    record, new = AggregatorRecord(phase, *attempt), {}
    fixed = json.loads(rows.get('fixed', b'null'))
    if fixed and (fixed['round'], fixed['attempt']) == attempt:
        index = json.loads(rows.get('updates', b'{}'))
        record = AggregatorRecord(
            Phase.REVEAL if fixed['revealing'] else Phase.SETTLE,
            *attempt,
            terms=bytes.fromhex(fixed['terms']),
            keyed=tuple(fixed['keyed']),
            members=tuple(fixed['members']),
            survivors=tuple(fixed['survivors']),
            updates=tuple(
                UpdateIndex(
                    name,
                    tuple(
                        Chunk((start, count), bytes.fromhex(digest))
                        for _, start, count, digest in sorted(index[name])
                    ),
                )
                for name in fixed['survivors']
            ),
        )
        new = {
            name.replace('heard ', 'received ', 1): value
            for name, value in rows.items()
            if name.startswith('heard ')
        }
    return {**new, 'state': encode(record)}


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
