# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whole operations as arrays: one after the other, or of many patients from begin to end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

from fdrl_ros.surgery.gym.actions import ACTION_COUNT
from fdrl_ros.surgery.gym.operation import FORCE_LEVELS
from fdrl_ros.surgery.gym.state import Info, STATE_SIZE
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.gym.vector_operation import VectorOperation
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
from fdrl_ros.tasks.task import Chooser, SimpleEpisode
import numpy as np
from numpy.typing import NDArray

Action = int | NDArray[np.float32]
"""What who operates answers; the env refuses all but the number of an action."""

Choice = Callable[[NDArray[np.float32]], Action]
Behaviour = Callable[[NDArray[np.float32], Patient, np.random.Generator], Action]


class Signal(NamedTuple):
    """
    An array of an episode.

    :param kind: its type in files.
    :param row: shape of a row.
    :param info: what Gymnasium's `info` calls it; empty where it is not from there.
    """

    kind: str
    row: tuple[int, ...] = ()
    info: str = ''


PER_STATE = {
    'states': Signal('<f4', (STATE_SIZE,)),
    'tips': Signal('<f8', (3,), 'tip'),
    'jaws': Signal('<f8', info='jaw'),
    'news2': Signal('<i8', info='news2'),
    'sofa': Signal('<i8', info='sofa'),
}
"""Arrays of an episode with a row for each of T + 1 states."""

PER_TICK = {
    'actions': Signal('<i8'),
    'rewards': Signal('<f4'),
    'forces': Signal('<f8', info='peak_force'),
    'mean_forces': Signal('<f8', info='mean_force'),
    'damages': Signal('<f8', info='damage'),
    'pressures': Signal('<f8', info='mean_arterial_pressure'),
    'critical': Signal('|b1', info='critical'),
}
"""Arrays with a row for each of T ticks."""

SIGNALS = {**PER_STATE, **PER_TICK}


@dataclass(frozen=True, eq=False)
class Episode:
    """
    One operation of T ticks.

    :param patient: who it was.
    :param states: shape (T + 1, STATE_SIZE), float32, as a policy sees them.
    :param actions: shape (T,), int64.
    :param rewards: shape (T,), float32.
    :param forces: greatest normal force on the tip within each tick, shape (T,), N.
    :param mean_forces: mean normal force on the tip over each tick, shape (T,), N.
    :param damages: done to tissue since the start, shape (T,), N s.
    :param pressures: mean arterial pressure, shape (T,), mmHg.
    :param critical: C_t, shape (T,), bool.
    :param news2: of the vitals, shape (T + 1,), int64.
    :param sofa: of the labs and the vitals, shape (T + 1,), int64.
    :param tips: where the tip was, shape (T + 1, 3), m.
    :param jaws: angle of the jaw, shape (T + 1,), rad.
    :param time_above: time with a force above 0.8, 3.4 and 6.5 N, by the force, s.
    :param success: all was done.
    :param failure: one of :data:`fdrl_ros.surgery.tasks.outcome.FAILURES`, or empty.
    :param terminated: the last state has no future; false when the time ran out.
    """

    patient: Patient
    states: NDArray[np.float32]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float32]
    forces: NDArray[np.float64]
    mean_forces: NDArray[np.float64]
    damages: NDArray[np.float64]
    pressures: NDArray[np.float64]
    critical: NDArray[np.bool_]
    news2: NDArray[np.int64]
    sofa: NDArray[np.int64]
    tips: NDArray[np.float64]
    jaws: NDArray[np.float64]
    time_above: dict[float, float]
    success: bool
    failure: str
    terminated: bool

    @property
    def length(self) -> int:
        """Return T."""
        return len(self.actions)


def run_episode(env: SurgeryEnv, choose: Choice, patient: Patient) -> Episode:
    """
    Operate on one patient.

    :param env: to operate in; its cohort is not asked.
    :param choose: a policy: state in, action out.
    """
    state, info = env.reset(options={'patient': patient})
    states, actions, rewards, infos = [state], [], [], [info]
    terminated = truncated = False
    while not (terminated or truncated):
        actions.append(int(choose(state)))
        state, reward, terminated, truncated, info = env.step(actions[-1])
        states.append(state)
        rewards.append(reward)
        infos.append(info)

    seen: Info = {
        name: np.array([info[signal.info] for info in infos[name in PER_TICK :]], signal.kind)
        for name, signal in SIGNALS.items()
        if signal.info
    }
    return Episode(
        patient=patient,
        states=np.array(states),
        actions=np.array(actions, np.int64),
        rewards=np.array(rewards, np.float32),
        **seen,
        time_above=dict(zip(FORCE_LEVELS, env.operation.time_above, strict=True)),
        success=info['success'],
        failure=info['failure'],
        terminated=terminated,
    )


