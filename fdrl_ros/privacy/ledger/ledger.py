# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The ledger: a hospital's spent privacy, written durably before any noise is drawn.

It is one SQLite file for the federation's whole life. Entries are only added, and each carries the
hash of the one before, so any change is detected. A ledger cut at its end is detected only by a
party that remembers a later head. Therefore the head, and the links that lead to it, are sent with
every update.
"""

from collections.abc import Sequence
from dataclasses import replace
import logging
import operator
import os
from pathlib import Path
import sqlite3
import threading

from fdrl_ros.errors import (
    BudgetExceededError,
    LedgerCorruptError,
    LedgerError,
    LedgerOwnerError,
    PrivacyError,
)
from fdrl_ros.privacy.accountant.accountant import Account, Charge, epsilon_pld
from fdrl_ros.privacy.ledger.chain import Entry, Head, Owner
from fdrl_ros.privacy.ledger.file import (
    check_form,
    create,
    Damage,
    file_identity,
    ledger_error,
    lock_file,
    note_path,
    open_exclusively,
    PATIENCE,
    read_chain,
    read_owner,
    unlock_file,
    write_entry,
)
from fdrl_ros.runtime.closeable import Closeable

log = logging.getLogger(__name__)


class Ledger(Closeable):
    """
    Append-only record of every block of noisy steps of one hospital.

    Bound at creation to hospital, privacy unit, delta, budget and model. One process writes it;
    threads of that process may share it. `chain` has its entries, to be read only.
    """

    kind = 'ledger'
    account: Path | None = None
    """The shared account whose budget this is, if it is one's."""

    _logged = -1.0  # the spent epsilon that the log told last

    def __init__(
        self,
        path: str | os.PathLike[str],
        owner: Owner,
        *,
        seen: Head | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """
        Open and lock a hospital's ledger, or create one, and verify it.

        :param path: file on a local disk, mode 0600; its folder must exist.
        :param owner: whose it is, and what it promises; :attr:`owner` also has its birth.
        :param seen: a head that this ledger had before, e.g. the last one sent. A missing ledger
            that had entries is not created again.
        :param patience: seconds to wait while another process has it open.
        :raises PrivacyError: if the owner promises something impossible.
        :raises LedgerLockedError: if another process has it open.
        :raises LedgerOwnerError: if it belongs to another hospital, unit, delta, budget or model.
        :raises LedgerVersionError: if another version of this program made it.
        :raises LedgerCorruptError: if it was changed, cut, or is not a ledger.
        :raises LedgerError: if it charges a shared account, which this class does not know.
        """
        if owner.unit not in ('patient', 'transition'):
            raise PrivacyError(f"privacy unit {owner.unit!r}: expected 'patient' or 'transition'")
        if not isinstance(owner.budget, int | float) or not owner.budget >= 0.0:
            raise PrivacyError(f'budget {owner.budget!r}: expected an epsilon of 0 or above')
        Account(owner.delta)  # refuses an impossible delta
        owner = replace(owner, delta=float(owner.delta), budget=float(owner.budget))
        self._path = path = Path(path)
        if seen is not None and seen.entries and not os.path.lexists(path):
            entries = 'entry' if seen.entries == 1 else 'entries'
            raise LedgerError(
                f'{self.kind} {path} is missing and had {seen.entries} {entries}: '
                'put the newest copy back (docs/privacy.md)'
            )
        self._lock = threading.RLock()
        create(path, owner)
        self._file = lock_file(path, patience)
        self._connection: sqlite3.Connection | None = None
        try:
            self._connection = open_exclusively(path)
            check_form(self._connection, path)
            self.owner = read_owner(self._connection, path)
            if difference := self.owner.difference_from(owner):
                raise LedgerOwnerError(f'ledger {path} {difference}')
            self.chain = read_chain(self._connection, path, self.owner)
            self._state = file_identity(os.fstat(self._file.fileno()))
            self.verify(seen)
            self._join()
        except BaseException as error:
            self.close()
            if isinstance(error, Damage):
                raise ledger_error(error, path) from error
            raise

    def reserve(self, *, round: int, block: int, charge: Charge, inputs: bytes) -> Entry:
        """
        Charge one block of steps, durably, before any of its noise is drawn.

        Repeating the call for a block after a crash, with the same parameters and inputs, returns
        the same reservation and charges nothing: the keyed source redraws the same noise.

        :param block: number of the block within the round.
        :param inputs: everything that the outcome depends on, or its digest: global weights, own
            records, settings, and the noise key's fingerprint. Only its hash is stored.
        :returns: the entry; it permits drawing the noise of the block.
        :raises BudgetExceededError: if the charge would exceed the budget; nothing is written.
        :raises PrivacyError: if this block was reserved for other parameters or inputs.
        :raises LedgerError: if the entry cannot be written; the ledger is then closed.
        """
        if not inputs:
            raise PrivacyError('a reservation needs the inputs that it is made for')
        if not charge.steps >= 1:
            raise PrivacyError(f'{charge.steps!r} steps: expected 1 or more')
        round, block = _whole('round', round), _whole('block', block)
        sigma, q, steps, group = charge
        steps, group = _whole('steps', steps), _whole('group', group)
        charge = Charge(float(sigma), float(q), steps, group)
        with self._lock:
            self._require_in_place()
            entry = self.chain.next(round, block, charge, inputs)
            if earlier := self.chain.get(round, block):
                return self._repeat(earlier, entry)
            self._admit(entry)
            self._append(entry)
            return entry

    def check(self, *charges: Charge) -> None:
        """
        Check that charges fit the budget together; nothing is written.

        :raises BudgetExceededError: if they do not.
        """
        self._check(charges, ())

    def _check(self, charges: Sequence[Charge], elsewhere: Sequence[Charge]) -> None:
        """
        Check that charges fit the budget together, and with what was charged elsewhere.

        :raises BudgetExceededError: if they do not.
        """
        with self._lock:
            account, budget = self.chain.account, self.owner.budget
            # Both are upper bounds, so charges that fit by the quick one fit.
            if account.epsilon_rdp(*elsewhere, *charges) <= budget:
                return
            wanted = account.epsilon_pld(*elsewhere, *charges)
            if not wanted <= budget:
                spent = epsilon_pld((*self.chain.history(), *elsewhere), self.owner.delta)
                raise self.exceeded(spent, wanted)

    def exceeded(self, spent: float, wanted: float) -> BudgetExceededError:
        """Return the refusal of a charge; the amounts of a shared account go to the log alone."""
        budget, shared = self.owner.budget, self.account is not None
        if shared and spent != self._logged:  # once, however many charges are tried
            self._logged = spent
            words = 'account %s: epsilon %.4g is spent, %.4g is wanted, the budget is %.4g'
            log.warning(words, self.account, spent, wanted, budget)
        return BudgetExceededError(spent, wanted, budget, shared=shared)

    def charged_elsewhere(self) -> tuple[Charge, ...]:
        """Return what other ledgers charged of the same budget: nothing, without an account."""
        return ()

    def epsilon(self) -> float:
        """Return the spent epsilon by the tight accountant."""
        with self._lock:
            return self.chain.epsilon()

    def epsilon_stated(self, *, newest: bool) -> float:
        """
        Return an epsilon that is never below the truth.

        :param newest: whether the ledger has all entries that any party saw. An older copy lacks
            unknown entries, of which only the budget is an upper bound.
        """
        return self.epsilon() if newest else self.owner.budget

    def epsilon_bound(self) -> float:
        """Return a quick upper bound of the spent epsilon: Renyi's, or the budget if less."""
        with self._lock:
            return min(self.chain.account.epsilon_rdp(), self.owner.budget)

    def verify(self, seen: Head | None = None, by: str = '') -> None:
        """
        Check that the file is as this process left it, and continues a head.

        Opening verifies the whole file;
        :func:`fdrl_ros.privacy.ledger.content.read_content` does so without a lock.

        :param seen: a head that this ledger had before.
        :param by: who saw the head, for the message.
        :raises LedgerCorruptError: if not; the message says what does not fit.
        """
        with self._lock:
            self._require_in_place()
            if seen is not None and (problem := self.chain.contradiction(seen)):
                who = f' (seen by {by})' if by else ''
                raise LedgerCorruptError(
                    f'ledger {self._path} {problem}{who}: put back the newest ledger; if it '
                    'is lost, retire this hospital (docs/privacy.md)'
                )

    def close(self) -> None:
        """Release the file; may be called again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            unlock_file(self._file)

    def _join(self) -> None:
        """Refuse a ledger of a shared account, whose charges would be missing there."""
        if os.path.lexists(note := note_path(self._path)):
            raise LedgerError(f'ledger {self._path} charges a shared account, as {note} says')

    def _admit(self, entry: Entry) -> None:
        """Refuse a new entry that does not fit the budget."""
        self.check(entry.charge)

    def _repeat(self, earlier: Entry, entry: Entry) -> Entry:
        """Return an earlier reservation of the same charge and inputs; refuse a different one."""
        if (earlier.charge, earlier.inputs) != (entry.charge, entry.inputs):
            what = 'inputs' if earlier.charge == entry.charge else 'parameters'
            raise PrivacyError(
                f'round {entry.round} block {entry.block} was reserved with other {what}: '
                'drawing its noise again would release it twice for one charge'
            )
        return earlier

    def _append(self, entry: Entry) -> None:
        """Write one entry durably."""
        connection = self._connection
        assert connection is not None
        try:
            connection.execute('BEGIN IMMEDIATE')
            write_entry(connection, entry)
            connection.execute('COMMIT')
        except sqlite3.Error as error:
            # SQLite undoes the entry, or only opening the file again shows whether it is there.
            self.close()
            raise LedgerError(f'ledger {self._path} cannot be written: {error}') from error
        self._state = file_identity(os.fstat(self._file.fileno()))
        self.chain.add(entry)

    def _require_in_place(self) -> None:
        """Refuse a file that is closed, or not as this process left it."""
        if not self._connection:
            raise LedgerError(f'ledger {self._path} is closed')
        try:
            found = file_identity(os.lstat(self._path))
        except OSError:
            found = None
        if found != self._state:
            self.close()
            raise LedgerCorruptError(
                f'ledger {self._path} was moved, replaced or changed while it was open: put it '
                'back and start again'
            )


def _whole(name: str, value: int) -> int:
    """Convert any integer, also NumPy's, to a plain int for hashes and SQLite."""
    try:
        whole = operator.index(value)
    except TypeError as error:
        raise PrivacyError(f'{name} = {value!r}: expected a whole number') from error
    if not 0 <= whole < 2**63:
        raise PrivacyError(f'{name} = {whole}: expected 0 or above')
    return whole
