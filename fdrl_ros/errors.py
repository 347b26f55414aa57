# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One tree of typed errors: what was expected, what came, what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
import math
from typing import Any


class FdrlError(Exception):
    """
    Base of every error that this package raises on purpose; it can be pickled.

    A command that ends with one ends with its exit code.
    """

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy text and values, whatever the class is made of."""
        return Exception.__new__, (type(self), *self.args), self.__dict__


@contextmanager
def os_errors_as(kind: type[FdrlError], words: str) -> Iterator[None]:
    """
    Raise an error of ours, with what the operating system says, where a file cannot be used.

    :param words: what cannot be done, such as 'cannot write plan.yaml'.
    """
    try:
        yield
    except OSError as error:
        raise kind(f'{words}: {error.strerror or error}') from error


@contextmanager
def errors_named(kind: type[FdrlError], name: str) -> Iterator[None]:
    """
    Raise an error of ours again as one of a kind, with a name before what is wrong.

    :param name: of what is wrong, such as 'episode 3'.
    """
    try:
        yield
    except FdrlError as error:
        raise kind(f'{name}: {error}') from error


class SettingError(FdrlError):
    """A setting has a value that it cannot have."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        self.name = name
        self.value = value
        self.expected = expected
        super().__init__(f'{name} = {value!r}: expected {expected}')

    def of(self, group: str) -> 'SettingError':
        """Return the same error with the name of the setting's group; empty for none."""
        name = f'{group}.{self.name}' if group else self.name
        return SettingError(name, self.value, self.expected)


class ResourceError(FdrlError):
    """A file that belongs to the installation is missing."""


class PluginError(FdrlError):
    """A task, network or loss that a reference names cannot be loaded."""

    def __init__(self, reference: str, detail: str) -> None:
        self.reference = reference
        self.detail = detail
        super().__init__(f'{reference}: {detail}')


class StateError(FdrlError):
    """An action or state handed to an env is not one that it can use."""

    @classmethod
    def closed(cls, what: str) -> 'StateError':
        """Return the error of a call on something closed, such as `the env is closed`."""
        return cls(f'the {what} is closed: make another')


class TaskError(FdrlError):
    """A task cannot be loaded or contradicts itself, or a file belongs to another task."""


class PolicyError(FdrlError):
    """Weights that do not fit a network, or a digest that does not match."""


class LastingError(FdrlError):
    """Something failed that will fail again, however often it is tried with what there is."""


class RecordsError(FdrlError):
    """A hospital's records are missing, damaged or of another form than the policy's."""


class StoreError(FdrlError):
    """A party's durable state cannot be read or written."""


class StoreBusyError(StoreError):
    """Another process has this durable state."""


class StateLostError(StoreError):
    """A party's state was lost or is an older copy, and it cannot do without what that lacks."""


class CheckpointError(StoreError):
    """A checkpoint is of another hospital, model, version or training, or is ahead of its own."""


class JournalError(FdrlError):
    """A round journal cannot be used or written, or is asked to hold what it must not."""


class JournalLockedError(JournalError):
    """Another process, or another part of this one, writes this journal."""


class JournalOwnerError(JournalError):
    """The journal belongs to another party, federation or form."""


class JournalDamagedError(JournalError):
    """The journal's chain of hashes is broken, or the file is not a journal."""


class JournalCutError(JournalDamagedError):
    """The journal lacks entries that it had."""


class JournalSignatureError(JournalDamagedError):
    """An entry is not signed by its key, or the key is not one that the party may sign with."""


class MessageError(FdrlError):
    """A message is refused; `reason` is one word for the log and the diagnostics."""

    reason = 'malformed'

    def __init__(self, sender: str, detail: str) -> None:
        self.sender = sender
        self.detail = detail
        super().__init__(f'{self.reason} message from {sender!r}: {detail}')


class SignatureError(MessageError):
    """The signature is missing, wrong, or of a party that the roster does not name."""

    reason = 'unsigned'


