# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The ceiling: what a policy with a memory can do that learned in the hospitals' true worlds.

A gated recurrent unit (Cho et al. 2014) clones the controller with the experience of each
hospital, from clean labels, without privacy, all hospitals' patients together. It is told whose
patient it is, and remembers the operation so far.
"""

from collections.abc import Sequence

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import PluginError
from fdrl_ros.runtime.progress import stop_if, Stopped
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.episode import roll_out
from fdrl_ros.surgery.gym.state import STATE_SIZE
from fdrl_ros.surgery.tasks.controller import controller, Experience
from fdrl_ros.surgery.tasks.surgeon import habits_of
from fdrl_ros.tasks.task import Chooser
import numpy as np
from numpy.typing import NDArray

HIDDEN = 96
EXPLORATION = 0.2
"""Share of moves that are random, so that it learns to put its own mistakes right."""

BATCH = 24
"""Operations of a step."""

LONGEST = 160
"""Ticks of an operation that are learned from, the first ones."""

LEARNING_RATE = 0.004
"""At first; it falls linearly to 0."""

Operation = tuple[int, NDArray[np.float32], NDArray[np.int64]]
"""Number of the hospital, states (ticks, STATE_SIZE), and what its controller would do."""


def labelled(plan: Plan, count: int) -> list[Operation]:
    """Return operations on training patients of every hospital, with the controller's answers."""
    found: list[Operation] = []
    for cohort in plan.cohorts:
        experience = habits_of(cohort).experience
        rng = np.random.default_rng([Stream.CEILING, cohort.seed, cohort.hospital])
        patients = [cohort.patient(each) for each in range(count)]
        made = roll_out(patients, _explorer(experience, rng), plan.world)
        labels = controller(made.states, experience)
        ends = np.searchsorted(made.cases, np.arange(1, count))
        both = zip(np.split(made.states, ends), np.split(labels, ends), strict=True)
        found += [(cohort.hospital, seen[:LONGEST], own[:LONGEST]) for seen, own in both]
    return found


def _explorer(experience: Experience, rng: np.random.Generator) -> Chooser:
    def choose(
        states: NDArray[np.float32], rows: NDArray[np.int64], tick: int
    ) -> NDArray[np.int64]:
        other = rng.integers(ACTION_COUNT, size=len(states))
        chosen = controller(states, experience)
        return np.where(rng.random(len(states)) < EXPLORATION, other, chosen)

    return choose


class Ceiling:
    """
    The recurrent policy.

    :param hospitals: how many there are.
    :param seed: of its first weights and minibatches.
    :raises PluginError: if PyTorch is not installed.
    """

    def __init__(self, hospitals: int, seed: int) -> None:
        try:
            import torch
        except ImportError as error:
            raise PluginError('ceiling', f'{error}: pip install "fdrl_ros[torch]"') from error
        torch.set_num_threads(1)
        self._torch, self._rng = torch, np.random.default_rng([Stream.CEILING, seed])
        self._told = np.eye(hospitals, dtype=np.float32)
        self._memory = torch.nn.GRU(STATE_SIZE + hospitals, HIDDEN, batch_first=True)
        self._head = torch.nn.Linear(HIDDEN, ACTION_COUNT)
        bound = HIDDEN**-0.5  # PyTorch's own, of both
        with torch.no_grad():
            for each in (*self._memory.parameters(), *self._head.parameters()):
                drawn = self._rng.uniform(-bound, bound, tuple(each.shape))
                each.copy_(torch.from_numpy(drawn))

    def learn(
        self, operations: Sequence[Operation], steps: int, stopped: Stopped = lambda: False
    ) -> None:
        """
        Clone the answers, whole operations at a time.

        :raises TrainingStopped: as soon as `stopped` says so.
        """
        torch = self._torch
        weights = [*self._memory.parameters(), *self._head.parameters()]
        optimizer = torch.optim.Adam(weights, LEARNING_RATE)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, steps)
        for _ in range(steps):
            stop_if(stopped)
            chosen = self._rng.integers(len(operations), size=min(BATCH, len(operations)))
            longest = max(len(operations[each][2]) for each in chosen)
            inputs = np.zeros((len(chosen), longest, self._memory.input_size), np.float32)
            labels = np.full((len(chosen), longest), -1)
            for row, each in enumerate(chosen):
                hospital, states, answers = operations[each]
                inputs[row, : len(states)] = self._inputs(states, hospital)
                labels[row, : len(states)] = answers
            scores = self._head(self._memory(torch.from_numpy(inputs))[0])
            loss = torch.nn.functional.cross_entropy(
                scores.flatten(0, 1), torch.from_numpy(labels).flatten(), ignore_index=-1
            )
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            schedule.step()

    def acting(self, hospital: int, count: int) -> Chooser:
        """Return it in a hospital, with a memory of each of so many operations."""
        torch = self._torch
        memory = torch.zeros(1, count, HIDDEN)

        def choose(
            states: NDArray[np.float32], rows: NDArray[np.int64], tick: int
        ) -> NDArray[np.int64]:
            inputs = torch.from_numpy(self._inputs(states, hospital)[:, None])
            with torch.no_grad():
                seen, memory[:, rows] = self._memory(inputs, memory[:, rows])
                answers: NDArray[np.int64] = self._head(seen[:, 0]).argmax(dim=1).numpy()
            return answers

        return choose

    def _inputs(self, states: NDArray[np.float32], hospital: int) -> NDArray[np.float32]:
        told = np.broadcast_to(self._told[hospital], (len(states), len(self._told)))
        return np.concatenate([states, told], axis=1)


def learn_ceiling(plan: Plan, size: tuple[int, int], stopped: Stopped) -> Ceiling:
    """
    Return the policy for the hospitals of a plan.

    :param size: patients of each hospital, and steps.
    """
    made = Ceiling(plan.federation.hospitals, plan.federation.seed)
    made.learn(labelled(plan, size[0]), size[1], stopped)
    return made
