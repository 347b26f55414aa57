# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Where patients come from: heterogeneity H moves hospitals smoothly apart.

H = 0: every hospital draws from one distribution, of healthy organs, shallow breathing and quick
servos. H = 1: median stiffness spans 2.7 to 26 kPa over the hospitals, and their breathing, servo
lag, procedures and reward emphasis differ too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
import math
from typing import Protocol

from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.random_streams import PUBLIC_FACTORS, Stream
from fdrl_ros.runtime.ranges import check_hospital, check_number, check_whole
from fdrl_ros.surgery.constants import Group
from fdrl_ros.surgery.patient.conditions import (
    Conditions,
    Disturbances,
    disturbed,
    Instruments,
    instruments_of,
    NO_DISTURBANCE,
)
from fdrl_ros.surgery.patient.events import draw_events
from fdrl_ros.surgery.patient.labs import draw_labs
from fdrl_ros.surgery.patient.patient import Patient, Point
from fdrl_ros.surgery.tasks import DEFAULT_PROCEDURES
from fdrl_ros.surgery.tasks.procedures import (
    procedure_mix,
    procedure_named,
    procedures_named,
    SPECIALITIES,
    TRAITS,
)
import numpy as np

SPLITS = ('train', 'test')
_SPECIALITIES = tuple(SPECIALITIES)

_BODY, _HOSPITAL, _SPACE = Group('patient'), Group('hospital'), Group('workspace')
_STIFFNESS = Group('stiffness')
_HEALTHY, _LOW, _HIGH = map(math.log, (_STIFFNESS.healthy, _STIFFNESS.low, _STIFFNESS.high))


def _span(group: Group, name: str) -> tuple[float, float]:
    """Return the low end of what is drawn evenly, and how far the high end is above it."""
    low: float = getattr(group, f'{name}_low')
    return low, getattr(group, f'{name}_high') - low


_START = _span(_SPACE, 'start')
_DAMPING, _FRICTION, _THICKNESS = (
    _span(_BODY, name) for name in ('damping', 'friction', 'thickness')
)


def _generator(key: list[int]) -> np.random.Generator:
    """Return default_rng(key), a little faster where each number is one word of the seed."""
    words = key if max(key) >= 2**32 else np.array(key, np.uint32)
    return np.random.default_rng(words)


class PatientSource(Protocol):
    """Anything that patients come from."""

    def patient(self, index: int, split: str = 'train') -> Patient:
        """Return patient number `index`, always the same one."""


