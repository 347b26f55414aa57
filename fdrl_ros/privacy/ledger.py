# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The ledger: a hospital's spent privacy, written durably before any noise is drawn.

One SQLite file for the federation's whole life. Entries are only added, and each carries the hash
of the one before, so a change anywhere shows. A ledger cut at its end shows only to who remembers
a later head; that is why the head travels with every update.
"""

from collections.abc import Callable
from dataclasses import dataclass
import math
import operator
import os
from pathlib import Path
import sqlite3
import threading
from types import TracebackType
from typing import NamedTuple, Self

from fdrl_ros.errors import (
    BudgetExceededError,
    LedgerCorruptError,
    LedgerError,
    PrivacyError,
)
from fdrl_ros.privacy import ledger_file
from fdrl_ros.privacy.accountant import Charge, epsilon_pld, epsilon_rdp
from fdrl_ros.privacy.ledger_entry import Entry, Owner


class Head(NamedTuple):
    """The ledger in short: how many entries, and the hash of the last."""

    entries: int
    digest: bytes


@dataclass(frozen=True)
class Reservation:
    """
    Leave to draw the noise of one block of steps.

    inputs is the SHA-256 of what the block was reserved for.
    """

    number: int
    round: int
    block: int
    charge: Charge
    inputs: bytes


class Ledger:
    """
    Append-only record of every block of noisy steps of one hospital.

    Bound at creation to hospital, privacy unit, delta and budget. One process writes it; threads
    of that process may share it.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, owner: Owner) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = connection
        self._owner = owner
        self._entries: list[Entry] = []
        self._lock = threading.RLock()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        hospital: str,
        unit: str,
        delta: float,
        budget: float,
        seen: Head | None = None,
    ) -> Self:
        """
        Open a hospital's ledger, or begin one, and verify it.

        :param path: file, mode 0600; its folder must exist.
        :param unit: whom epsilon protects: 'patient' or 'transition'.
        :param delta: of the (epsilon, delta) guarantee.
        :param budget: largest epsilon ever; infinity sets no limit.
        :param seen: a head that this ledger had before, e.g. the last one sent.
        :raises LedgerLockedError: if another process has it open.
        :raises LedgerOwnerError: if it belongs to another hospital, unit, delta or budget.
        :raises LedgerCorruptError: if it was changed, cut, or is no ledger.
        """
        owner = Owner(hospital, unit, delta, budget)
        if unit not in ('patient', 'transition'):
            raise PrivacyError(f"privacy unit {unit!r}: expected 'patient' or 'transition'")
        if math.isnan(budget) or budget < 0.0:
            raise PrivacyError(f'budget {budget!r}: expected an epsilon of 0 or above')
        epsilon_pld([], delta)  # refuses a delta that cannot be
        path = Path(path)
        ledger = cls(path, ledger_file.connect(path, owner), owner)
        try:
            ledger._entries = ledger._read()
            ledger.verify(seen)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def reserve(
        self,
        *,
        round: int,
        block: int,
        noise_multiplier: float,
        sampling_probability: float,
        steps: int,
        inputs: bytes,
        group: int = 1,
    ) -> Reservation:
        """
        Charge one block of steps, durably, before any of its noise is drawn.

        Asking again for the same block, after a crash, with the same parameters and inputs returns
        the same reservation and charges nothing: the keyed source redraws the same noise.

        :param block: number of the block within the round.
        :param inputs: what the block's outcome depends on, or its digest: global weights, own
            records, settings, and the noise key's fingerprint. Hashed; not kept.
        :param group: the most records that one unit owns, see :class:`Charge`.
        :raises BudgetExceededError: if it would pass the budget; nothing is written.
        :raises PrivacyError: if this block was reserved for something else.
        :raises LedgerError: if it cannot be written; the ledger is then closed.
        """
        if not inputs:
            raise PrivacyError('a reservation needs the inputs that it is made for')
        if steps < 1:
            raise PrivacyError(f'{steps!r} steps: a block has at least 1')
        round, block = _whole('round', round), _whole('block', block)
        charge = Charge(
            float(noise_multiplier),
            float(sampling_probability),
            _whole('steps', steps),
            _whole('group', group),
        )
        with self._lock:
            self._require_open()
            last = self._entries[-1].digest if self._entries else self._owner.digest
            entry = Entry.after(last, len(self._entries) + 1, round, block, charge, inputs)
            for earlier in self._entries:
                if (earlier.round, earlier.block) == (round, block):
                    return self._repeat(earlier, entry)
            self.check(charge)
            self._append(entry)
            return _reservation(entry)

    def check(self, charge: Charge) -> None:
        """
        Refuse a charge that would pass the budget; nothing is written either way.

        :raises BudgetExceededError: if it would.
        """
        wanted = epsilon_pld([*self.history(), charge], self._owner.delta)
        if not wanted <= self._owner.budget:
            raise BudgetExceededError(self.epsilon(), wanted, self._owner.budget)

    def blocks(self, round: int) -> int:
        """Return how many blocks of a round are reserved."""
        with self._lock:
            return sum(entry.round == round for entry in self._entries)

    def epsilon(self) -> float:
        """Return what is spent, by the tight accountant."""
        return epsilon_pld(self.history(), self._owner.delta)

    def epsilon_rdp(self) -> float:
        """Return what is spent, by the quick upper bound."""
        return epsilon_rdp(self.history(), self._owner.delta)

    def history(self) -> tuple[Charge, ...]:
        """Return every charge, oldest first."""
        with self._lock:
            return tuple(entry.charge for entry in self._entries)

    def head(self) -> Head:
        """Return the number of entries and the last hash, for signing into an update."""
        with self._lock:
            return _head(self._owner, self._entries)

    def head_before(self, round: int) -> Head:
        """Return the head that the ledger had before the first block of a round."""
        with self._lock:
            count = next(
                (at for at, entry in enumerate(self._entries) if entry.round == round),
                len(self._entries),
            )
            return _head(self._owner, self._entries[:count])

    def verify(self, seen: Head | None = None) -> None:
        """
        Read the file again and walk its chain.

        :param seen: a head that this ledger had before.
        :raises LedgerCorruptError: naming the first entry that does not fit, or telling that the
            ledger is older than the head seen.
        """
        with self._lock:
            self._require_open()
            entries = self._read()
            if entries != self._entries:
                raise LedgerCorruptError(f'ledger {self._path} was changed while it was open')
            if seen is None:
                return
            if seen.entries > len(entries):
                raise LedgerCorruptError(
                    f'ledger {self._path} has {len(entries)} entries and had {seen.entries}: '
                    'an old copy was restored, or its end was cut'
                )
            if _head(self._owner, entries[: seen.entries]) != seen:
                raise LedgerCorruptError(
                    f'ledger {self._path}: entry {seen.entries} is not the one seen before'
                )

    def close(self) -> None:
        """Release the file; what was reserved stays."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __enter__(self) -> Self:
        """Return the ledger itself, to be closed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the ledger."""
        self.close()

    def _repeat(self, earlier: Entry, entry: Entry) -> Reservation:
        """Return an earlier reservation, if it was for the same thing."""
        same: list[tuple[str, Callable[[Entry], object]]] = [
            ('noise multiplier, sampling probability, steps or group', lambda each: each.charge),
            ('inputs', lambda each: each.inputs),
        ]
        for name, get in same:
            if get(earlier) != get(entry):
                raise PrivacyError(
                    f'round {entry.round} block {entry.block} was reserved with other {name}: '
                    'drawing its noise again would release it twice for one charge'
                )
        return _reservation(earlier)

    def _append(self, entry: Entry) -> None:
        try:
            ledger_file.append(self._require_open(), entry)
        except sqlite3.Error as error:
            # Whether the entry reached the disk is unknown: only opening it again will tell.
            self.close()
            raise LedgerError(f'ledger {self._path} cannot be written: {error}') from error
        self._entries.append(entry)

    def _read(self) -> list[Entry]:
        return ledger_file.read(self._require_open(), self._path, self._owner)

    def _require_open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise LedgerError(f'ledger {self._path} is closed')
        return self._connection


def _whole(name: str, value: int) -> int:
    """Return a plain int, as hashes and SQLite need it, also for NumPy's."""
    try:
        whole = operator.index(value)
    except TypeError as error:
        raise PrivacyError(f'{name} = {value!r}: expected a whole number') from error
    if not 0 <= whole < 2**63:
        raise PrivacyError(f'{name} = {whole}: expected 0 or above')
    return whole


def _head(owner: Owner, entries: list[Entry]) -> Head:
    return Head(len(entries), entries[-1].digest if entries else owner.digest)


def _reservation(entry: Entry) -> Reservation:
    return Reservation(entry.number, entry.round, entry.block, entry.charge, entry.inputs)
