# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A public guess at the dynamics of sepsis, to train on before any private patient is seen."""

from dataclasses import replace

from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.random_streams import SepsisStream
from fdrl_ros.worlds.icu_sepsis.model import ACTION_COUNT, IcuSepsis, PATIENT_STATES
import numpy as np


def perturbed(model: IcuSepsis, concentration: float, seed: int, blend: float = 0.0) -> IcuSepsis:
    """
    Redraw the distribution of each state and admissible action around the true one.

    p' ~ Dirichlet(c ((1 - b) p + b m)), where m is the mean over the state's admissible actions:
    as if each pair had been estimated from about c + 1 transitions seen elsewhere, of which
    a share b did not tell which action was taken. Inadmissible actions get the mean of the new
    rows, as in ICU-Sepsis. Admissions, features and SOFA scores stay, and so do the
    clinicians, of whom a public model must make no use.

    :param concentration: c, at least 1; the larger, the closer to the truth.
    :param seed: of the draw.
    :param blend: b in [0, 1]; at 1 the guess knows nothing of what an action does.
    :raises SettingError: on a value out of range.
    """
    if not 1.0 <= concentration < np.inf:
        raise SettingError('concentration', concentration, 'a finite number, at least 1')
    if not 0.0 <= blend <= 1.0:
        raise SettingError('blend', blend, 'a number from 0 to 1')
    if not seed >= 0:
        raise SettingError('seed', seed, 'at least 0')
    rng = np.random.default_rng([seed, SepsisStream.GUESS])
    rows = np.empty_like(model.rows)
    for state in range(PATIENT_STATES):
        own = model.row_of[state, model.admissible[state]]
        first, count = own[0], len(own)
        true = model.rows[first : first + count]
        mean = true.mean(axis=0)
        reached = np.flatnonzero(mean)
        centre = (1.0 - blend) * true[:, reached] + blend * mean[reached]
        drawn = rng.standard_gamma(concentration * centre)
        drawn /= drawn.sum(axis=1, keepdims=True)
        rows[first : first + count] = 0.0
        rows[first : first + count, reached] = drawn
        if count < ACTION_COUNT:
            rows[first + count] = rows[first : first + count].mean(axis=0)
    return replace(model, rows=rows)
