# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The base class of every task, and the small contracts between a task and the rest."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
import hashlib
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from fdrl_ros.policy.policy import Action
from fdrl_ros.policy.task_identity import TaskIdentity
from fdrl_ros.settings import Settings, Value
from fdrl_ros.tasks.spec import TaskSpec
import gymnasium
import numpy as np
from numpy.typing import NDArray

SPLITS = ('train', 'test')
"""Patients of one are never those of the other."""

Choice = Callable[[Any], Action]
"""Who acts: the flat observation of a state to the action in it."""

Rule = Callable[[NDArray[Any]], NDArray[Any]]
"""Who acts in many states: observations, a row for each, to actions, a row for each."""

Chooser = Callable[[NDArray[Any], NDArray[np.int64], int], NDArray[Any]]
"""
Who acts on many patients: observations, shape (m, ...), the numbers of their patients, shape (m,),
and the step since the start give an action for each.
"""


class Patient(Protocol):
    """One privacy unit: a patient, a case, an episode's conditions; it can be pickled."""

    @property
    def name(self) -> str:
        """Pseudonym, different for all patients of all hospitals."""
        ...


P = TypeVar('P', bound=Patient)
P_co = TypeVar('P_co', bound=Patient, covariant=True)
W = TypeVar('W', bound=Settings)


class Population(Protocol[P_co]):
    """The patients of one hospital, or public ones; each a pure function of its number."""

    @property
    def hospital(self) -> int:
        """Number of the hospital, from 0."""
        ...

    @property
    def public(self) -> bool:
        """Whether they are made up, and belong to no hospital."""
        ...

    @property
    def seed(self) -> int:
        """Seed of the whole federation's patients."""
        ...

    def patient(self, index: int, split: str = 'train') -> P_co:
        """
        Return patient number `index`, always the same one.

        :param split: 'train' or 'test': patients of one are never those of the other.
        """
        ...


class Hospitals(Protocol):
    """What a plan says of the hospitals: their number, how far they are apart, and the seed."""

    @property
    def hospitals(self) -> int:
        """Number of hospitals."""
        ...

    @property
    def heterogeneity(self) -> float:
        """H in [0, 1]: 0 if all hospitals have patients of one kind."""
        ...

    @property
    def seed(self) -> int:
        """Seed of patients, starting weights and surgeons."""
        ...

    @property
    def procedures(self) -> str:
        """What is done, where the task knows procedures."""
        ...


