# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
One model of the leakage study: a federation and its centralised twin, and what each seat sees.

Every candidate record takes part by a fair coin of its own. Hospitals train on theirs and the
average of their weights is the next policy, in float64 (a real federation also quantises updates);
the centralised baseline trains on all that take part. All models of a seed begin with the same
public start.

Seats: ``central`` has the released centralised policy; ``released`` the federation's last policy;
``aggregate`` every round's policy; ``own`` each hospital's own update with masks taken off;
``aggregator`` a masked update, as the integers below the encryption; ``coalition`` is t - 1
hospitals, who subtract their own updates from the aggregate.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from fdrl_ros.crypto.he.quantisation import Quantisation
from fdrl_ros.crypto.keys.roster import default_threshold
from fdrl_ros.crypto.masking.masks import mask
from fdrl_ros.experiments.studies.leakage.settings import Regime, REGIMES
from fdrl_ros.leakage.records_seen import batch_of, Gradients, gradients_at
from fdrl_ros.leakage.shadow import Draws, ShadowTrainer, ShadowWeights
from fdrl_ros.learner.records.transitions import Transitions
from fdrl_ros.policy import NetworkShape
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.worlds.paper.env import PaperHospital
from fdrl_ros.worlds.paper.law import ACTION_COUNT, DISCOUNT, SIZE
import numpy as np
from numpy.typing import NDArray

SHAPE = NetworkShape(SIZE, ACTION_COUNT, (64, 64))
"""The network of the study, 5-64-64-3."""

Weights = NDArray[np.float32]
Numbers = NDArray[np.float64]

ERROR, ALIGNMENT = 'error', 'alignment'
"""What is observed of a record: signed errors; cosines of updates and its descent."""

_BITS, _LIMIT, _MODULUS = 16, 1.0, 2**30  # of masked integers


@dataclass(frozen=True, eq=False)
class Model:
    """
    What came of one model.

    ``members``: whether each candidate took part, shape (records,). ``seen``: by seat and kind of
    observation, one number of each candidate. ``released``, ``central``: last policies;
    ``hospitals``: each hospital's own weights of the last round.
    """

    members: NDArray[np.bool_]
    seen: dict[tuple[str, str], Numbers]
    released: ShadowWeights
    central: ShadowWeights
    hospitals: tuple[ShadowWeights, ...]


class Round(NamedTuple):
    """
    One round of a federation.

    ``number`` from 1; the policy ``before`` it and ``after`` it; each hospital's own weights.
    """

    number: int
    before: Weights
    after: Weights
    trained: list[Weights]

    @property
    def changes(self) -> list[Numbers]:
        """Return each hospital's update."""
        return [each.astype(np.float64) - self.before for each in self.trained]


