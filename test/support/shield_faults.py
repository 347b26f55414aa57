# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Shields that are wrong in one point, which the proof must find out."""

from dataclasses import replace

from fdrl_ros.shield import prediction
from fdrl_ros.shield.contact_estimator import ContactEstimator
from fdrl_ros.shield.depth_tables import DepthTables
from fdrl_ros.shield.prediction import Prediction
from fdrl_ros.shield.settings import ShieldSettings
from fdrl_ros.surgery.gym.actions import TICK
import numpy as np

SETTINGS = ShieldSettings()
WIDE, USUAL = SETTINGS.wide_bounds(), SETTINGS.usual_bounds()


def _less(name, share):
    """Return settings that allow for less than there can be."""
    return replace(SETTINGS, **{name: share * getattr(SETTINGS, name)})


def _inexact(bounds):
    return replace(bounds, position_error=1e-4)


ESTIMATOR_FAULTS = {
    'acceleration': (_less('acceleration', 0.9), 'retraction', True, WIDE),
    'speed': (_less('speed', 0.9), 'retraction', True, WIDE),
    'damping': (_less('damping', 0.5), 'retraction', True, WIDE),
    'force error': (_less('force_error', 0.5), 'retraction', True, WIDE),
    'stiffness': (_less('stiffest', 0.5), 'retraction', True, WIDE),
    'lag of the arm': (replace(SETTINGS, slowest=0.06), 'palpation', True, WIDE),
    'noise': (SETTINGS, 'palpation', True, replace(WIDE, force_error=0.2)),
    'position, wide': (replace(SETTINGS, position_error=0.0), 'retraction', True, _inexact(WIDE)),
    'position, usual': (
        replace(SETTINGS, position_error=0.0),
        'retraction',
        False,
        _inexact(USUAL),
    ),
}
"""Settings of a shield, its procedure, whether under the wide bounds, and the bounds of truth."""

TABLE_FAULTS = {
    'latency': (replace(WIDE, latency=0.0), {}),
    'staying': (WIDE, {'back': 0.0}),
    'speed': (replace(WIDE, speed=0.02), {}),
    'damping': (replace(WIDE, damping=1.0), {}),
}
"""Bounds of a shield, and what else of it is wrong."""


def forget_damping(patch):
    """Infer the growth of the contact as if nothing were damped."""
    patch.setattr(prediction, 'greatest_growth', lambda now, slow, then, fast, worst: now - then)


def trust_the_arm(patch):
    """Take the arm for exact."""
    exact = replace(WIDE, arm_error=-0.0003)
    patch.setattr(ShieldSettings, 'wide_bounds', lambda self: exact)


def ignore_intervals(patch):
    """Take every interval between two states for a tick."""
    update = ContactEstimator.update

    def even(self, now, interval, *others):
        return update(self, now, TICK if interval else 0.0, *others)

    patch.setattr(ContactEstimator, 'update', even)


def read_tables_too_low(place):
    """Return what reads the tables one row too low, by speed (0) or lag (1)."""

    def spoil(patch):
        places = DepthTables.places

        def lower(self, speed, behind):
            rows = list(places(self, speed, behind))
            rows[place] = np.maximum(rows[place] - 1, 0)
            return tuple(rows)

        patch.setattr(DepthTables, 'places', lower)

    return spoil


def forget_pending_moves(patch):
    """Predict as if no move were still to come."""
    force = Prediction.force

    def forgetful(self, seen, *others):
        return force(self, seen._replace(pending=0 * seen.pending), *others)

    patch.setattr(Prediction, 'force', forgetful)


def take_tissue_for_soft(patch):
    """Predict for the softest tissue alone."""
    greatest = Prediction.greatest_between

    def softest(self, seen, move, ends, *others):
        return greatest(self, seen, move, (ends[0], ends[0]), *others)

    patch.setattr(Prediction, 'greatest_between', softest)


PATCHED_ESTIMATORS = {
    'damping': (forget_damping, True, 0),
    'arm': (trust_the_arm, True, 0),
    'intervals': (ignore_intervals, False, 1),
}
"""What spoils an estimator, whether under the wide bounds, and how fine the check must be."""

PATCHED_FORECASTS = {
    'row of speed': (read_tables_too_low(0), True),
    'row of lag': (read_tables_too_low(1), True),
    'moves to come': (forget_pending_moves, True),
    'soft tissue': (take_tissue_for_soft, False),
}
"""What spoils a prediction, and whether under the wide bounds."""
