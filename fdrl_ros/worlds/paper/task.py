# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The FDRL paper's world (section IV) as a task: 5 numbers, 3 actions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
import functools

from fdrl_ros.errors import SettingError
from fdrl_ros.metrics.adaptation import alpha_adapt
from fdrl_ros.metrics.risk import risk_terms, RiskScale
from fdrl_ros.runtime.random_streams import PaperStream
from fdrl_ros.settings import setting, Settings
from fdrl_ros.tasks import Choice, Episode, Field, Hospitals, Task, TaskSpec
from fdrl_ros.tasks.task import SimpleEpisode, SPLITS
from fdrl_ros.worlds.paper.env import HORIZON, PaperHospital, PaperWorldEnv, STATES
from fdrl_ros.worlds.paper.law import (
    ACTIONS,
    collapsed,
    FIELDS,
    GRID,
    index_of,
    law,
    LEANS,
    LEVELS,
    SIZE,
)
from fdrl_ros.worlds.paper.utility import agreement, as_expert, exact_return, UNIFORM
import gymnasium
import numpy as np
from numpy.typing import NDArray

_MEANINGS = (
    'of the tool',
    'on the tissue',
    'of the tissue',
    'departure of the vital signs',
    'stages of the operation',
)


@dataclass(frozen=True)
class PaperWorldSettings(Settings):
    """
    What is set of the paper's world, and what its measures are scaled by.

    The scales are our choice, like all numbers of this world, and nothing that is trained depends
    on them. The tolerance is half of what a step costs. A policy sees each level divided by the
    highest, so one level is 1/3, and a step moves a level by one: the threshold asks for two.
    """

    record_steps: int = setting(
        HORIZON,
        'transitions of a recorded operation, after which it is cut off; 1: records are single '
        'transitions, as the paper has them',
        limits=(1, HORIZON),
    )
    tolerance: float = setting(
        0.01,
        "V* - Q* up to which an action counts as the expert's in A_task (Eq. 8); a success is 1",
        limits=(0.0, 1.0),
        repr=False,
    )
    full_damage: float = setting(
        1.0,
        'damage, over its highest level, at which T_d of R_mit is 1 (Eq. 10)',
        limits=(0.01, 1.0),
        repr=False,
    )
    change_threshold: float = setting(
        0.4,
        'change of state that counts in alpha_adapt (Eq. 11), levels over the highest',
        limits=(0.0, 3.0),
        repr=False,
    )


@dataclass(frozen=True)
class PaperPatient:
    """
    One patient: whose law holds, and the seed of admission and of all that happens.

    :param name: pseudonym.
    :param recorded: whether the operation is of those that hospitals learn from.
    """

    name: str
    hospital: PaperHospital
    seed: int
    recorded: bool = False


@dataclass(frozen=True)
class PaperPopulation:
    """
    Patients of one hospital, or public ones; see :class:`fdrl_ros.tasks.task.Population`.

    :param home: whose law holds; public patients at H > 0 are of any hospital.
    """

    home: PaperHospital
    public: bool

    @property
    def hospital(self) -> int:
        """Number of the hospital, from 0."""
        return 0 if self.public else self.home.hospital

    @property
    def seed(self) -> int:
        """Seed of the whole federation's patients."""
        return self.home.seed

    def patient(self, index: int, split: str = 'train') -> PaperPatient:
        """Return patient number `index`, always the same one."""
        home, where = self.home, (int(self.public), self.hospital, SPLITS.index(split), index)
        rng = np.random.default_rng([PaperStream.PATIENTS, home.seed, *where])
        if self.public:
            numbers = home.hospitals, home.heterogeneity, home.seed
            home = PaperHospital(int(rng.integers(home.hospitals)), *numbers)
        whose = 'public' if self.public else f'hospital_{home.hospital + 1}'
        name, seed = f'{whose}/{split}/{index}', int(rng.integers(2**31))
        return PaperPatient(name, home, seed, recorded=split == SPLITS[0])


