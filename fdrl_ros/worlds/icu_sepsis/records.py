# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is observed of sepsis patients, and a hospital's records D_i out of their stays."""

from fdrl_ros.errors import SettingError
from fdrl_ros.learner.records.records import Records
from fdrl_ros.worlds.icu_sepsis.episodes import SepsisStays
from fdrl_ros.worlds.icu_sepsis.model import FEATURE_COUNT, IcuSepsis, PATIENT_STATES, STATE_COUNT
import numpy as np
from numpy.typing import NDArray

FEATURES = (
    *('gender', 'mechvent', 'max_dose_vaso', 're_admission', 'age', 'Weight_kg', 'GCS', 'HR'),
    *('SysBP', 'MeanBP', 'DiaBP', 'RR', 'Temp_C', 'FiO2_1', 'Potassium', 'Sodium', 'Chloride'),
    *('Glucose', 'Magnesium', 'Calcium', 'Hb', 'WBC_count', 'Platelets_count', 'PTT', 'PT'),
    *('Arterial_pH', 'paO2', 'paCO2', 'Arterial_BE', 'HCO3', 'Arterial_lactate', 'SOFA', 'SIRS'),
    *('Shock_Index', 'PaO2_FiO2', 'cumulated_balance', 'SpO2', 'BUN', 'Creatinine', 'SGOT'),
    *('SGPT', 'Total_bili', 'INR', 'input_total', 'input_4hourly', 'output_total'),
    'output_4hourly',
)
"""Names and order of the AI Clinician (Komorowski et al. 2018), which ICU-Sepsis was made with."""

CLIP = 4.0
"""Beyond so many standard deviations a feature says no more; 0.56 % of the numbers are."""

OBSERVATIONS = ('features', 'one_hot', 'state')


def features_of(model: IcuSepsis) -> NDArray[np.float32]:
    """
    Return the features of each state, (716, 47).

    Centred and scaled by mean and standard deviation over the 713 shipped centres, each state
    counting once, then clipped to 4: the constants come out of the public package and out of
    no patient's record. Where all is over, they are 0.
    """
    centres = model.centres
    scaled = (centres - centres.mean(axis=0)) / centres.std(axis=0)
    table = np.zeros((STATE_COUNT, FEATURE_COUNT), np.float32)
    table[:PATIENT_STATES] = np.clip(scaled, -CLIP, CLIP)
    table.flags.writeable = False
    return table


def observations_of(model: IcuSepsis, observation: str) -> NDArray[np.float32]:
    """
    Return what is seen in each state, (716, numbers).

    :param observation: 'features' (47), 'one_hot' (716, of which one is 1) or 'state' (its
        number alone).
    :raises SettingError: on another.
    """
    if observation not in OBSERVATIONS:
        raise SettingError('observation', observation, 'one of ' + ', '.join(OBSERVATIONS))
    if observation == 'features':
        return features_of(model)
    if observation == 'one_hot':
        table = np.eye(STATE_COUNT, dtype=np.float32)
    else:
        table = np.arange(STATE_COUNT, dtype=np.float32)[:, None]
    table.flags.writeable = False
    return table


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
