# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A hospital's records D_i out of simulated stays of sepsis patients."""

from fdrl_ros.learner.records.records import Records
from fdrl_ros.worlds.icu_sepsis.episodes import SepsisStays
from fdrl_ros.worlds.icu_sepsis.features import observations_of
from fdrl_ros.worlds.icu_sepsis.model import IcuSepsis
import numpy as np


def sepsis_records(
    stays: SepsisStays, model: IcuSepsis, observation: str = 'features', prefix: str = 'sepsis'
) -> Records:
    """
    Return stays as records, each patient one privacy unit.

    :param stays: of any policy.
    :param model: whose features are seen.
    :param observation: 'features' (47), 'one_hot' (716) or 'state' (its number alone).
    :param prefix: of the pseudonyms, so that hospitals' patients have different ones.
    """
    seen = observations_of(model, observation)
    names = [f'{prefix}_{number:06d}' for number in range(len(stays.starts) - 1)]
    return Records(
        states=seen[stays.states],
        actions=stays.actions,
        rewards=stays.rewards,
        next_states=seen[stays.next_states],
        terminals=stays.terminals,
        starts=stays.starts,
        patients=np.array(names),
    )
