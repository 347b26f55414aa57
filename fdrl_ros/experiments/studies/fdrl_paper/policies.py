# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Policies that are compared in the paper's world, and what each is worth, exactly where it can be.

All learn by the same loss, optimizer and network. ``federated`` is the paper's federation;
``central_paper`` the paper's baseline of 15 epochs; ``central_steps`` takes as many steps as the
federation, with the same s; ``central_epsilon`` as many steps at the same epsilon, so with less
noise; ``alone`` is each hospital on its own records. ``public_start`` has seen no patient: it is
fitted to the expert of the mean hospital, H = 0; ``federated_from_start`` begins with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
import functools

from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.leakage.settings import Regime, UNCLIPPED
from fdrl_ros.experiments.studies.leakage.simulation import SHAPE, Simulation, Weights
from fdrl_ros.experiments.studies.leakage.study import values_in
from fdrl_ros.leakage.shadow import Draws, ShadowTrainer
from fdrl_ros.metrics.risk import total_risk
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.worlds.paper.env import PaperHospital, STATES
from fdrl_ros.worlds.paper.law import (
    ACTION_COUNT,
    collapsed,
    ended,
    finished,
    GRID,
    index_of,
    LEVELS,
    SIZE,
)
from fdrl_ros.worlds.paper.utility import (
    Acting,
    agreement,
    as_expert,
    exact_return,
    UNIFORM,
)
import numpy as np
from numpy.typing import NDArray

Actions = NDArray[np.int64]

STABILISE = 2
"""Number of the action that treats the patient and leaves the operation."""

_PURPOSES = 1000  # more than one draw has
_UNSEEN = 10**6  # added to a seed: of patients that no policy learned from
_FIT = Regime('fit', records=8, batch=1, clip_norm=UNCLIPPED, proximal=0.0, learning_rate=0.002)
_FIT_STEPS = 4000


