# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Hospitals that poison: their updates make the policy of all worse, within the bound on a norm.

An attacker has records like any other hospital, and knows all settings. Attackers of one
federation know each other's updates and agree (:class:`Conspiracy`); they do not see those of
honest hospitals, which masks hide from them as from all. Some adapt: they know beforehand which
hospitals are summed together in a round, and the rule that makes one update of the sums. What they
send goes the way of every update, so that it is quantised, and scaled down to the norm that the
federation enforces.
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


STRENGTHS = 10
"""How many lengths attackers that adapt try, up to the norm."""

_TRIALS = 4  # made-up rounds of honest hospitals, on which they try


@dataclass(frozen=True)
class Target:
    """
    What attackers know of the defence.

    :param deal: which hospitals are summed together in a round.
    :param combine: from averages of buckets, shape (buckets, n), and weights to one, shape (n,).
    :param honest: what the attackers' own hospitals would learn.
    """

    deal: Callable[[int], Sequence[Sequence[str]]]
    combine: Callable[[Updates, NDArray[np.float64]], NDArray[np.float64]]
    honest: Mapping[str, Learner]


@dataclass(frozen=True)
class Known:
    """
    What attackers know when they agree on what they send in a round.

    :param now: what each of them learned.
    :param first: what each learned in the first round.
    :param norm: that is enforced.
    :param honest: what each would have learned, had it not wanted to poison; `now` unless they
        adapt.
    :param buckets: their places in each bucket, and how many hospitals it has; of buckets without
        them no places.
    :param combine: as in :class:`Target`.
    """

    now: Updates
    first: Updates
    norm: float
    honest: Updates
    buckets: Sequence[tuple[Sequence[int], int]] = ()
    combine: Callable[[Updates, NDArray[np.float64]], NDArray[np.float64]] | None = None


@dataclass(frozen=True)
class Attack:
    """
    A way to poison.

    :param alter: from what attackers know to what they send.
    :param learns: what their learners learn from: the ``records``, those with ``flipped``
        actions, or with a ``backdoor``; by the learner of the field, or openly, without privacy
        and with all weights.
    :param adapts: whether it needs a :class:`Target`.
    """

    alter: Callable[[Known], Updates]
    learns: str = 'records'
    openly: bool = False
    adapts: bool = False


def as_learned(known: Known) -> Updates:
    """Send what was learned."""
    return known.now


def scaled(known: Known) -> Updates:
    """Send what was learned, as long as it may be."""
    return _scaled(known.now, known.norm)


def _scaled(updates: Updates, norm: float) -> Updates:
    lengths = np.linalg.norm(updates, axis=1, keepdims=True)
    return updates * (_FAR * norm / np.maximum(lengths, 1e-12))


def sign_flipped(known: Known) -> Updates:
    """Undo what was learned, as far as one may."""
    return -scaled(known)


def colluding(known: Known) -> Updates:
    """Undo together, in every round, what all of them learned in the first, as far as may be."""
    together = known.first.mean(axis=0, keepdims=True).repeat(len(known.now), axis=0)
    return -_scaled(together, known.norm)


def patient(known: Known) -> Updates:
    """
    Stay among the honest updates, and lean in every round against what was learned in the first.

    Each number is the mean less :data:`PATIENCE` standard deviations, as the attackers know them
    from their own updates: a little is enough (Baruch et al. 2019).
    """
    now = known.now
    leaning = np.sign(known.first.mean(axis=0)) * _spread(now)
    sent: Updates = (now.mean(axis=0) - PATIENCE * leaning)[None].repeat(len(now), axis=0)
    return sent


def _spread(updates: Updates) -> NDArray[np.float64]:
    spread: NDArray[np.float64] = updates.std(axis=0, ddof=min(1, len(updates) - 1))
    return spread


def adaptive_sign_flip(known: Known) -> Updates:
    """Push against what all would learn, by :func:`pushed`."""
    return pushed(known, -known.honest.mean(axis=0))


def adaptive(known: Known) -> Updates:
    """Push to what was learned, by :func:`pushed`."""
    return pushed(known, known.now.mean(axis=0))