def mixed_behaviour(expert_share: float, settings: WorldSettings | None = None) -> Behaviour:
    """
    Return a behaviour that asks the expert with a probability and else moves at random.

    :param expert_share: probability in [0, 1].
    """
    world = settings or WorldSettings()

    def behave(state: NDArray[np.float32], patient: Patient, rng: np.random.Generator) -> int:
        if rng.random() < expert_share:
            return expert(state, patient, world)[0]
        return int(rng.integers(ACTION_COUNT))

    return behave


@dataclass(frozen=True, eq=False)
class Rollouts:
    """
    Operations on n patients with N ticks in all, patient after patient, each in order of time.

    :param states: before each tick, shape (N, STATE_SIZE), float32, as a policy sees them.
    :param actions: shape (N,).
    :param rewards: shape (N,).
    :param forces: greatest normal force within each tick, shape (N,), N.
    :param damages: done to tissue since the start, shape (N,), N s.
    :param critical: C_t, shape (N,), bool.
    :param cases: whose tick it was, shape (N,), from 0, rising.
    :param last_states: after each patient's last tick, shape (n, STATE_SIZE).
    :param terminated: the last state has no future, shape (n,), bool.
    :param success: shape (n,), bool.
    :param failure: codes of failures, see :mod:`fdrl_ros.surgery.tasks.outcome`, shape (n,).
    """

    patients: tuple[Patient, ...]
    states: NDArray[np.float32]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    forces: NDArray[np.float64]
    damages: NDArray[np.float64]
    critical: NDArray[np.bool_]
    cases: NDArray[np.int64]
    last_states: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    success: NDArray[np.bool_]
    failure: NDArray[np.int64]

    @property
    def ticks(self) -> NDArray[np.int64]:
        """Return which tick of its operation each row is, shape (N,), from 0."""
        begins = np.searchsorted(self.cases, np.arange(len(self.patients)))
        return np.arange(len(self.cases)) - begins[self.cases]

    def episodes(self) -> list[SimpleEpisode[Patient]]:
        """Return the operations one by one, as records take them."""
        ends = np.searchsorted(self.cases, np.arange(1, len(self.patients)))
        columns = (np.split(each, ends) for each in (self.states, self.actions, self.rewards))
        return [
            SimpleEpisode(
                patient,
                np.concatenate([states, last[None]]),
                actions,
                rewards.astype(np.float32),
                bool(success),
                bool(terminated),
            )
            for patient, states, actions, rewards, last, success, terminated in zip(
                self.patients,
                *columns,
                self.last_states,
                self.success,
                self.terminated,
                strict=True,
            )
        ]


def roll_out(
    patients: Sequence[Patient],
    choose: Chooser,
    settings: WorldSettings | None = None,
    *,
    tick: Callable[[int], None] = lambda left: None,
) -> Rollouts:
    """
    Operate on all patients side by side, with kinematic arms.

    :param settings: of the world; its mode does not count.
    :param tick: gets how many operations go on before each tick; what it raises ends all.
    :raises StateError: on actions that cannot be.
    """
    world = replace(settings or WorldSettings(), mode='kinematic')
    batch = VectorOperation(list(patients), world)
    states = batch.reset()
    rows = np.arange(len(patients))
    success, ended = np.zeros((2, len(rows)), np.bool_)
    failure, last = np.zeros(len(rows), np.int64), np.empty_like(states)
    parts = []
    for number in count():
        tick(len(rows))
        actions = np.asarray(choose(states, rows, number), np.int64)
        following, rewards, terminated, truncated, info = batch.step(actions)
        told = (info[name] for name in ('peak_force', 'damage', 'critical'))
        parts.append((states, actions, rewards, *told, rows))
        over = terminated | truncated
        success[rows[over]], failure[rows[over]] = info['success'][over], info['failure'][over]
        last[rows[over]], ended[rows[over]] = following[over], terminated[over]
        going = np.flatnonzero(~over)
        if len(going) == 0:
            break
        if over.any():
            batch.select(going)
        states, rows = following[going], rows[going]
    batch.close()
    columns = [np.concatenate(part) for part in zip(*parts, strict=True)]
    order = np.argsort(columns[-1], kind='stable')  # within a patient time stays in order
    names = ('states', 'actions', 'rewards', 'forces', 'damages', 'critical', 'cases')
    made: Info = {name: column[order] for name, column in zip(names, columns, strict=True)}
    made |= {'last_states': last, 'terminated': ended, 'success': success, 'failure': failure}
    return Rollouts(tuple(patients), **made)