class PaperTask(Task[PaperPatient, PaperWorldSettings]):
    """Bring an operation to its end before the patient collapses."""

    name = 'paper'
    summary = "the FDRL paper's world: 1024 states, 3 actions, each hospital an own exact law"
    world = PaperWorldSettings
    defaults = {
        'collection': {'patients': 600, 'exploration': 0.4},
        'pretraining': {'patients': 50, 'steps': 50, 'discount': 0.9},
        'learner': {'discount': 0.9, 'learning_rate': 0.01, 'epochs': 8, 'conservative': 1.0},
        'privacy': {'batch': 200, 'noise_multiplier': 2.6, 'delta': 1e-3},
        'rounds': {'rounds': 8},
    }
    measures = {
        'a_task_on_policy': 'on policy',
        'r_mit': 'R_mit',
        'alpha_adapt': 'alpha_adapt',
    }
    exact_measures = {
        'a_task': 'A_task',
        'a_task_ceiling': '',
        'a_task_chance': '',
        'a_task_exact': 'best only',
        'a_task_exact_ceiling': '',
        'exact_return': 'exact return',
        'exact_expert_return': '',
    }

    def spec(self, world: PaperWorldSettings) -> TaskSpec:
        """Return the 5 levels and the 3 actions."""
        fields = tuple(
            Field(name, '1', 1.0, f'{words}, in thirds')
            for name, words in zip(FIELDS, _MEANINGS, strict=True)
        )
        return TaskSpec((SIZE,), fields=fields, actions=ACTIONS)

    def make_env(self, world: PaperWorldSettings) -> PaperWorldEnv:
        """Return a new env; :meth:`operate` names the patients."""
        return PaperWorldEnv(record_steps=world.record_steps)

    def population(
        self, chosen: Hospitals, hospital: int | None, heterogeneity: float | None = None
    ) -> PaperPopulation:
        """Return the patients of a hospital, or public ones."""
        public = hospital is None
        strength = (heterogeneity or 0.0) if public else chosen.heterogeneity
        home = PaperHospital(hospital or 0, chosen.hospitals, strength, chosen.seed)
        return PaperPopulation(home, public)

    def operate(
        self,
        env: gymnasium.Env,
        choose: Choice,
        patient: PaperPatient,
        rng: np.random.Generator,
    ) -> SimpleEpisode[PaperPatient]:
        """
        Operate on one patient; the patient's own seed decides what happens.

        Operations that are recorded end after the world's record_steps at the latest.
        """
        if not isinstance(env, PaperWorldEnv):
            raise TypeError(f'{env}: expected a PaperWorldEnv')
        env.hospital = patient.hospital
        state, info = env.reset(seed=patient.seed)
        states, over = [state], False
        actions: list[int] = []
        rewards: list[float] = []
        most = env.record_steps if patient.recorded else HORIZON
        while not over and len(actions) < most:
            actions.append(int(choose(state)))
            state, reward, over, _, info = env.step(actions[-1])
            states.append(state)
            rewards.append(reward)
        return SimpleEpisode(
            patient,
            np.array(states),
            np.array(actions, np.int64),
            np.array(rewards, np.float32),
            bool(info['success']),
            over,
        )

    def guide(self, patient: PaperPatient, world: PaperWorldSettings) -> Choice:
        """Return the best action of the hospital's own law."""
        home = _solved(patient.hospital)
        return lambda state: home.expert(state)[0]

    def measure(
        self, episode: Episode[PaperPatient], world: PaperWorldSettings
    ) -> Mapping[str, float]:
        """
        Return A_task in the states met, R_mit and alpha_adapt of an operation (FDRL Eq. 8 to 11).

        Force and damage are those after each step, as shares of the highest level; the critical
        error is collapse.
        """
        states, actions = episode.states, episode.actions
        levels = np.rint(states * (LEVELS - 1)).astype(np.int64)
        right = as_expert(
            _solved(episode.patient.hospital), index_of(levels[:-1]), world.tolerance
        )
        after = states[1:]
        force, damage = (after[:, FIELDS.index(name)] for name in ('force', 'damage'))
        scale = RiskScale(full_damage=world.full_damage)
        risk = risk_terms(force, damage, collapsed(levels[1:]), 1.0, scale)
        adaptation, _ = alpha_adapt([(states[:-1], actions)], world.change_threshold)
        return {
            'a_task_on_policy': float(right[np.arange(len(actions)), actions].mean()),
            'r_mit': 1.0 - float(risk.total.mean()),
            'alpha_adapt': adaptation,
        }

    def exact(
        self,
        begin: Callable[[PaperPatient], Choice] | None,
        chosen: Hospitals,
        world: PaperWorldSettings,
    ) -> Mapping[str, float]:
        """
        Return A_task over all states and the return of all patients, each with its ceiling.

        A_task counts actions within the tolerance, ``a_task_exact`` only the best. Ceilings of
        A_task are of any single policy: who acts by a policy of each hospital's own can pass them.
        """
        patients = [
            self.population(chosen, each).patient(0, SPLITS[1]) for each in range(chosen.hospitals)
        ]
        homes = [_solved(each.hospital) for each in patients]
        acting = UNIFORM if begin is None else [_in_all_states(begin(each)) for each in patients]
        near, best = agreement(homes, acting, world.tolerance), agreement(homes, acting)
        return {
            'a_task': near.a_task,
            'a_task_ceiling': near.ceiling,
            'a_task_chance': near.chance,
            'a_task_exact': best.a_task,
            'a_task_exact_ceiling': best.ceiling,
            'exact_return': exact_return(homes, acting),
            'exact_expert_return': _expert_return(tuple(homes)),
        }

    def check(self, chosen: Hospitals) -> None:
        """Refuse procedures: this task has none."""
        if chosen.procedures:
            raise SettingError('procedures', chosen.procedures, 'none: task paper has none')

    def constants(self) -> bytes:
        """Return the tables of the law and how long an operation lasts."""
        laws = (law((lean,) * LEANS) for lean in (-1.0, 0.0, 1.0))
        tables = [(each.start, each.moves, each.weights, each.reward(GRID)) for each in laws]
        return b''.join(table.tobytes() for each in tables for table in each) + bytes([HORIZON])


@functools.lru_cache(maxsize=64)
def _solved(hospital: PaperHospital) -> PaperHospital:
    """Return one object for equal hospitals: its law is solved once."""
    return hospital


@functools.lru_cache(maxsize=8)
def _expert_return(homes: tuple[PaperHospital, ...]) -> float:
    """Return what each hospital's own expert reaches; solved once."""
    return exact_return(homes, [each.best for each in homes])


def _in_all_states(choose: Choice) -> NDArray[np.int64]:
    """Return what somebody does in each of STATES, shape (1024,)."""
    return np.array([int(choose(state)) for state in STATES], np.int64)