class Episode(Protocol[P_co]):
    """
    What happened to one patient in T steps.

    ``states``: (T + 1, size), as policies see them. ``actions``: (T,), int64, or (T, n_actions),
    float32. ``rewards``: (T,), float32. ``success``: whether the aim was reached. ``terminated``:
    whether the last state has no future; false when the time ran out.
    """

    @property
    def patient(self) -> P_co: ...  # noqa: D102
    @property
    def states(self) -> NDArray[Any]: ...  # noqa: D102
    @property
    def actions(self) -> NDArray[Any]: ...  # noqa: D102
    @property
    def rewards(self) -> NDArray[np.float32]: ...  # noqa: D102
    @property
    def success(self) -> bool: ...  # noqa: D102
    @property
    def terminated(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class SimpleEpisode(Generic[P]):
    """An :class:`Episode` and nothing more."""

    patient: P
    states: NDArray[Any]
    actions: NDArray[Any]
    rewards: NDArray[np.float32]
    success: bool
    terminated: bool


@dataclass(frozen=True)
class NoSettings(Settings):
    """The world of a task that has nothing to set."""


class Task(ABC, Generic[P, W]):
    """
    All that the stack must know of a world.

    A task has no state: parties in different processes make their own and get the same patients,
    envs and identity.
    """

    name: ClassVar[str]
    """What plans and the command line call it."""

    version: ClassVar[int] = 1
    """Raise it when laws change that :meth:`constants` does not show."""

    summary: ClassVar[str] = ''
    """One line for `fdrl tasks`."""

    world: ClassVar[type[Settings]] = NoSettings
    """Settings of the world: the group `world` of a plan."""

    defaults: ClassVar[Mapping[str, Mapping[str, Value]]] = {}
    """
    Settings of a plan that suit this task, by group; a plan's file and flags go first.

    Privacy unit and budget are not among them: hospitals promise them.
    """

    measures: ClassVar[Mapping[str, str]] = {}
    """Numbers of :meth:`measure` that tables show and compare: the heading of each, by name."""

    exact_measures: ClassVar[Mapping[str, str]] = {}
    """
    Numbers of :meth:`exact`: the heading of each, by name.

    One without a heading is the same for all policies, such as a ceiling: it is told below tables.
    """

    robot: ClassVar[bool] = False
    """Whether the nodes of a robot act in this world, on patients of its population."""

    source: bytes = b''
    """SHA-256 of the file that defines the task, where it is outside of any package."""

    @abstractmethod
    def spec(self, world: W) -> TaskSpec:
        """Return what policies see and do."""

    def frames(self, world: W) -> int:
        """Return how many successive steps an observation holds, such as stacked images."""
        return 1

    @abstractmethod
    def make_env(self, world: W) -> gymnasium.Env:
        """Return a new env."""

    @abstractmethod
    def population(
        self, chosen: Hospitals, hospital: int | None, heterogeneity: float | None = None
    ) -> Population[P]:
        """
        Return the patients of a hospital.

        :param hospital: number from 0, or None for public patients, whom no hospital shares.
        :param heterogeneity: of public patients; 0 unless given.
        """

    @abstractmethod
    def operate(
        self, env: gymnasium.Env, choose: Choice, patient: P, rng: np.random.Generator
    ) -> Episode[P]:
        """
        Let somebody act on one patient until the end.

        :param env: of :meth:`make_env`.
        :param rng: of all that the env draws.
        """

    def guide(self, patient: P, world: W) -> Choice | None:
        """Return who acts in simulated records and is the baseline 'expert'; None: nobody."""
        return None

    def hand_written(self, world: W) -> Rule | None:
        """Return a controller that sees what a policy sees; None: nobody wrote one."""
        return None

    def public_world(self, world: W) -> W:
        """Return the world that public patients are operated on in: simple, if that is quick."""
        return world

    def operate_together(
        self, patients: Sequence[P], choose: Chooser, world: W
    ) -> Sequence[Episode[P]] | None:
        """Let somebody act on many patients side by side; None: this world has no such way."""
        return None

    def operate_by_surgeons(
        self,
        population: Population[P],
        patients: Sequence[P],
        world: W,
        rngs: Sequence[np.random.Generator],
    ) -> Sequence[Episode[P]] | None:
        """
        Return what people did to patients, as a hospital's records have it; None: nobody did.

        :param population: where the patients come from.
        :param rngs: of all that is drawn for each of them.
        """
        return None

    def measure(self, episode: Episode[P], world: W) -> Mapping[str, float | str]:
        """
        Measure an episode, beside success, rewards and length.

        :returns: by name, always the same names; NaN is undefined. Results are also given for each
            value of the text 'procedure', if there is one.
        """
        return {}

    def exact(
        self, begin: Callable[[P], Choice] | None, chosen: Hospitals, world: W
    ) -> Mapping[str, float]:
        """
        Return what can be computed of who acts, whoever the patients are.

        :param begin: returns who acts on a patient; None: actions are drawn at random.
        :returns: by the names of :attr:`exact_measures`.
        """
        return {}

    def server_step(self, world: W) -> str:
        """
        Return what the key authority makes new global weights with; empty: what the plan says.

        :returns: `package.module:Class` of a server step; the class is called with the settings of
            the federation, those of the world, the network and the weights of the public start.
        """
        return ''

    def check(self, chosen: Hospitals) -> None:
        """
        Refuse settings of a federation that this task cannot have.

        :raises SettingError: naming the setting.
        """

    def constants(self) -> bytes:
        """Return all numbers that the world depends on and :meth:`spec` does not show."""
        return b''

    def identity(self, world: W) -> TaskIdentity:
        """Return what records, policies and results carry."""
        sha = hashlib.sha256(f'{self.name}\n{self.version}\n'.encode())
        sha.update(self.spec(world).digest().encode())
        sha.update(self.constants())
        sha.update(self.source)
        return TaskIdentity(self.name, self.version, sha.hexdigest())
