# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Force of soft tissue on a rounded tip: Hertz at rest, Hunt-Crossley when moving.

F = K d^1.5 (1 + lambda d'), F >= 0, with K = 4/3 E / (1 - nu^2) sqrt(R). The organ is taken for
a half-space, which is too soft for organs that are thin against the depth.
"""

import math

from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.patient.events import breathing_events, breathing_motion
from fdrl_ros.surgery.patient.patient import Patient
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

POISSON = constant('tissue.poisson_ratio')
EXPONENT = 1.5
"""Of the depth, by Hertz for a sphere; forces have it as d sqrt(d), which is quicker."""
PRESSURE_LIMIT = constant('tissue.pressure_limit')
SLIP_SPEED = constant('tissue.slip_speed')


def contact_stiffness(young_modulus: float, radius: float) -> float:
    """
    Return K of a sphere on an elastic half-space (Hertz), N / m^1.5.

    :param young_modulus: E, Pa.
    :param radius: R of the sphere, m.
    """
    return 4.0 / 3.0 * young_modulus / (1.0 - POISSON**2) * math.sqrt(radius)


def contact_force(
    stiffness: Array | float, damping: Array | float, depth: Array, speed: Array
) -> Array:
    """
    Return the forces of Hunt and Crossley, N, of one shape; for one tip see :class:`Tissue`.

    :param stiffness: K, N / m^1.5.
    :param damping: lambda, s/m.
    :param depth: of the tips below the untouched surface, m.
    :param speed: at which the depths grow, m/s.
    """
    inside = np.maximum(depth, 0.0)
    forces: Array = stiffness * inside * np.sqrt(inside) * (1.0 + damping * speed)
    return np.maximum(forces, 0.0)


class Tissue:
    """The organ of one patient under one instrument; it breathes and remembers nothing."""

    __slots__ = (
        '_amplitude',
        '_events',
        '_phase',
        '_rate',
        'bearable',
        'damping',
        'friction',
        'rest',
        'stiffness',
    )

    def __init__(self, patient: Patient) -> None:
        self.stiffness = contact_stiffness(patient.young_modulus, patient.procedure.contact_radius)
        self.bearable = PRESSURE_LIMIT * math.pi * patient.procedure.contact_radius
        """Force that tissue bears for each metre of depth: pressure F / (pi R d) harms it, N/m."""
        self.damping = patient.damping
        self.friction = patient.friction
        self.rest = patient.goal[2] + patient.registration_error
        """Height of the surface between breathing in and out, m."""
        self._events = breathing_events(patient.events)
        self._amplitude = patient.breathing_amplitude
        self._rate = 2.0 * math.pi * patient.respiratory_rate / 60.0
        self._phase = patient.breathing_phase

    def surface(self, time: float) -> tuple[float, float]:
        """Return height (m) and upward speed (m/s) of the untouched surface at a time."""
        height, speed = self.breath(time)
        return self.rest + height, speed

    def breath(self, time: float) -> tuple[float, float]:
        """Return how far breathing has the surface above its rest (m), and its speed (m/s)."""
        return breathing_motion(self._amplitude, self._rate, self._phase, self._events, time)

    def normal_force(self, depth: float, speed: float = 0.0) -> float:
        """
        Return the force that pushes the tip out, N.

        :param depth: of the tip below the untouched surface, m.
        :param speed: at which the depth grows, m/s.
        """
        if depth <= 0.0:
            return 0.0
        force = self.stiffness * depth * math.sqrt(depth) * (1.0 + self.damping * speed)
        return force if force > 0.0 else 0.0

    def friction_force(self, normal: float, x: float, y: float) -> tuple[float, float]:
        """
        Return the force along the surface on a tip that slides, N (regularised Coulomb).

        :param normal: normal force, N.
        :param x: speed along x, m/s.
        :param y: speed along y, m/s.
        """
        factor = -self.friction * normal / math.sqrt(x * x + y * y + SLIP_SPEED * SLIP_SPEED)
        return factor * x, factor * y

    def depth_for(self, force: float) -> float:
        """Return the depth at rest for a force, m (the inverse of Hertz)."""
        return float((force / self.stiffness) ** (1.0 / EXPONENT))