@dataclass(frozen=True)
class Cohort:
    """
    The patients of one hospital, each a pure function of its number.

    :param hospital: from 0; hospitals are ordered from soft to stiff organs.
    :param hospitals: how many there are.
    :param heterogeneity: H in [0, 1].
    :param seed: of the whole federation's patients.
    :param procedures: those that are done, as
        :func:`fdrl_ros.surgery.tasks.procedures.procedures_named` takes them; kept as names in
            their order.
    :param public: made-up patients that belong to no hospital; each leans by itself, over the
        whole range that H allows, so that together they mirror no hospital. There is no gap
        between them and the public simulator.
    :param conditions: of the operations.
    """

    hospital: int
    hospitals: int
    heterogeneity: float
    seed: int
    public: bool = False
    procedures: tuple[str, ...] = DEFAULT_PROCEDURES
    conditions: Conditions = NO_DISTURBANCE

    def __post_init__(self) -> None:
        """Refuse what is no hospital."""
        check_hospital(self.hospital, self.hospitals, self.heterogeneity, self.seed)
        if not isinstance(self.public, bool):
            raise SettingError('public', self.public, 'true or false')
        object.__setattr__(self, 'procedures', procedures_named(self.procedures))

    @property
    def name(self) -> str:
        """Name of the hospital."""
        return 'public' if self.public else f'hospital_{self.hospital + 1}'

    @property
    def strength(self) -> float:
        """Return H (2 - H): how far hospitals are moved apart, from 0 to 1 as H is."""
        return self.heterogeneity * (2.0 - self.heterogeneity)

    @cached_property
    def leanings(self) -> tuple[float, ...]:
        """
        Return how far the hospital leans in each way that hospitals differ, each times H (2 - H).

        Stiffness, breathing, servo lag: 0 to 1, the places shifted against each other so that
        of three hospitals or more none is the greatest one in two ways. Emphasis: -1 to 1, in an
        order that the seed shuffles.
        """
        count, place = self.hospitals, self.hospital
        if count == 1:
            return (0.0,) * 4
        leans = [(place + shift) % count / (count - 1) for shift in range(3)]
        leans.append(2.0 * float(self._shuffled(count)[place]) / (count - 1) - 1.0)
        return tuple(self.strength * lean for lean in leans)

    @cached_property
    def speciality(self) -> str:
        """Return what this hospital does more of than the others, as far as H is above 0."""
        order = self._shuffled(len(_SPECIALITIES), skip=1)
        return _SPECIALITIES[order[self.hospital % len(_SPECIALITIES)]]

    @cached_property
    def instruments(self) -> Instruments:
        """Return how instruments and procedures differ from the public simulator's."""
        gap = 0.0 if self.public else self.conditions.gap
        return instruments_of(self.seed, self.hospital, self.strength, gap)

    def _shuffled(self, count: int, skip: int = 0) -> list[int]:
        """Return an order that the seed alone decides; several by number."""
        rng = np.random.default_rng([Stream.FACTORS, self.seed, skip])
        return [int(number) for number in rng.permutation(count)]

    @cached_property
    def mixes(self) -> dict[str, tuple[float, ...]]:
        """Return the share of each of the procedures in each speciality."""
        strength = 0.0 if self.hospitals == 1 and not self.public else self.strength
        return {name: procedure_mix(self.procedures, name, strength) for name in SPECIALITIES}

    def _log_stiffness(self, place: float, last: float) -> float:
        """Return the logarithm of the stiffness in Pa at a place from soft, 0, to stiff."""
        own = _LOW + (_HIGH - _LOW) * place / last
        return _HEALTHY + self.strength * (own - _HEALTHY)

    def _tendencies(self, split: str, index: int) -> tuple[float, float, float, float, str]:
        """Return log stiffness, breathing, servo lag, emphasis and speciality of a patient."""
        if not self.public:
            _, breathing, servo, emphasis = self.leanings
            median = _HEALTHY
            if self.hospitals > 1:
                median = self._log_stiffness(self.hospital, self.hospitals - 1)
            return median, breathing, servo, emphasis, self.speciality
        key = [PUBLIC_FACTORS, self.seed, self.hospital, SPLITS.index(split), index]
        stiffness, *leans = _generator(key).random(5).tolist()
        breathing, servo, own, emphasis = leans
        return (
            self._log_stiffness(stiffness, 1.0),
            self.strength * breathing,
            self.strength * servo,
            self.strength * (2.0 * emphasis - 1.0),
            _SPECIALITIES[int(own * len(_SPECIALITIES))],
        )

    def breathing_lean(self, index: int, split: str = 'train') -> float:
        """Return how far a patient leans to deep and quick breathing, 0 to 1."""
        return self._tendencies(split, index)[1]

    def patient(self, index: int, split: str = 'train', procedure: str | None = None) -> Patient:
        """
        Return a patient; the same number and split give the same patient in any order.

        :param index: from 0, without end.
        :param split: 'train' or 'test'; they never share a patient.
        :param procedure: what is done with this one; None leaves it to the hospital's mix.
        :raises SettingError: on an unknown split or procedure, or a negative index.
        """
        if split not in SPLITS:
            raise SettingError('split', split, 'one of ' + ', '.join(SPLITS))
        check_whole('index', index, 0)
        stream = Stream.PUBLIC_PATIENTS if self.public else Stream.HOSPITAL_PATIENTS
        key = [stream, self.seed, self.hospital, SPLITS.index(split), index]
        rng = _generator(key)
        uniform = iter(rng.random(11).tolist())
        normal = iter(rng.standard_normal(7).tolist())
        centre, breathing, servo, emphasis, speciality = self._tendencies(split, index)

        def between(low: float, width: float) -> float:
            return low + width * next(uniform)

        log_modulus = centre + _STIFFNESS.spread * next(normal)
        chosen, bounds = next(uniform), accumulate(self.mixes[speciality])
        place = next((i for i, bound in enumerate(bounds) if chosen < bound), -1)
        done = procedure_named(procedure or self.procedures[place])
        reach = _BODY.trocar_offset * math.sqrt(next(uniform))
        angle = 2 * math.pi * next(uniform)
        goal = reach * math.cos(angle), reach * math.sin(angle), _SPACE.surface
        force_emphasis = _HOSPITAL.emphasis_ratio**emphasis
        further = rng.random(3).tolist()
        modulus = min(max(math.exp(log_modulus), _STIFFNESS.least), _STIFFNESS.most)
        calm = Disturbances(modulus, _HOSPITAL.servo_lag * _HOSPITAL.servo_ratio**servo)
        return Patient(
            name=f'{self.name}/{split}/{index}',
            procedure=done,
            damping=between(*_DAMPING),
            friction=between(*_FRICTION),
            thickness=between(*_THICKNESS),
            registration_error=min(
                _BODY.registration * next(normal), _START[0]
            ),  # none starts within
            breathing_amplitude=_BODY.breathing_amplitude
            * _HOSPITAL.breathing_ratio**breathing
            * math.exp(_BODY.breathing_spread * next(normal)),
            breathing_phase=2 * math.pi * next(uniform),
            respiratory_rate=_BODY.respiratory_rate
            * _HOSPITAL.respiratory_ratio**breathing
            * math.exp(_BODY.respiratory_spread * next(normal)),
            mean_arterial_pressure=_BODY.mean_arterial_pressure
            + _BODY.mean_arterial_pressure_spread * max(-2.0, min(2.0, next(normal))),
            heart_rate=_BODY.heart_rate
            + _BODY.heart_rate_spread * max(-2.5, min(2.5, next(normal))),
            oxygen_saturation=min(
                100.0, _BODY.oxygen_saturation + _BODY.oxygen_saturation_spread * next(normal)
            ),
            goal=goal,
            start=(
                goal[0] + _SPACE.start_lateral * (2 * next(uniform) - 1),
                goal[1] + _SPACE.start_lateral * (2 * next(uniform) - 1),
                goal[2] + between(*_START),
            ),
            destination=_destination(done.name, goal, further),
            labs=draw_labs(rng, further[2] ** _BODY.severity_power),
            events=draw_events(rng, _BODY.event_rate, _BODY.event_span),
            force_emphasis=force_emphasis,
            time_emphasis=1.0 / force_emphasis,
            **vars(self.instruments),
            **(disturbed(*calm[:2], key) if self.conditions.disturbances else calm)._asdict(),
        )


