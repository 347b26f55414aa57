# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Hospitals that admit different sepsis patients, and stays under any policy, many at once."""

from dataclasses import dataclass

from fdrl_ros.runtime.random_streams import SepsisStream
from fdrl_ros.runtime.ranges import check_hospital, check_whole
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.model import (
    checked_policy,
    Draws,
    Floats,
    HORIZON,
    IcuSepsis,
    PATIENT_STATES,
    rewards_of,
    StatePolicy,
    SURVIVAL,
)
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class SepsisHospital:
    """
    One of several hospitals that share the patients of ICU-Sepsis by severity.

    Order everyone who is admitted by SOFA score and cut the queue into equal parts, one for
    each hospital. A hospital admits from its part with chance H and from everyone with chance
    1 - H. So at H = 0 all are the same, at H = 1 no two share a degree of severity (but for
    the state where a cut falls), every mix is linear in H, and their mean is always what
    ICU-Sepsis admits. How patients answer to treatment is the same everywhere.

    :param hospital: from 0.
    :param hospitals: how many there are.
    :param heterogeneity: H in [0, 1].
    :param seed: decides who gets which part; of the whole federation.
    """

    hospital: int = 0
    hospitals: int = 1
    heterogeneity: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no hospital."""
        check_hospital(self.hospital, self.hospitals, self.heterogeneity, self.seed)

    @property
    def name(self) -> str:
        """Name of the hospital."""
        return f'hospital_{self.hospital + 1}'

    @property
    def part(self) -> int:
        """Return which part it leans to: 0 is the least severe, hospitals - 1 the most."""
        order = np.random.default_rng([self.seed, SepsisStream.HOSPITALS]).permutation(
            self.hospitals
        )
        return int(order[self.hospital])

    def start(self, model: IcuSepsis) -> Floats:
        """Return the chance of each state on admission, (713,)."""
        queue = np.argsort(model.sofa, kind='stable')
        ends = np.minimum(np.cumsum(model.start[queue]), 1.0)
        begins = np.concatenate(([0.0], ends[:-1]))
        low, high = self.part / self.hospitals, (self.part + 1) / self.hospitals
        inside = np.clip(np.minimum(ends, high) - np.maximum(begins, low), 0.0, None)
        own = np.zeros_like(model.start)
        own[queue] = inside * self.hospitals
        mix = (1.0 - self.heterogeneity) * model.start + self.heterogeneity * own
        return mix / mix.sum()


def federation(hospitals: int, heterogeneity: float, seed: int) -> list[SepsisHospital]:
    """
    Return all hospitals of a federation.

    :raises SettingError: if there is none, or as :class:`SepsisHospital` refuses.
    """
    check_whole('hospitals', hospitals, 1)
    return [SepsisHospital(each, hospitals, heterogeneity, seed) for each in range(hospitals)]


@dataclass(frozen=True, eq=False)
class SepsisStays:
    """
    Steps of some patients, those of one patient in one run.

    ``states``, ``actions``, ``next_states``: int64, ``rewards``: float32, ``terminals``: bool,
    each (steps,). ``starts``: first step of each patient, then the number of steps:
    (patients + 1,), int64.
    """

    states: NDArray[np.int64]
    actions: NDArray[np.int64]
    next_states: NDArray[np.int64]
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    starts: NDArray[np.int64]

    @property
    def survived(self) -> NDArray[np.bool_]:
        """Return who survived, (patients,)."""
        return self.next_states[self.starts[1:] - 1] == SURVIVAL


def sample_stays(
    model: IcuSepsis,
    policy: StatePolicy,
    patients: int,
    seed: int,
    hospital: SepsisHospital | None = None,
    start: Floats | None = None,
) -> SepsisStays:
    """
    Treat patients by a policy until they die or survive, at most 500 steps.

    Patient i is a function of seed, hospital and i alone: whoever else is treated, and however
    many, changes nothing of a stay. All hospitals with one seed get other patients.

    :param policy: (713,) actions or (713, 25) probabilities.
    :param patients: how many, at least 1.
    :param seed: of the patients.
    :param hospital: who is admitted; everyone unless given.
    :param start: chance of each state on admission in place of the hospital's, (713,).
    """
    check_whole('patients', patients, 1)
    check_whole('seed', seed, 0)
    acts = Draws.of(checked_policy(policy))
    place = 0 if hospital is None else 1 + hospital.hospital
    if hospital is not None and start is None:
        start = hospital.start(model)
    ids = np.arange(patients)
    # Patients still there have the numbers they began with, so each keeps its place in a draw.
    states = model.admit(_uniforms(seed, place, 0, patients)[:, 0], start)
    steps = []
    for time in range(1, HORIZON + 1):
        uniforms = _uniforms(seed, place, time, int(ids[-1]) + 1)[ids]
        actions = acts(states, uniforms[:, 0])
        reached = model.advance(states, actions, uniforms[:, 1])
        steps.append((ids, states, actions, reached))
        going = reached < PATIENT_STATES
        ids, states = ids[going], reached[going]
        if not len(ids):
            break
    owners, *columns = (np.concatenate(each) for each in zip(*steps, strict=True))
    order = np.argsort(owners, kind='stable')
    before, taken, after = (each[order] for each in columns)
    lengths = np.bincount(owners, minlength=patients)
    return SepsisStays(
        states=before,
        actions=taken,
        next_states=after,
        rewards=rewards_of(after).astype(np.float32),
        terminals=after >= PATIENT_STATES,
        starts=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
    )


def clinician_records(
    patients: int,
    seed: int,
    hospital: SepsisHospital | None = None,
    model: IcuSepsis | None = None,
) -> SepsisStays:
    """Return stays under the clinicians' own policy; see :func:`sample_stays`."""
    chosen = icu_sepsis() if model is None else model
    return sample_stays(chosen, chosen.clinicians, patients, seed, hospital)


def _uniforms(seed: int, place: int, time: int, patients: int) -> NDArray[np.float64]:
    """Return two numbers for each patient; the first ones are the same however many follow."""
    return np.random.default_rng([seed, SepsisStream.STAYS, place, time]).random((patients, 2))
