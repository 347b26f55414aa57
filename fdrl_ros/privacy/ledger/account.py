# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
One budget of a patient across federations: an account that several ledgers of a site charge.

An account is itself a ledger file. A block is charged there first, then in the federation's own
ledger, and then its noise is drawn. So whenever a process is killed, the account has every charge
that any of its ledgers has, and it composes all of them as one history.

The rows of one ledger have its number as their round. Their block and inputs are those of the
ledger's link, by which a charge that a kill left in the account alone is found and counted once.
The first row of a ledger charges 0 steps; its inputs are the ledger's path, for people.
"""

from dataclasses import replace
import hashlib
import logging
import os
from pathlib import Path
from typing import NamedTuple, Self

from fdrl_ros.errors import (
    LedgerCorruptError,
    LedgerError,
    LedgerOwnerError,
    os_errors_as,
    PrivacyError,
)
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld, merged
from fdrl_ros.privacy.ledger.chain import Chain, Entry, Head, Owner
from fdrl_ros.privacy.ledger.file import note_path
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.runtime.durable import write_whole

log = logging.getLogger(__name__)

ACCOUNT = 'shared account'
"""What stands in place of the model among the promises of an account."""

_NOTHING = Charge(0.0, 1.0, 0, 1)
_PATIENCE = 60.0  # second; each ledger holds an account for the milliseconds of one reservation


class Note(NamedTuple):
    """What a ledger remembers of its account: a head that it had, and where it lies."""

    head: Head
    path: Path

    @classmethod
    def read(cls, ledger: Path) -> Self | None:
        """
        Return the note beside a ledger; None if it charges no account.

        :raises LedgerError: if it cannot be read, or is damaged.
        """
        place = note_path(ledger)
        if not os.path.lexists(place):
            return None
        with os_errors_as(LedgerError, f'{place} cannot be read'):
            head, _, path = place.read_bytes().partition(b'\n')
        try:
            return cls(Head.parse(head.decode('ascii', 'replace')), Path(os.fsdecode(path)))
        except PrivacyError as error:
            raise LedgerCorruptError(f'{place} is damaged: {error}') from error

    def write(self, ledger: Path) -> None:
        """
        Keep the note beside a ledger, durably.

        :raises StoreError: if it cannot be written.
        """
        write_whole(note_path(ledger), str(self.head).encode() + b'\n' + os.fsencode(self.path))


class Part(NamedTuple):
    """What one ledger charged to an account; ``ledger``: where it lay when it joined."""

    ledger: str
    blocks: int
    epsilon: float


def parts(chain: Chain) -> list[Part]:
    """Return what each ledger of an account has spent, in the order in which they joined."""
    names: dict[int, str] = {}
    charges: dict[int, list[Charge]] = {}
    for entry in chain.entries:
        if entry.charge == _NOTHING:
            names[entry.round] = os.fsdecode(entry.inputs)
        else:
            charges.setdefault(entry.round, []).append(entry.charge)
    return [
        Part(name, len(spent := charges.get(number, [])), epsilon_pld(spent, chain.owner.delta))
        for number, name in names.items()
    ]


def missing_entry(account: Chain, ledger: Chain) -> str:
    """Describe the first entry of a ledger that its account does not have; empty if it has all."""
    for entry in ledger.entries:
        if not _has(account, ledger.owner, entry):
            return (
                f'lacks entry {entry.number} of a ledger that charges it: it is an old copy, or '
                'an older version of this program wrote that entry'
            )
    return ''


def charged_by_others(account: Chain, ledger: Owner | None) -> tuple[Charge, ...]:
    """
    Return all charges of an account but those of one ledger, equal ones added up.

    :param ledger: its owner; None for one that is still to join.
    """
    number = None if ledger is None else _number_of(ledger)
    others = (each.charge for each in account.entries if each.round != number)
    return merged(charge for charge in others if charge.steps)


class SharedAccount(Ledger):
    """The file of an account, which one process has open for one reservation."""

    kind = 'account'

    def __init__(self, path: Path, promise: Owner, seen: Head | None) -> None:
        """
        Open and lock an account, or create one, and verify it.

        :param promise: of the ledger that charges it.
        :param seen: a head that it had before; None for a ledger that never charged it.
        :raises LedgerOwnerError: if it counts for another unit, delta or budget.
        :raises LedgerLockedError: if others have it open all the time.
        :raises LedgerError: if it is missing and was there, is older than the head, or damaged.
        """
        self.account = path
        # Federations give a hospital other names, and train other models.
        owner = Owner('', promise.unit, promise.delta, promise.budget, ACCOUNT)
        try:
            super().__init__(path, owner, seen=seen, patience=_PATIENCE)
        except LedgerOwnerError as error:
            raise LedgerOwnerError(
                f'{error}: all ledgers of an account promise the same unit, delta and budget'
            ) from error

    def join(self, ledger: Chain, name: str) -> None:
        """Add a ledger, and what it spent before it had an account, whatever the budget."""
        number = _number_of(ledger.owner)
        if self.chain.get(number, 0) is None:
            count, digest = self.chain.head
            first = Entry(count + 1, number, 0, _NOTHING, os.fsencode(name), b'')
            *_, head = Head(count, digest).followed(first.link)
            self._append(replace(first, digest=head.digest))
        for entry in ledger.entries:
            if not _has(self.chain, ledger.owner, entry):
                block = _block_of(entry)
                self._append(self.chain.next(number, block, entry.charge, entry.link))

    def charge(self, ledger: Owner, entry: Entry) -> None:
        """
        Charge an entry that a ledger is going to have; once, however often it is asked for.

        :raises BudgetExceededError: if all ledgers together would exceed the budget.
        """
        self.reserve(
            round=_number_of(ledger),
            block=_block_of(entry),
            charge=entry.charge,
            inputs=entry.link,
        )


class AccountedLedger(Ledger):
    """A ledger whose every block is charged to a shared account as well, and before."""

    account: Path

    def __init__(
        self,
        path: str | os.PathLike[str],
        owner: Owner,
        account: Path,
        *,
        seen: Head | None = None,
    ) -> None:
        """
        Open a ledger as :class:`Ledger` does, and its account.

        Entries that were charged before the ledger had an account are added to it.

        :param account: its file, on a local disk; its folder must exist. It is created unless this
            ledger charged an account before.
        :raises LedgerError: as :class:`Ledger`, of the ledger and of the account.
        """
        self.account = account.absolute()
        super().__init__(path, owner, seen=seen)

    def check(self, *charges: Charge) -> None:
        """
        Check that charges fit the budget together with those of all ledgers of the account.

        :raises BudgetExceededError: if they do not.
        """
        self._check(charges, self.charged_elsewhere())

    def charged_elsewhere(self) -> tuple[Charge, ...]:
        """Return what the other ledgers of the account charged."""
        with self._lock, self._opened() as account:
            return charged_by_others(account.chain, self.owner)

    def _opened(self) -> SharedAccount:
        return SharedAccount(self.account, self.owner, self._seen)

    def _join(self) -> None:
        note = Note.read(self._path)
        moved = note is not None and note.path != self.account
        if note is not None and moved and os.path.lexists(note.path):
            raise LedgerError(
                f'ledger {self._path} charges account {note.path}, which is there, and not '
                f'{self.account}: a copy would miss what others charge'
            )
        self._seen = None if note is None else note.head
        with self._opened() as account:
            if note is not None and (problem := missing_entry(account.chain, self.chain)):
                # Adding this ledger's entries would not bring back those of others.
                raise LedgerCorruptError(
                    f'account {self.account} {problem}: put back the newest (docs/privacy.md)'
                )
            if not account.chain.head.entries:
                log.warning('%s is a new account: nothing was charged to it', self.account)
            account.join(self.chain, str(self._path.absolute()))
            self._seen = account.chain.head
        if note is None or moved:
            Note(self._seen, self.account).write(self._path)

    def _admit(self, entry: Entry) -> None:
        self._check((entry.charge,), ())
        with self._opened() as account:
            account.charge(self.owner, entry)
            self._seen = account.chain.head


def _number_of(ledger: Owner) -> int:
    """Return the number of a ledger in accounts, which follows from its birth."""
    return _whole(ledger.digest)


def _block_of(entry: Entry) -> int:
    return _whole(entry.link)


def _whole(digest: bytes) -> int:
    """Return 63 bits of a hash; equal ones of different entries are refused, not confused."""
    return int.from_bytes(digest[:8], 'little') >> 1


def _has(account: Chain, ledger: Owner, entry: Entry) -> bool:
    found = account.get(_number_of(ledger), _block_of(entry))
    return found is not None and found.inputs == hashlib.sha256(entry.link).digest()
