# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The FDRL paper's world (section IV) as a task: 5 numbers, 3 actions."""

from dataclasses import dataclass
import functools

from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.random_streams import PaperStream
from fdrl_ros.settings import setting, Settings
from fdrl_ros.tasks import Choice, Field, Hospitals, Task, TaskSpec
from fdrl_ros.tasks.task import SimpleEpisode, SPLITS
from fdrl_ros.worlds.paper.env import HORIZON, PaperHospital, PaperWorldEnv
from fdrl_ros.worlds.paper.law import ACTIONS, FIELDS, GRID, law, LEANS, SIZE
import gymnasium
import numpy as np

_MEANINGS = (
    'of the tool',
    'on the tissue',
    'of the tissue',
    'departure of the vital signs',
    'stages of the operation',
)


@dataclass(frozen=True)
class PaperWorldSettings(Settings):
    """What is set of the paper's world."""

    record_steps: int = setting(
        HORIZON,
        'transitions of a recorded operation, after which it is cut off; 1: records are single '
        'transitions, as the paper has them',
        limits=(1, HORIZON),
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