class Simulation:
    """Candidate records of one seed, and models that are trained on shares of them."""

    def __init__(
        self, regime: Regime, seed: int, hospitals: int, heterogeneity: float, observed: int
    ) -> None:
        """
        Draw the candidates and the public start.

        :param observed: rounds in which updates are looked at, evenly spaced.
        """
        self.regime, self.seed, self.hospitals = regime, seed, hospitals
        self.homes = [
            PaperHospital(each, hospitals, heterogeneity, seed) for each in range(hospitals)
        ]
        tables = []
        for home in self.homes:
            records = home.records(2 * regime.records, seed)
            table = Transitions.from_records(records, discount=DISCOUNT).table
            assert table is not None
            tables.append(table)
        self.table = np.concatenate(tables)
        """All candidates as lines, hospital by hospital, shape (records, 13)."""
        self.start = SHAPE.draw(np.random.default_rng([Stream.LEAKAGE, seed]))
        """Public start of all models, shape (n_parameters,)."""
        self.trainer = ShadowTrainer(
            SHAPE, regime.learner(False), regime.privacy(False, hospitals)
        )
        self.pooled = ShadowTrainer(SHAPE, regime.learner(True), regime.privacy(True, hospitals))
        self._batch = batch_of(self.table, SIZE)
        self._batches = [batch_of(self.table[self._of(each)], SIZE) for each in range(hospitals)]
        rounds = np.linspace(1, regime.rounds, min(observed, regime.rounds))
        self._observed = frozenset(int(round(each)) for each in rounds)

    @staticmethod
    def stepper(regime: Regime, noise: float) -> ShadowTrainer:
        """
        Return a trainer of single steps of plain descent, for inversion.

        :param noise: s, on the averaged gradient.
        """
        learner = replace(regime.learner(True), optimizer='sgd', learning_rate=1.0)
        privacy = replace(regime.privacy(False, 1), noise_multiplier=0.0)
        sigma = noise * privacy.batch / privacy.clip_norm
        return ShadowTrainer(SHAPE, learner, replace(privacy, noise_multiplier=sigma))

    def _of(self, hospital: int) -> slice:
        """Return which candidates are a hospital's."""
        each = 2 * self.regime.records
        return slice(hospital * each, (hospital + 1) * each)

    def members(self, model: int) -> NDArray[np.bool_]:
        """Return the membership bits of a model, one fair coin a record."""
        return self._rng(model, 0).random(len(self.table)) < 0.5

    def model(self, model: int) -> Model:
        """
        Train a model, federated and centralised, and look at every seat.

        :raises PolicyError: if learning diverged.
        """
        members = self.members(model)
        sums, rng = _Sums(len(self.table)), self._rng(model, 1)
        for last in self.federate(members, rng):
            if last.number in self._observed:
                self._look(sums, last, rng)
        seen = sums.means()
        seen['released', ERROR] = self.errors(last.after)
        central = self.centralise(members, self._rng(model, 2))
        seen['central', ERROR] = self.errors(central)
        return Model(
            members,
            seen,
            ShadowWeights(last.after),
            ShadowWeights(central),
            tuple(map(ShadowWeights, last.trained)),
        )

    def train(self, model: int) -> ShadowWeights:
        """Train a model, federated alone; its coins and noise are not those of :meth:`model`."""
        *_, last = self.federate(self.members(model), self._rng(model, 1))
        return ShadowWeights(last.after)

    def local_round(
        self, rng: np.random.Generator, weights: Weights, own: NDArray[np.int64]
    ) -> Weights:
        """
        Train one round on some candidates.

        :param own: numbers of those who take part, at one hospital.
        """
        steps = self.trainer.round_steps(self.regime.records)
        return self.descend(self.trainer, weights, own, steps, rng)

    def descend(
        self,
        trainer: ShadowTrainer,
        weights: Weights,
        own: NDArray[np.int64],
        steps: int,
        rng: np.random.Generator,
    ) -> Weights:
        """
        Take some steps on some candidates, from a fresh optimizer.

        :param own: numbers of those who take part.
        """
        draws = Draws.seeded(rng, steps, len(own), self.regime.rate, trainer.noise_size)
        found: Weights = trainer.train(weights, self.table, own, draws).astype(np.float32)
        return found

    def own(self, members: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
        """Return the numbers of those who take part at each hospital."""
        places = map(self._of, range(self.hospitals))
        return [np.flatnonzero(members[each]) + each.start for each in places]

    def federate(
        self,
        members: NDArray[np.bool_],
        rng: np.random.Generator,
        start: Weights | None = None,
    ) -> Iterator[Round]:
        """
        Train round by round.

        :param members: whether each candidate takes part.
        :param rng: of coins and noise.
        :param start: first policy; the public start unless given.
        """
        own = self.own(members)
        weights = self.start if start is None else start
        for number in range(1, self.regime.rounds + 1):
            trained = [self.local_round(rng, weights, each) for each in own]
            changes = [each.astype(np.float64) - weights for each in trained]
            after = (weights + np.mean(changes, axis=0)).astype(np.float32)
            yield Round(number, weights, after, trained)
            weights = after

    def _look(self, sums: '_Sums', seen: Round, rng: np.random.Generator) -> None:
        """Add what each seat sees of a round."""
        sums.count += 1
        before, after, changes = seen.before, seen.after, seen.changes
        step = after.astype(np.float64) - before
        gradients = gradients_at(self.trainer, before, self._batch)
        everyone = slice(None)
        sums.add('aggregate', ALIGNMENT, everyone, gradients.descent_along(step))
        sums.add('aggregate', ERROR, everyone, self.errors(after))
        for each in range(self.hospitals):
            where = self._of(each)
            part = _part(gradients, where)
            for seat, change in (
                ('own', changes[each]),
                ('aggregator', self._masked(changes[each], rng)),
                ('coalition', self._left_over(step, changes, each)),
            ):
                sums.add(seat, ALIGNMENT, where, part.descent_along(change))
                if seat != 'aggregator':
                    reached = (before + change).astype(np.float32)
                    found = gradients_at(self.trainer, reached, self._batches[each]).errors
                    sums.add(seat, ERROR, where, found)

    def _left_over(self, step: Numbers, changes: list[Numbers], target: int) -> Numbers:
        """Subtract the updates of t - 1 hospitals, none the target, from an aggregate."""
        count = self.hospitals
        colluding = [(target + 1 + i) % count for i in range(default_threshold(count) - 1)]
        theirs = np.sum([changes[each] for each in colluding], axis=0)
        found: Numbers = (count * step - theirs) / (count - len(colluding))
        return found

    def _masked(self, change: Numbers, rng: np.random.Generator) -> Numbers:
        """Return the masked integers of an update, around 0."""
        quantisation = Quantisation(_LIMIT, _BITS, self.hospitals)
        integers = quantisation.quantise(change, rng.random(len(change)))
        masked: Numbers = (
            (integers + mask(rng.bytes(32), len(integers), _MODULUS)) % _MODULUS
        ).astype(np.float64)
        return masked - _MODULUS / 2.0

    def centralise(
        self,
        members: NDArray[np.bool_],
        rng: np.random.Generator,
        regime: Regime | None = None,
    ) -> Weights:
        """
        Train the centralised baseline on all that take part.

        :param regime: another one than the federation's.
        """
        trainer = self.pooled
        if regime is not None:
            privacy = regime.privacy(True, self.hospitals)
            trainer = ShadowTrainer(SHAPE, regime.learner(True), privacy)
        steps = (regime or self.regime).steps(True)
        return self.descend(trainer, self.start, np.flatnonzero(members), steps, rng)

    def errors(self, weights: Weights) -> Numbers:
        """Return every candidate's signed error at some weights, shape (records,)."""
        return gradients_at(self.trainer, weights, self._batch).errors

    def _rng(self, model: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng([Stream.LEAKAGE, self.seed, 1 + purpose, model])


class _Sums:
    """Sums of observations over rounds, by seat and kind."""

    def __init__(self, records: int) -> None:
        self.records, self.count = records, 0
        self._sums: dict[tuple[str, str], Numbers] = {}

    def add(self, seat: str, kind: str, where: slice, numbers: Numbers) -> None:
        self._sums.setdefault((seat, kind), np.zeros(self.records))[where] += numbers

    def means(self) -> dict[tuple[str, str], Numbers]:
        return {name: total / self.count for name, total in self._sums.items()}


def _part(gradients: Gradients, where: slice) -> Gradients:
    layers = [type(each)(each.inputs[where], each.outputs[where]) for each in gradients.layers]
    return Gradients(gradients.shape, layers, gradients.errors[where])


def train_some(
    name: str, seed: int, first: int, count: int, *, caller: Caller = NOBODY
) -> list[ShadowWeights]:
    """
    Train models of three hospitals at H = 0.5, federated alone; serves as a task of a worker.

    :param name: of the regime.
    :param first: number of the first model.
    """
    world = Simulation(REGIMES[name], seed, 3, 0.5, 1)
    made = []
    for index in range(first, first + count):
        caller.check()
        made.append(world.train(index))
    return made
