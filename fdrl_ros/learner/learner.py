# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The contract between the protocol and a hospital's learner."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from fdrl_ros.privacy.ledger.chain import Head
import numpy as np


class Stage(StrEnum):
    """What a hospital does, as Progress.msg tells it."""

    COLLECTING = 'collecting'
    WAITING = 'waiting'
    TRAINING = 'training'
    SENDING = 'sending'
    HOME = 'home'
    AT_HOME = 'at home'


@dataclass(frozen=True)
class TrainingProgress:
    """
    Progress of local training; epsilon is the quick upper bound of the ledger.

    :param stage: TRAINING in a round, or HOME after the last one.
    """

    round: int
    step: int
    steps: int
    epsilon: float
    stage: Stage = Stage.TRAINING


@dataclass(frozen=True)
class TrainingResult:
    """
    Result of local training for the protocol.

    :param weights: after local training, shape (n_parameters,), float32.
    :param epsilon: spent in all, by the tight accountant.
    :param ledger_entries: entries of the privacy ledger.
    :param ledger_head: chain value of the newest entry, 32 bytes.
    :param ledger_base_entries: entries before this round.
    :param ledger_base_head: chain value before this round, 32 bytes.
    :param ledger_links: of the newest entries, see
        :meth:`fdrl_ros.privacy.ledger.chain.Chain.links`.
    """

    weights: np.ndarray
    epsilon: float
    ledger_entries: int
    ledger_head: bytes
    ledger_base_entries: int
    ledger_base_head: bytes
    ledger_links: bytes


class Learner(Protocol):
    """Maps global weights and a round to local weights and the spent privacy."""

    @property
    def n_units(self) -> int:
        """Number of privacy units."""
        ...

    @property
    def secure(self) -> bool:
        """Whether all randomness comes from the operating system's secure source."""
        ...

    def verify_ledger(self, seen: Head, by: str) -> None:
        """
        Refuse a privacy ledger that does not contain a head: it was restored from an old copy.

        :param by: who acknowledged that head, for the message.
        :raises LedgerError: if the ledger does not contain it.
        """
        ...

    def check_affordable(self, round: int) -> None:
        """
        Check that the budget covers a whole round; nothing is spent.

        :raises BudgetExceededError: if it does not.
        """
        ...

    def train(
        self,
        weights: np.ndarray,
        round: int,
        *,
        report: Callable[[TrainingProgress], None],
        stopped: Callable[[], bool],
    ) -> TrainingResult:
        """
        Train on the private records, starting from `weights`.

        Repeated for the same round and weights, it returns the same result and spends nothing.

        :raises TrainingStopped: as soon as `stopped` says so.
        :raises PrivacyError: if a further step would void or exceed the guarantee.
        """
        ...

    def rounding(self, round: int, size: int) -> np.ndarray:
        """Return the uniforms in (0, 1) for stochastic rounding of this round's update."""
        ...

    def forget(self, round: int) -> None:
        """
        Erase what the randomness of rounds up to this one could be drawn again from, durably.

        Called once the round is over and acknowledged, before anything of the next; may be called
        again.

        :raises KeyFileError: if it cannot be erased.
        """
        ...


@dataclass(frozen=True, eq=False)
class HomePolicy:
    """
    The policy that a hospital's robots use, and how it was chosen; all of it is private output.

    :param round: after which it was made.
    :param base: digest of the global policy of that round, 32 bytes.
    :param chosen: name of the candidate.
    :param weights: of the chosen one, shape (n_parameters,), float32.
    :param leads: noised mean lead of each other candidate over `global`, by name; empty where
        nothing was chosen from.
    :param epsilon: spent in all by then, by the tight accountant.
    :param notes: what the budget did not pay for.
    """

    round: int
    base: bytes
    chosen: str
    weights: np.ndarray
    leads: dict[str, float]
    epsilon: float
    notes: tuple[str, ...] = ()


@runtime_checkable
class HomeLearner(Protocol):
    """A learner that makes its hospital's home policy after the last round."""

    def home(
        self,
        weights: np.ndarray,
        round: int,
        *,
        own: np.ndarray | None,
        report: Callable[[TrainingProgress], None],
        stopped: Callable[[], bool],
    ) -> HomePolicy:
        """
        Make the home policy on the private records; repeated, it is the same and costs nothing.

        :param weights: of the global policy, shape (n_parameters,).
        :param round: that it was released after.
        :param own: the same with the layers that the hospital kept to itself; None if it kept
            none.
        :raises TrainingStopped: as soon as `stopped` says so; the same call goes on.
        """
        ...