@functools.lru_cache(maxsize=32)
def public_start(seed: int) -> Weights:
    """
    Return weights fitted to Q* of the mean hospital, in all states that go on.

    No patient of any hospital is looked at, so it costs no epsilon.
    """
    going = np.flatnonzero(~ended(GRID))
    law = PaperHospital().law
    best = law.value(PaperHospital().best)
    values = best[:, None] - law.costs
    lines = np.zeros((len(going), ACTION_COUNT, 2 * SIZE + 3), np.float32)
    lines[..., :SIZE] = STATES[going, None, :]
    lines[..., -1] = np.arange(ACTION_COUNT)
    lines[..., -3] = values[going]  # reward, with a discount of 0: what Q is fitted to
    table = lines.reshape(-1, lines.shape[-1])
    rng = np.random.default_rng([Stream.LEAKAGE, seed, 9])
    regime = replace(_FIT, records=len(table), batch=len(table) // 8)
    trainer = ShadowTrainer(SHAPE, regime.learner(True), regime.privacy(False, 1))
    draws = Draws.seeded(rng, _FIT_STEPS, len(table), regime.rate)
    start = SHAPE.draw(rng)
    return trainer.train(start, table, np.arange(len(table)), draws).astype(np.float32)


def actions_of(weights: Weights) -> Actions:
    """Return what a policy does in each of all 1024 states."""
    return np.argmax(values_in(weights, STATES), axis=1)


class Appraisal:
    """
    What policies are worth at some hospitals of one seed, as means over these hospitals.

    A_task (FDRL Eq. 8) and return are exact, see :mod:`fdrl_ros.worlds.paper.utility`; R_mit (Eq.
    9) and success are of unseen patients, at most 30 steps each.
    """

    def __init__(self, homes: Sequence[PaperHospital], patients: int, seed: int) -> None:
        """
        Take the hospitals.

        :param patients: of each hospital, on whom R_mit and success are measured.
        """
        self.homes, self.patients, self.seed = list(homes), patients, seed

    def worth(self, actions: Acting) -> Json:
        """
        Return what a policy is worth.

        :param actions: of one policy, of one for each hospital, or :data:`UNIFORM`.
        :returns: ``a_task``; its ``share`` of what that kind of policy can reach; exact discounted
            return ``value``, and ``values`` by hospital; ``r_mit`` and ``success``.
        """
        single = np.shape(actions) != (len(self.homes), len(STATES))
        found = agreement(self.homes, actions)
        acting = [actions] * len(self.homes) if single else list(actions)
        values = [exact_return([home], own) for home, own in zip(self.homes, acting, strict=True)]
        moved = [
            _operations(home, _lookup(own), self.patients, self.seed)
            for home, own in zip(self.homes, acting, strict=True)
        ]
        r_mit, success = np.mean(moved, axis=0)
        return {
            'a_task': found.a_task,
            'share': found.a_task / (found.ceiling if single else 1.0),
            'value': float(np.mean(values)),
            'values': {f'hospital {place + 1}': each for place, each in enumerate(values)},
            'r_mit': float(r_mit),
            'success': float(success),
        }

    def yardsticks(self) -> Json:
        """
        Return what bounds the learned policies: chance, doing nothing, the best of all.

        ``majority`` does in each state what is right at most hospitals, so its A_task is the
        ceiling of any single policy; ``expert`` is each hospital's own best policy.
        """
        every = np.arange(len(STATES))
        votes = np.sum([as_expert(each, every) for each in self.homes], axis=0)
        return {
            'random': self.worth(UNIFORM),
            'stabilise': self.worth(np.full(len(STATES), STABILISE)),
            'majority': self.worth(np.argmax(votes, axis=1)),
            'expert': self.worth([each.best for each in self.homes]),
        }


def _lookup(actions: Acting) -> Callable[[NDArray[np.float32]], Actions] | None:
    """Return a policy of roll-outs; None moves at random."""
    if actions is UNIFORM:
        return None
    table: NDArray[np.int64] = np.asarray(actions, np.int64)

    def policy(states: NDArray[np.float32]) -> Actions:
        found: Actions = table[index_of(np.rint(states * (LEVELS - 1)).astype(np.int64))]
        return found

    return policy


def _operations(
    home: PaperHospital,
    policy: Callable[[NDArray[np.float32]], Actions] | None,
    patients: int,
    seed: int,
) -> tuple[float, float]:
    """Return R_mit and success over unseen patients of a hospital."""
    records = home.rollout(policy, patients, seed + _UNSEEN)
    levels = np.rint(records.next_states * (LEVELS - 1)).astype(np.int64)
    lost = collapsed(levels)
    after = records.next_states.astype(np.float64)
    risk = total_risk(after[:, 1], after[:, 2], lost.astype(np.float64))
    starts, ends = records.starts[:-1], records.starts[1:]
    means = np.add.reduceat(risk, starts) / (ends - starts)
    done = finished(levels)[ends - 1] & ~lost[ends - 1]
    return 1.0 - float(means.mean()), float(done.mean())


def mean_of(rows: Sequence[Json]) -> Json:
    """Return the mean of every number of rows that are nested alike."""
    return {
        name: mean_of([row[name] for row in rows])
        if isinstance(first, Mapping)
        else float(np.mean([row[name] for row in rows]))
        for name, first in rows[0].items()
    }


class Learners:
    """Trains the policies of one seed once, on one draw of members, coins and noise."""

    def __init__(self, world: Simulation, draw: int = 0) -> None:
        """Take the records of those who take part."""
        self.world, self.members, self._draw = world, world.members(draw), draw

    def rng(self, purpose: int) -> np.random.Generator:
        """Return the generator of coins and noise of one policy."""
        number = purpose + _PURPOSES * self._draw
        return np.random.default_rng([Stream.LEAKAGE, self.world.seed, 10, number])

    def federated(self, start: Weights | None = None) -> tuple[Weights, list[Weights]]:
        """Return the last policy, and each hospital's own weights before it was averaged."""
        *_, last = self.world.federate(self.members, self.rng(0), start)
        return last.after, last.trained

    def central(self, regime: Regime) -> Weights:
        """Return the centralised policy of a regime."""
        return self.world.centralise(self.members, self.rng(1), regime)

    def alone(self) -> list[Weights]:
        """Return the policy of each hospital that learns from its own records alone."""
        world, regime = self.world, self.world.regime
        privacy = regime.privacy(False, world.hospitals)
        trainer = ShadowTrainer(SHAPE, regime.learner(True), privacy)
        return [
            world.descend(trainer, world.start, each, regime.steps(False), self.rng(2 + place))
            for place, each in enumerate(world.own(self.members))
        ]
