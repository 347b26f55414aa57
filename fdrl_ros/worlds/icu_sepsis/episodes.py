# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Stays of many sepsis patients at once, under the clinicians or any other policy."""

from dataclasses import dataclass

from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.random_streams import SepsisStream
from fdrl_ros.worlds.icu_sepsis.assets import icu_sepsis
from fdrl_ros.worlds.icu_sepsis.hospitals import SepsisHospital
from fdrl_ros.worlds.icu_sepsis.model import (
    checked_policy,
    Draws,
    HORIZON,
    IcuSepsis,
    PATIENT_STATES,
    rewards_of,
    StatePolicy,
    SURVIVAL,
)
import numpy as np
from numpy.typing import NDArray


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
) -> SepsisStays:
    """
    Treat patients by a policy until they die or survive, at most 500 steps.

    Patient i is a function of seed, hospital and i alone: whoever else is treated, and however
    many, changes nothing of a stay. All hospitals with one seed get other patients.

    :param policy: (713,) actions or (713, 25) probabilities.
    :param patients: how many, at least 1.
    :param seed: of the patients.
    :param hospital: who is admitted; everyone unless given.
    """
    if patients < 1:
        raise SettingError('patients', patients, 'at least 1')
    if seed < 0:
        raise SettingError('seed', seed, 'at least 0')
    acts = Draws.of(checked_policy(policy))
    place = 0 if hospital is None else 1 + hospital.hospital
    start = None if hospital is None else hospital.start(model)
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