def pushed(known: Known, wanted: NDArray[np.float64]) -> Updates:
    """
    Push the combination of all buckets one way, as far as their rule lets it.

    The average of each bucket with attackers is to be that of honest hospitals and one push, the
    same in all of these. Attackers make up honest rounds with the mean and spread of their own
    honest updates, and choose the push that moves the combination furthest, of
    :data:`STRENGTHS` lengths in two directions: the wanted one, and its signs times the spread,
    which moves each number past as many honest ones (Fang et al. 2020; Shejwalkar and Houmansadr
    2021).

    :param wanted: where to, shape (n,).
    """
    assert known.combine is not None
    mean, spread = known.honest.mean(axis=0), _spread(known.honest)
    rng = np.random.default_rng(len(known.now))
    sizes = np.array([float(size) for _, size in known.buckets])
    noise = rng.normal(size=(_TRIALS, len(sizes), mean.size)) * spread
    alone = [max(0, size - len(places)) for places, size in known.buckets]
    noise *= (np.sqrt(alone) / sizes)[:, None]
    best, found = -np.inf, np.repeat(mean[None], len(known.now), axis=0)
    length = max(float(np.linalg.norm(wanted)), 1e-12)
    for way in (wanted, np.sign(wanted) * spread):
        unit = way / max(float(np.linalg.norm(way)), 1e-12)
        for strength in np.linspace(0.0, known.norm, STRENGTHS):
            sent = np.repeat(mean[None], len(known.now), axis=0)
            averages = np.repeat(mean[None], len(sizes), axis=0)
            for row, (places, size) in enumerate(known.buckets):
                for place in places:
                    sent[place] = _within(mean + strength * size / len(places) * unit, known.norm)
                    averages[row] += (sent[place] - mean) / size
            made = [known.combine(averages + each, sizes) for each in noise]
            moved = float(np.mean([(each - mean) @ wanted for each in made])) / length
            if moved > best:
                best, found = moved, sent
    return found


def _within(update: NDArray[np.float64], norm: float) -> NDArray[np.float64]:
    """Return an update, scaled down to a norm."""
    scaled: NDArray[np.float64] = update * min(
        1.0, norm / max(float(np.linalg.norm(update)), 1e-12)
    )
    return scaled


ATTACKS: dict[str, Attack] = {
    'sign_flip': Attack(sign_flipped),
    'scaled': Attack(scaled),
    'label_flip': Attack(as_learned, 'flipped'),
    'label_flip_scaled': Attack(scaled, 'flipped', openly=True),
    'patient': Attack(patient),
    'colluding': Attack(colluding),
    'backdoor': Attack(scaled, 'backdoor', openly=True),
    'adaptive_sign_flip': Attack(adaptive_sign_flip, adapts=True),
    'adaptive_label_flip': Attack(adaptive, 'flipped', openly=True, adapts=True),
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


def _placed(names: Sequence[str], buckets: Sequence[Sequence[str]]) -> list[tuple[list[int], int]]:
    """Return the places of some names in each bucket, and its size."""
    return [
        ([place for place, name in enumerate(names) if name in bucket], len(bucket))
        for bucket in buckets
    ]


class Conspiracy:
    """
    Attackers of one federation who share what they learned.

    :param norm: largest L2 norm of an update that is enforced.
    :param target: needed by attacks that adapt.
    """

    def __init__(
        self,
        attack: Attack,
        learners: Mapping[str, Learner],
        norm: float,
        target: Target | None = None,
    ) -> None:
        assert target or not attack.adapts
        self._attack, self._norm, self._target = attack, norm, target
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

            def learn(learners: Mapping[str, Learner]) -> dict[str, TrainingResult]:
                return {
                    each: learner.train(weights, round, report=report, stopped=stopped)
                    for each, learner in learners.items()
                }

            results, start = learn(self._learners), weights.astype(np.float64)
            now = np.stack([each.weights - start for each in results.values()])
            if self._first is None:
                self._first = now
            known = Known(now, self._first, self._norm, now)
            if (target := self._target) and self._attack.adapts:
                honest = learn(target.honest)
                known = replace(
                    known,
                    honest=np.stack([honest[each].weights - start for each in results]),
                    buckets=_placed(tuple(results), target.deal(round)),
                    combine=target.combine,
                )
            sent = start + self._attack.alter(known)
            self._made = (
                round,
                {
                    each: replace(result, weights=row.astype(np.float32))
                    for row, (each, result) in zip(sent, results.items(), strict=True)
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