class ReplayError(MessageError):
    """The counter is not above the last one seen from this sender."""

    reason = 'replayed'


class RoundError(MessageError):
    """The message belongs to another federation, round or attempt, or to another phase."""

    reason = 'misplaced'


class LateError(RoundError):
    """
    The message belongs to a round or attempt that is over.

    That is nothing to warn of: whoever starts again is told again what was said last.
    """

    reason = 'late'


class OrderTimeError(MessageError):
    """By this party's clock an operator's order is too old, or of the future."""

    reason = 'untimely'


class OtherKeysError(RoundError):
    """The sender has other keys than before in the same attempt: it lost its state."""


class LedgerHeadError(MessageError):
    """The sender's privacy ledger does not go on from the head that was seen of it."""

    reason = 'unaccounted'


class OrderError(FdrlError):
    """An operator's order did not reach its server, or was refused."""


class TopicError(FdrlError):
    """A topic cannot be shown, recorded or played."""


class SupervisionError(FdrlError):
    """What a surgeon ordered a robot's selector cannot be done, or there is no such order."""


class CryptoError(FdrlError):
    """Encryption, masking or keys: a parameter, range or context that cannot be used."""


class ModelSizeError(CryptoError):
    """A model has more weights than messages or encryption hold; nothing was drawn or spent."""


class KeyFileError(CryptoError):
    """A key file is missing, unreadable by its owner, readable by others, or damaged."""


class PassphraseError(KeyFileError):
    """The passphrase of a key is missing or wrong, or the key is not encrypted."""


class SecurityError(CryptoError):
    """A certificate, signed rule or enclave of DDS Security is missing, damaged or not valid."""


class RosterError(CryptoError):
    """The roster is not signed by the pinned root, or contradicts itself."""


class RosterTimeError(RosterError):
    """By this clock the roster is not valid yet, or no more."""


class RosterRollbackError(RosterError):
    """The roster is older than one that this party has used, or another of the same number."""


class PrivacyError(FdrlError):
    """Going on would void or exceed a privacy guarantee."""


class AuditFault(PrivacyError):
    """An audit found that training is not as private as is claimed, or not as it is charged."""

    exit_code = 3


def _rounded_up(epsilon: float) -> float:
    """Round an epsilon as `fdrl_ros.privacy.stated` does, which this module may not import."""
    return math.ceil(1e4 * epsilon) / 1e4 if math.isfinite(epsilon) else epsilon


class BudgetExceededError(PrivacyError):
    """
    Going on would pass the privacy budget; nothing was drawn or spent.

    The message reaches other parties. So it tells no amount where the budget is shared with other
    federations.

    :param shared: whether it is.
    """

    def __init__(
        self, spent: float, wanted: float, budget: float, *, shared: bool = False
    ) -> None:
        self.spent = spent
        self.wanted = wanted
        self.budget = budget
        super().__init__(
            'what all federations left of the shared account does not pay for it; the log of this '
            'host tells the amounts'
            if shared
            else f'epsilon {_rounded_up(spent)} is spent and going on would make it '
            f'{_rounded_up(wanted)}, above the budget of {budget:g}'
        )


class NoiseErasedError(PrivacyError):
    """The noise of what is over was erased and cannot be drawn again; nothing was spent."""


class LedgerError(PrivacyError):
    """The privacy ledger cannot be trusted or written, so training must not go on."""


class LedgerLockedError(LedgerError):
    """Another process is writing this ledger."""


class LedgerCorruptError(LedgerError):
    """The ledger's chain of hashes is broken, or the file is not a ledger."""


class LedgerOwnerError(LedgerError):
    """The ledger belongs to another hospital, unit, delta, budget or model."""


class LedgerVersionError(LedgerError):
    """The ledger was made by another version of this program."""


class TrainingStopped(FdrlError):
    """Training was asked to stop; it goes on from its checkpoint when it is started again."""


LOCKED = (JournalLockedError, LedgerLockedError, StoreBusyError)
"""Errors that end by themselves once the other process has ended."""
