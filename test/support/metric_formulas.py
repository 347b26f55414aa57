# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Formulas of the FDRL paper over whole cases, that online meters are held to."""

import math

from fdrl_ros.metrics.adaptation import DEFAULT_THRESHOLD, state_change
import numpy as np


def r_mit(cases):
    """Return 1 minus the mean over cases of the mean of D_t (Eq. 9); a case has some steps."""
    means = [float(np.mean(case)) for case in cases if len(case)]
    return 1.0 - float(np.mean(means)) if means else math.nan


def variation_rate(cases, threshold=DEFAULT_THRESHOLD):
    """Return the share of steps whose state changed, averaged over cases (Eq. 4)."""
    rates = [
        float(np.mean(state_change(states[1:], states[:-1]) > threshold))
        for states in cases
        if len(states) > 1
    ]
    return float(np.mean(rates)) if rates else math.nan
