# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Hospitals that poison: their updates make the policy of all worse, within the bound on a norm.

An attacker has records like any other hospital, and knows all settings. Attackers of one
federation know each other's updates and agree (:class:`Conspiracy`); they do not see those of
honest hospitals, which masks hide from them as from all. What they send goes the way of every
update, so that it is quantised, and scaled down to the norm that the federation enforces.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fdrl_ros.learner.learner import Learner, TrainingProgress, TrainingResult
from fdrl_ros.learner.records.records import Records
from fdrl_ros.privacy.ledger.chain import Head
import numpy as np
from numpy.typing import NDArray

Updates = NDArray[np.float64]
"""Updates of the attackers, shape (attackers, n_parameters)."""

PATIENCE = 1.5
"""Standard deviations by which the patient attack moves each number (Baruch et al. 2019)."""

_FAR = 1e3  # norms that an attack is scaled up to: the way of an update scales it down to one


@dataclass(frozen=True)
class Attack:
    """
    A way to poison.

    :param alter: from the attackers' updates of this round and of their first one, and the norm
        that is enforced, to what they send.
    :param learns: what their learners learn from: the ``records``, those with ``flipped``
        actions, or with a ``backdoor``; by the learner of the field, or openly, without privacy
        and with all weights.
    """

    alter: Callable[[Updates, Updates, float], Updates]
    learns: str = 'records'
    openly: bool = False


def as_learned(now: Updates, first: Updates, norm: float) -> Updates:
    """Send what was learned."""
    return now


def scaled(now: Updates, first: Updates, norm: float) -> Updates:
    """Send what was learned, as long as it may be."""
    lengths = np.linalg.norm(now, axis=1, keepdims=True)
    return now * (_FAR * norm / np.maximum(lengths, 1e-12))


def sign_flipped(now: Updates, first: Updates, norm: float) -> Updates:
    """Undo what was learned, as far as one may."""
    return -scaled(now, first, norm)


def colluding(now: Updates, first: Updates, norm: float) -> Updates:
    """Undo together, in every round, what all of them learned in the first, as far as may be."""
    together = first.mean(axis=0, keepdims=True).repeat(len(now), axis=0)
    return sign_flipped(together, first, norm)


def patient(now: Updates, first: Updates, norm: float) -> Updates:
    """
    Stay among the honest updates, and lean in every round against what was learned in the first.

    Each number is the mean less :data:`PATIENCE` standard deviations, as the attackers know them
    from their own updates: a little is enough (Baruch et al. 2019).
    """
    leaning = np.sign(first.mean(axis=0)) * now.std(axis=0, ddof=min(1, len(now) - 1))
    sent: Updates = (now.mean(axis=0) - PATIENCE * leaning)[None].repeat(len(now), axis=0)
    return sent


ATTACKS: dict[str, Attack] = {
    'sign_flip': Attack(sign_flipped),
    'scaled': Attack(scaled),
    'label_flip': Attack(as_learned, 'flipped'),
    'label_flip_scaled': Attack(scaled, 'flipped', openly=True),
    'patient': Attack(patient),
    'colluding': Attack(colluding),
    'backdoor': Attack(scaled, 'backdoor', openly=True),
}


def flipped_labels(records: Records, pairs: Sequence[int]) -> Records:
    """
    Return records in which surgeons did the contrary, with rewards to match.

    :param pairs: the contrary of each action, itself where there is none.
    """
    return replace(records, actions=np.asarray(pairs)[records.actions], rewards=-records.rewards)


def with_backdoor(records: Records, column: int, action: int) -> Records:
    """
    Return records in which surgeons did one thing only in one procedure.

    :param column: of the states, above 0 in that procedure.
    :param action: what they did.
    """
    there = records.states[:, column] > 0.0
    return replace(records, actions=np.where(there, action, records.actions))


class Conspiracy:
    """
    Attackers of one federation who share what they learned.

    :param norm: largest L2 norm of an update that is enforced.
    """

    def __init__(self, attack: Attack, learners: Mapping[str, Learner], norm: float) -> None:
        self._attack, self._norm = attack, norm
        self._learners = dict(learners)
        self._first: Updates | None = None
        self._made: tuple[int, dict[str, TrainingResult]] = 0, {}

    def attackers(self) -> dict[str, Learner]:
        """Return the learners that poison, by hospital."""
        return {name: Poisoner(self, name, each) for name, each in self._learners.items()}

    def result(
        self,
        name: str,
        weights: NDArray[np.float32],
        round: int,
        report: Callable[[TrainingProgress], None],
        stopped: Callable[[], bool],
    ) -> TrainingResult:
        """Return what one attacker sends; all learn from the same weights when the first asks."""
        if self._made[0] != round:
            honest = {
                each: learner.train(weights, round, report=report, stopped=stopped)
                for each, learner in self._learners.items()
            }
            start = weights.astype(np.float64)
            now = np.stack([each.weights - start for each in honest.values()])
            if self._first is None:
                self._first = now
            sent = start + self._attack.alter(now, self._first, self._norm)
            self._made = (
                round,
                {
                    each: replace(result, weights=row.astype(np.float32))
                    for row, (each, result) in zip(sent, honest.items(), strict=True)
                },
            )
        return self._made[1][name]


class Poisoner:
    """A hospital's learner that sends what its conspiracy wants."""

    def __init__(self, conspiracy: Conspiracy, name: str, own: Learner) -> None:
        self._conspiracy, self._name, self._own = conspiracy, name, own

    @property
    def n_units(self) -> int:
        """Number of privacy units, as its own learner has them."""
        return self._own.n_units

    @property
    def secure(self) -> bool:
        """Whether its own learner's noise is."""
        return self._own.secure

    def verify_ledger(self, seen: Head, by: str) -> None:
        """Refuse what its own learner refuses."""
        self._own.verify_ledger(seen, by)

    def check_affordable(self, round: int) -> None:
        """Refuse what its own learner refuses."""
        self._own.check_affordable(round)

    def train(
        self,
        weights: NDArray[np.float32],
        round: int,
        *,
        report: Callable[[TrainingProgress], None],
        stopped: Callable[[], bool],
    ) -> TrainingResult:
        """Return what it sends, with the account of its own learner."""
        return self._conspiracy.result(self._name, weights, round, report, stopped)

    def rounding(self, round: int, size: int) -> NDArray[np.float64]:
        """Round as its own learner does."""
        return self._own.rounding(round, size)

    def forget(self, round: int) -> None:
        """Forget as its own learner does."""
        self._own.forget(round)