def _destination(procedure: str, goal: Point, uniform: Sequence[float]) -> Point:
    """Return where a cut ends or an object goes: somewhere around the goal."""
    distances = TRAITS[procedure].destination
    if distances is None:
        return goal
    far, turn, _ = uniform
    low, high, up = distances
    way, angle = low + (high - low) * far, 2 * math.pi * turn
    return goal[0] + way * math.cos(angle), goal[1] + way * math.sin(angle), goal[2] + up


def public_cohort(
    seed: int,
    heterogeneity: float = 0.0,
    procedures: tuple[str, ...] = DEFAULT_PROCEDURES,
    conditions: Conditions = NO_DISTURBANCE,
) -> Cohort:
    """
    Return made-up patients; no hospital shares one.

    :param heterogeneity: how far they differ: 0 for a public start, 1 for the whole range.
    :param conditions: of the operations; the gap does not count.
    """
    return Cohort(0, 1, heterogeneity, seed, True, procedures, conditions)


@dataclass(frozen=True)
class Mixture:
    """Patients of several cohorts in turn, such as the unseen patients of all hospitals."""

    cohorts: Sequence[Cohort]

    @property
    def procedures(self) -> tuple[str, ...]:
        """Return what is done in any of them."""
        return procedures_named([name for cohort in self.cohorts for name in cohort.procedures])

    def patient(self, index: int, split: str = 'test', procedure: str | None = None) -> Patient:
        """
        Return patient `index // n` of cohort `index % n`.

        :raises SettingError: as :meth:`Cohort.patient`.
        """
        check_whole('index', index, 0)
        count = len(self.cohorts)
        return self.cohorts[index % count].patient(index // count, split, procedure)


def mixture(
    hospitals: int,
    heterogeneity: float,
    seed: int,
    procedures: tuple[str, ...] = DEFAULT_PROCEDURES,
    conditions: Conditions = NO_DISTURBANCE,
) -> Mixture:
    """
    Return the patients of all hospitals in equal shares.

    :param conditions: of the operations.

    :raises SettingError: on what is no federation.
    """
    check_whole('hospitals', hospitals, 1)
    return Mixture(
        tuple(
            Cohort(
                hospital,
                hospitals,
                heterogeneity,
                seed,
                procedures=procedures,
                conditions=conditions,
            )
            for hospital in range(hospitals)
        )
    )


_NUMBERS = 2**31


class Admissions:
    """
    The patients of an env.

    :param cohort: where they come from; public ones unless given.
    :param split: 'train' or 'test' patients.
    :param procedures: what is done here, as
        :func:`fdrl_ros.surgery.tasks.procedures.procedures_named` takes it: palpation and
        retraction on public patients, what a cohort does, unless given.
    :param heterogeneity: how far public patients differ, H in [0, 1]; 0 unless given.
    :raises SettingError: on what is no source of patients, split, H or procedures; on an H, or
        other procedures, beside a cohort, which has its own.
    """

    def __init__(
        self,
        cohort: PatientSource | None = None,
        split: str = 'train',
        procedures: str | Sequence[str] | None = None,
        heterogeneity: float | None = None,
    ) -> None:
        if cohort is not None and (
            isinstance(cohort, type) or not callable(getattr(cohort, 'patient', None))
        ):
            raise SettingError('cohort', cohort, 'a Cohort, or another source of patients')
        if cohort is not None and heterogeneity is not None:
            raise SettingError('heterogeneity', heterogeneity, 'none: the cohort has its own')
        if heterogeneity is not None:
            check_number('heterogeneity', heterogeneity, 0.0, 1.0)
        if split not in SPLITS:
            raise SettingError('split', split, 'one of ' + ', '.join(SPLITS))
        self._done = None if procedures is None else procedures_named(procedures)
        own: tuple[str, ...] | None = getattr(cohort, 'procedures', None)
        if None not in (own, self._done) and own != self._done:
            raise SettingError(
                'procedures',
                procedures,
                'those of the cohort, or none: it does ' + ', '.join(own or ()),
            )
        self._split = split
        self._cohort = cohort or public_cohort(
            0, heterogeneity or 0.0, self._done or DEFAULT_PROCEDURES
        )

    def draw(self, rng: np.random.Generator) -> Patient:
        """
        Return the next patient.

        :raises SettingError: if the cohort's patient is for another procedure.
        """
        return self.checked(self._cohort.patient(int(rng.integers(_NUMBERS)), self._split))

    def checked(self, patient: object) -> Patient:
        """
        Return a patient who may come.

        :raises SettingError: if it is none, or one for another procedure.
        """
        if not isinstance(patient, Patient):
            raise SettingError('patient', patient, 'a Patient')
        if self._done is not None and patient.procedure.name not in self._done:
            expected = 'one for ' + ' or '.join(self._done)
            raise SettingError('patient', f'{patient.name}: {patient.procedure.name}', expected)
        return patient
