# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Surgery with a simulated arm on simulated patients, as a task."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fdrl_ros.resources import resource
from fdrl_ros.surgery.gym.actions import ACTIONS, STAY
from fdrl_ros.surgery.gym.episode import Episode, roll_out, run_episode
from fdrl_ros.surgery.gym.episode_metrics import (
    episode_metrics,
    operation_measures,
    states_met,
)
from fdrl_ros.surgery.gym.state import STATE_FIELDS
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort, public_cohort
from fdrl_ros.surgery.patient.conditions import Conditions
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.controller import controller
from fdrl_ros.surgery.tasks.expert import expert
from fdrl_ros.surgery.tasks.procedures import procedures_named
from fdrl_ros.surgery.tasks.surgeon import habits_of, operate
from fdrl_ros.tasks import Choice, Field, Hospitals, Population, Task, TaskSpec
from fdrl_ros.tasks import Episode as AnyEpisode
from fdrl_ros.tasks.task import Chooser, Rule
import gymnasium
import numpy as np


class SurgeryTask(Task[Patient, WorldSettings]):
    """The procedures of :mod:`fdrl_ros.surgery.tasks`, by 15 discrete moves of the arm."""

    name = 'surgery'
    summary = 'procedures of a surgical arm on breathing tissue; robots run it'
    world = WorldSettings
    defaults = {
        'federation': {'procedures': 'all', 'gap': 1.0, 'disturbances': True},
        'collection': {'guide': 'surgeon'},
        'pretraining': {
            **{'patients': 6000, 'heterogeneity': 1.0, 'exploration': 0.2},
            **{'guide': 'controller', 'labels': 'guide', 'discount': 0.97},
            **{'steps': 20000, 'batch': 512, 'learning_rate': 0.003, 'settling': 1.0},
        },
        'learner': {
            **{'algorithm': 'behaviour_cloning', 'idle_action': STAY, 'idle_weight': 0.05},
            **{'discount': 0.97, 'learning_rate': 0.001, 'averaging': 0.5, 'proximal': 0.0},
            # The first bias and what each hospital's camera, arm and force sensor are off.
            'frozen': 'shared.0.weight, shared.1, value, advantage',
            'offsets': 'goal_error_x, goal_error_y, goal_error_z, force_error',
            'offset_rate': 0.02,
        },
        # The least noise, rounded up, by which all rounds and what follows at home keep budget 8.
        'privacy': {'batch': 128, 'clip_norm': 0.4, 'delta': 1e-4, 'noise_multiplier': 2.5},
        'home': {
            **{'epochs': 24, 'alone_epochs': 24, 'candidates': 'global, personal'},
            **{'learning_rate': 0.001, 'offset_rate': 0.02},
        },
        # Of seven procedures about as many operations in all as of two.
        'value': {'patients': 500, 'checked': 12, 'redraws': 60},
        # Another policy replaces the home policy only if the lower confidence bound of its
        # advantage exceeds 2 returns.
        'selector': {'advantage_confidence': 0.999, 'home_margin': 2.0},
    }
    robot = True

    def spec(self, world: WorldSettings) -> TaskSpec:
        """Return the numbers of the state and the 15 actions."""
        return TaskSpec(
            (len(STATE_FIELDS),),
            fields=tuple(
                Field(field.name, field.unit, field.scale, field.description)
                for field in STATE_FIELDS
            ),
            actions=tuple(action.name for action in ACTIONS),
        )

    def make_env(self, world: WorldSettings) -> SurgeryEnv:
        """Return a new env; :meth:`operate` names the patients."""
        return SurgeryEnv(settings=world)

    def population(
        self, chosen: Hospitals, hospital: int | None, heterogeneity: float | None = None
    ) -> Cohort:
        """Return the cohort of a hospital, or the public one."""
        names, conditions = _procedures(chosen), getattr(chosen, 'conditions', Conditions())
        if hospital is None:
            return public_cohort(chosen.seed, heterogeneity or 0.0, names, conditions)
        numbers = chosen.hospitals, chosen.heterogeneity, chosen.seed
        return Cohort(hospital, *numbers, procedures=names, conditions=conditions)

    def operate(
        self, env: gymnasium.Env, choose: Choice, patient: Patient, rng: np.random.Generator
    ) -> Episode:
        """Operate on one patient."""
        if not isinstance(env, SurgeryEnv):
            raise TypeError(f'{env}: expected a SurgeryEnv')
        env.np_random = rng
        return run_episode(env, lambda state: int(choose(state)), patient)

    def guide(self, patient: Patient, world: WorldSettings) -> Choice:
        """Return the expert, which knows the patient's tissue."""
        return lambda state: expert(state, patient, world)[0]

    def hand_written(self, world: WorldSettings) -> Rule:
        """Return :func:`fdrl_ros.surgery.tasks.controller.controller` without experience."""
        return controller

    def public_world(self, world: WorldSettings) -> WorldSettings:
        """Return the world with kinematic arms, which operate side by side."""
        return replace(world, mode='kinematic')

    def operate_together(
        self, patients: Sequence[Patient], choose: Chooser, world: WorldSettings
    ) -> Sequence[AnyEpisode[Patient]] | None:
        """Operate side by side, with kinematic arms only."""
        if world.mode != 'kinematic':
            return None
        return roll_out(patients, choose, world).episodes()

    def operate_by_surgeons(
        self,
        population: Population[Patient],
        patients: Sequence[Patient],
        world: WorldSettings,
        rngs: Sequence[np.random.Generator],
    ) -> Sequence[AnyEpisode[Patient]]:
        """
        Return what the surgeons of a hospital did, see :mod:`fdrl_ros.surgery.tasks.surgeon`.

        :raises TypeError: if the population is no Cohort.
        """
        if not isinstance(population, Cohort):
            raise TypeError(f'{population}: expected a Cohort')
        return operate(habits_of(population), patients, world, rngs)

    def measure(
        self, episode: AnyEpisode[Patient], world: WorldSettings
    ) -> Mapping[str, float | str]:
        """Return the metrics of the operation, and what :func:`operation_measures` adds."""
        if not isinstance(episode, Episode):
            raise TypeError(f'{episode}: expected an operation')
        metrics = episode_metrics(episode, states_met(episode, world), episode.actions)
        return {**vars(metrics), **operation_measures(episode, world)._asdict()}

    def check(self, chosen: Hospitals) -> None:
        """Refuse procedures that do not exist."""
        _procedures(chosen)

    def constants(self) -> bytes:
        """Return config/world.yaml: every number of the world."""
        return resource('config/world.yaml').read_bytes()


def _procedures(chosen: Hospitals) -> tuple[str, ...]:
    """Return the procedures of a federation by name; all of them where it names none."""
    return procedures_named(chosen.procedures or 'all')
