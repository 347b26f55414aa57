# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The newest roster that a party has used, remembered so that an older one cannot come back.

Otherwise whoever can put an old file in the place of the newest would undo a revocation, though
the root did sign it once.
"""

import json
from pathlib import Path
from typing import Final

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.errors import RosterRollbackError, StoreError
from fdrl_ros.runtime.durable import replacing

ROSTER_MEMORY: Final = 'roster.seen'
"""File of it, in the directory of what a party must not forget."""


def remember_roster(path: Path, roster: Roster) -> None:
    """
    Refuse a roster older than the newest that was used, and remember this one durably.

    :param path: file of this party's memory.
    :raises RosterRollbackError: if it is older, another of the same number, or of another
        federation.
    :raises StoreError: if the memory is damaged or cannot be written.
    """
    if check_remembered(path, roster):
        return
    try:
        with replacing(path) as file:
            file.write(memory_of(roster))
    except OSError as error:
        raise StoreError(f'{path} cannot be used: {error.strerror}') from error


def check_remembered(path: Path, roster: Roster) -> bool:
    """
    Refuse a roster as :func:`remember_roster` does, and remember nothing.

    :returns: whether it is the very one that is remembered.
    :raises RosterRollbackError: if it is older, another of the same number, or of another
        federation.
    :raises StoreError: if the memory is damaged or cannot be read.
    """
    try:
        if not path.exists():
            return False
        seen = json.loads(path.read_bytes())
        _compare(path, roster, seen['federation'], seen['serial'], seen['digest'])
        return bool(seen['serial'] == roster.serial)
    except OSError as error:
        raise StoreError(f'{path} cannot be used: {error.strerror}') from error
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f'{path} is damaged; it tells which roster this party used last: restore it'
        ) from error


def memory_of(roster: Roster) -> bytes:
    """Return what is remembered of a roster."""
    seen = {
        'federation': roster.federation,
        'serial': roster.serial,
        'digest': roster.digest,
    }
    return (json.dumps(seen) + '\n').encode('ascii')


def _compare(path: Path, roster: Roster, federation: str, serial: int, digest: str) -> None:
    here = f'roster {roster.serial} of {roster.federation}'
    if roster.federation != federation:
        raise RosterRollbackError(f'{here}: this party was of federation {federation} ({path})')
    if roster.serial < serial:
        raise RosterRollbackError(
            f'{here} is older than roster {serial}, which this party has used ({path}): take the '
            f'newest one; to bring back an old roster would bring back keys that were revoked'
        )
    if roster.serial == serial and roster.digest != digest:
        raise RosterRollbackError(
            f'{here} has the digest {roster.digest[:16]}..., and the one that this party used '
            f'({path}) {digest[:16]}...: the root signed two of one number, or the federation was '
            f'made anew under its old name; ask who holds the root'
        )
