# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Random streams: the number that stands first in the seed of each purpose's generators.

Two purposes with one number would draw the same numbers for the same seed, so that, say, a
patient's anatomy and the surgeon's mistakes would be correlated. Every seeded generator of the
package therefore takes its stream from here. To add one, take the next free number: changing a
number changes every result that was drawn with it.

Noise of differential privacy and keys never come from these streams but from the operating system.
"""

from enum import IntEnum, unique


@unique
class Stream(IntEnum):
    """
    Streams of the surgical world, of learning and of the studies; seed = (stream, seed, ...).

    BEHAVIOUR shares its number with PUBLIC_FACTORS below, see there.
    """

    PUBLIC_PATIENTS = 1
    HOSPITAL_PATIENTS = 2
    FACTORS = 3
    """Order in which hospitals lean and specialise."""
    BEHAVIOUR = 4
    """Exploration and sensor noise while records are collected."""
    VALUATION = 5
    EVALUATION = 6
    AUDIT = 7
    """Canaries and coins of the privacy audit."""
    SAFETY_TEST = 8
    SELECTOR_STUDY = 9
    COVERAGE_STUDY = 12
    COVERAGE_RESAMPLES = 13
    RECORDING_SENSORS = 14
    RECORDING_MOVES = 15
    VALUATION_SENSORS = 25
    SELECTOR_STUDY_SENSORS = 26
    GYM_PATIENTS = 28
    RANDOM_CONTENDER = 30
    FORCE_SENSOR = 31
    """Noise of the force sensor; seed = (stream, bytes of a hash of name and goal)."""
    DISTURBANCES = 32
    """Latency, noise, lag and stiffness that the world randomises for each patient."""
    GAP = 33
    """How each hospital's instruments and protocols differ from the public simulator's."""
    SURGEONS = 34
    """Mean skill and style of each hospital's surgeons."""
    CEILING = 35
    """Exploration that the ceiling of the study of mastery learns from, and its minibatches."""
    CLONING = 36
    """Minibatches of cloning without privacy in the study of mastery."""
    SITES = 37
    """Made-up video: tissue, camera and motion of each clip."""
    INDICATORS = 38
    """Random vectors in place of the text of a site of surgical video."""
    LEAKAGE = 39
    """Membership bits, coins and noise of shadow models, and resamples of them."""


PUBLIC_FACTORS = 4
"""
Stream of what a public patient leans to; equal to :attr:`Stream.BEHAVIOUR` by an old mistake.

All seeded results of federations hang on both, so the number stays. Only made-up public patients
are drawn from it, and no guarantee rests on their independence of the surgeons' exploration.
"""


@unique
class SepsisStream(IntEnum):
    """Streams of the ICU sepsis world; seed = (seed, stream, ...)."""

    GUESS = 4
    HOSPITALS = 5
    STAYS = 6
    PATIENTS = 7


@unique
class PaperStream(IntEnum):
    """Streams of the paper's toy world; seed = (stream, seed, ...)."""

    LEANS = 1
    RECORDS = 2
    PATIENTS = 3
