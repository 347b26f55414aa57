# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""ICU-Sepsis as a task: 47 features, 25 treatments, hospitals that differ in severity."""

from dataclasses import dataclass
import functools

from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.random_streams import SepsisStream
from fdrl_ros.settings import setting, Settings
from fdrl_ros.tasks import Choice, Field, Hospitals, Task, TaskSpec
from fdrl_ros.tasks.task import SimpleEpisode, SPLITS
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis, SHA256
from fdrl_ros.worlds.icu_sepsis.env import IcuSepsisEnv
from fdrl_ros.worlds.icu_sepsis.episodes import SepsisHospital
from fdrl_ros.worlds.icu_sepsis.model import ACTION_COUNT, LEVELS, PATIENT_STATES, REWARD
from fdrl_ros.worlds.icu_sepsis.records import CLIP, FEATURES, features_of
from fdrl_ros.worlds.icu_sepsis.values import optimum
import gymnasium
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SepsisWorldSettings(Settings):
    """How skilled the clinicians of the records are."""

    skill: float = setting(
        0.5,
        'share of steps in which the records have the best treatment; elsewhere the one of '
        "ICU-Sepsis' clinicians, whose records alone teach next to nothing at epsilon 8",
        limits=(0.0, 1.0),
    )


@dataclass(frozen=True)
class SepsisPatient:
    """
    One patient on admission, and the seed of all that happens.

    :param name: pseudonym.
    :param state: number of the state on admission, 0 to 712.
    """

    name: str
    state: int
    seed: int


@dataclass(frozen=True)
class SepsisPopulation:
    """Patients of one hospital, or public ones; see :class:`fdrl_ros.tasks.task.Population`."""

    home: SepsisHospital
    public: bool

    @property
    def hospital(self) -> int:
        """Number of the hospital, from 0."""
        return self.home.hospital

    @property
    def seed(self) -> int:
        """Seed of the whole federation's patients."""
        return self.home.seed

    def patient(self, index: int, split: str = 'train') -> SepsisPatient:
        """Return patient number `index`, always the same one."""
        where = int(self.public), self.home.hospital, SPLITS.index(split), index
        rng = np.random.default_rng([self.seed, SepsisStream.PATIENTS, *where])
        state = icu_sepsis().admit(rng.random(1), _start(self.home))[0]
        whose = 'public' if self.public else self.home.name
        return SepsisPatient(f'{whose}/{split}/{index}', int(state), int(rng.integers(2**31)))


class IcuSepsisTask(Task[SepsisPatient, SepsisWorldSettings]):
    """Keep patients with sepsis alive by fluids and vasopressors, every four hours."""

    name = 'icu_sepsis'
    summary = 'ICU-Sepsis: 47 features, 25 treatments; hospitals admit other severities'
    world = SepsisWorldSettings
    defaults = {
        'collection': {'patients': 2000, 'exploration': 0.0, 'variation': 0.0},
        'pretraining': {'patients': 20, 'steps': 0, 'discount': 1.0},
        'learner': {
            **{'discount': 1.0, 'learning_rate': 0.02, 'epochs': 8, 'conservative': 1.0},
            'transitions_per_patient': 10,
        },
        'privacy': {'batch': 500, 'noise_multiplier': 2.4, 'clip_norm': 1.0},
        'rounds': {'rounds': 6},
        'validation': {'patients': 1000, 'margin': 0.05},
        'evaluation': {'patients': 6000, 'round_patients': 600},
    }

    def spec(self, world: SepsisWorldSettings) -> TaskSpec:
        """Return the 47 standardised features, and fluid and vasopressor of each action."""
        levels = range(LEVELS)
        return TaskSpec(
            (len(FEATURES),),
            fields=tuple(Field(name, '1', 1.0, 'in standard deviations') for name in FEATURES),
            actions=tuple(f'fluid_{fluid}_vaso_{vaso}' for fluid in levels for vaso in levels),
        )

    def make_env(self, world: SepsisWorldSettings) -> IcuSepsisEnv:
        """Return a new env; :meth:`operate` names the patients."""
        return IcuSepsisEnv()

    def population(
        self, chosen: Hospitals, hospital: int | None, heterogeneity: float | None = None
    ) -> SepsisPopulation:
        """Return the patients of a hospital; public ones are of every severity."""
        if hospital is None:
            return SepsisPopulation(SepsisHospital(0, 1, 0.0, chosen.seed), True)
        numbers = chosen.hospitals, chosen.heterogeneity, chosen.seed
        return SepsisPopulation(SepsisHospital(hospital, *numbers), False)

    def operate(
        self,
        env: gymnasium.Env,
        choose: Choice,
        patient: SepsisPatient,
        rng: np.random.Generator,
    ) -> SimpleEpisode[SepsisPatient]:
        """Treat one patient until the end; rewards are 1 and -1 in place of 15."""
        seen, _ = env.reset(seed=patient.seed, options={'state': patient.state})
        states, actions, rewards, over, cut = [seen], [], [], False, False
        while not (over or cut):
            actions.append(int(choose(seen)))
            seen, reward, over, cut, _ = env.step(actions[-1])
            states.append(seen)
            rewards.append(float(reward) / REWARD)
        return SimpleEpisode(
            patient,
            np.array(states),
            np.array(actions, np.int64),
            np.array(rewards, np.float32),
            rewards[-1] > 0.0,
            over,
        )

    def guide(self, patient: SepsisPatient, world: SepsisWorldSettings) -> Choice:
        """Return the clinicians, with the best treatment at the share of steps that `skill` is."""
        chances, number_of = _clinicians(world.skill), _state_numbers()
        rng = np.random.default_rng([patient.seed, SepsisStream.PATIENTS])

        def choose(seen: NDArray[np.float32]) -> int:
            row = chances[number_of[seen.tobytes()]]
            return min(int(np.searchsorted(row, rng.random(), 'right')), ACTION_COUNT - 1)

        return choose

    def check(self, chosen: Hospitals) -> None:
        """Refuse procedures: this task has none."""
        if chosen.procedures:
            raise SettingError('procedures', chosen.procedures, 'none: task icu_sepsis has none')

    def constants(self) -> bytes:
        """Return the digests of ICU-Sepsis' files, and how features are clipped."""
        return repr((sorted(SHA256.items()), CLIP)).encode()


@functools.lru_cache(maxsize=64)
def _start(hospital: SepsisHospital) -> NDArray[np.float64]:
    return hospital.start(icu_sepsis())


@functools.cache
def _state_numbers() -> dict[bytes, int]:
    """Return the number of each state by its features, which no two states share."""
    table = features_of(icu_sepsis())[:PATIENT_STATES]
    return {row.tobytes(): number for number, row in enumerate(table)}


@functools.lru_cache(maxsize=8)
def _clinicians(skill: float) -> NDArray[np.float64]:
    """Return the cumulated chance of each treatment in each state, (713, 25)."""
    model = icu_sepsis()
    best = np.eye(ACTION_COUNT)[optimum(model).actions]
    return np.cumsum(skill * best + (1.0 - skill) * model.clinicians, axis=1)
