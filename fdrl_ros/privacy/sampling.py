# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Which ways of sampling a batch may claim what: amplification, a finite epsilon, or nothing.

Amplification by sampling holds where each record joins by its own coin, of a probability that
depends on nobody. Where it depends on the record's own priority alone, others still cannot tell
from a batch who is missing, but the priority tells of the record: no amplification, q = 1.
"""

from enum import StrEnum

from fdrl_ros.errors import PrivacyError
from fdrl_ros.privacy.accountant.accountant import Charge


class Sampling(StrEnum):
    """How the records of a batch are chosen."""

    POISSON = 'poisson'
    """Each record by its own coin, all of the same probability q."""
    PRIORITISED_POISSON = 'prioritised_poisson'
    """
    Each record j by its own coin, of q_j = min(1, c p_j): p_j computed from record j and released
    weights alone, c public.
    """
    UNIFORM = 'uniform'
    """A batch of a fixed size."""
    PRIORITISED = 'prioritised'
    """Drawn in proportion to priorities, as from a sum tree (the DP-DQN paper's replay)."""


_UNBOUNDED = {
    Sampling.UNIFORM: 'a batch of a fixed size is not drawn by independent coins: who joins '
    'depends on who else is there',
    Sampling.PRIORITISED: 'in prioritised replay one record moves the probability of all others '
    'through the sum of priorities, and the batch may differ everywhere',
}


def charged_probability(sampling: str, q: float) -> float:
    """
    Return the sampling probability that a step is charged at.

    :param sampling: one of :class:`Sampling`.
    :param q: probability of each record to join, in (0, 1]; of the prioritised ones the mean.
    :returns: q for 'poisson', 1 for 'prioritised_poisson'.
    :raises PrivacyError: telling why, for the ways that have no finite epsilon or are not known.
    """
    chosen = _known(sampling)
    if chosen in _UNBOUNDED:
        raise PrivacyError(
            f'{chosen} sampling has no finite epsilon: {_UNBOUNDED[chosen]}; use '
            f"'{Sampling.POISSON}', or '{Sampling.PRIORITISED_POISSON}' charged without "
            'amplification; only a budget of inf, NOT PRIVATE, allows it'
        )
    if not 0.0 < q <= 1.0:
        raise PrivacyError(f'sampling probability {q!r}: expected in (0, 1]')
    return q if chosen is Sampling.POISSON else 1.0


def charge_for(
    sampling: str,
    *,
    noise_multiplier: float,
    sampling_probability: float,
    steps: int,
    group: int = 1,
) -> Charge:
    """
    Return what some steps are charged as; without a finite epsilon, as steps without noise.

    So a history with such steps has epsilon infinity, whatever else is in it.

    :raises PrivacyError: if the way of sampling is not known.
    """
    if _known(sampling) in _UNBOUNDED:
        return Charge(0.0, 1.0, steps, group)
    charged = charged_probability(sampling, sampling_probability)
    return Charge(noise_multiplier, charged, steps, group)


def _known(sampling: str) -> Sampling:
    try:
        return Sampling(sampling)
    except ValueError as error:
        known = ', '.join(f"'{each}'" for each in Sampling)
        raise PrivacyError(
            f'sampling {sampling!r} claims no privacy that is known: expected one of {known}'
        ) from error
