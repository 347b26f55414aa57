# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Force of soft tissue on rounded tips: Hertz at rest, Hunt-Crossley when moving.

F = K d^1.5 (1 + lambda d'), F >= 0, with K = 4/3 E / (1 - nu^2) sqrt(R). The organ is taken for
a half-space, which is too soft for organs that are thin against the depth. All laws take the
numbers of one tip or arrays of many.

A noisy force f is smoothed once a tick, m <- m + (f - m) / k, which leaves 1 / sqrt(2 k - 1) of
its deviation in m; contact is felt four such deviations above nothing.
"""

from collections.abc import Sequence
import copy
from dataclasses import dataclass
import hashlib
import math

from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.patient.breathing import breathing_motion, breathing_rate
from fdrl_ros.surgery.patient.events import Span, spans
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.scalar_or_array import excess, maths_of, Number, PerPatient
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np
from numpy.typing import NDArray

POISSON = constant('tissue.poisson_ratio')
EXPONENT = 1.5
"""Of the depth, by Hertz for a sphere; forces have it as d sqrt(d), which is quicker."""
PRESSURE_LIMIT = constant('tissue.pressure_limit')
SLIP_SPEED = constant('tissue.slip_speed')
TOUCH_FORCE = constant('tissue.touch_force')

MEMORY = 8
"""k of the smoothed force, ticks."""

_DEVIATIONS = 4.0

USUAL_STIFFNESS, _LEAST = 1000.0, 50.0
"""Stiffness that an estimate begins with, and the least that it can be, N/m^1.5."""

_DRAWN = 2.0**-27
"""
Weight of the usual stiffness, m^3: of one tick 2 mm deep.

A power of two: where nothing was felt, the estimate is the usual stiffness to the last bit.
"""

_AT_REST = 0.001
"""Lag behind the set-point up to which a tip is nearly at rest, m."""


def contact_stiffness(young_modulus: float, radius: float) -> float:
    """
    Return K of a sphere on an elastic half-space (Hertz), N / m^1.5.

    :param young_modulus: E, Pa.
    :param radius: R of the sphere, m.
    """
    return 4.0 / 3.0 * young_modulus / (1.0 - POISSON**2) * math.sqrt(radius)


def contact_force(stiffness: Number, damping: Number, depth: Number, speed: Number) -> Number:
    """
    Return the force of Hunt and Crossley that pushes a tip out, N.

    :param stiffness: K, N / m^1.5.
    :param damping: lambda, s/m.
    :param depth: of the tip below the untouched surface, m; not positive without contact.
    :param speed: at which the depth grows, m/s.
    """
    maths = maths_of(depth)
    inside = maths.greater(depth, 0.0)
    force = stiffness * inside * maths.root(inside) * (1.0 + damping * speed)
    return maths.greater(force, 0.0)


def harm(load: Number, depth: Number, warn: Number, bearable: Number) -> tuple[Number, Number]:
    """
    Return what harms tissue in each second, by force and by pressure, N.

    :param load: on the tissue, N.
    :param depth: of the tip, m; not positive only without a load.
    :param warn: force above which tissue is harmed, N.
    :param bearable: force that tissue bears for each metre of depth, N/m.
    """
    maths = maths_of(load)
    strain = maths.excess(load, warn)
    borne = abs(bearable * depth)
    crushed = load > borne
    if not maths.some(crushed):
        return strain, 0.0
    share = load / maths.choose(crushed, borne, 1.0) - 1.0
    return strain, maths.choose(crushed, load * share, 0.0)


def smoothed(last: Number, measured: Number) -> Number:
    """Return the smoothed force m after one more tick, N."""
    return last + (measured - last) / MEMORY


class ForceSensor:
    """
    The force sensor during one operation: gain, and noise from the patient's own random stream.

    :param patient: who is operated on.
    :param settings: of the world, whose noise adds to the patient's.
    """

    def __init__(self, patient: Patient, settings: WorldSettings) -> None:
        self.gain = patient.force_gain
        self.deviation = math.hypot(patient.force_noise, settings.force_noise)
        """Standard deviation of the measured force, N."""
        self.noisy = self.deviation > 0.0
        left = self.deviation / math.sqrt(2.0 * MEMORY - 1.0)
        self.felt = max(TOUCH_FORCE, _DEVIATIONS * left)
        """Force from which contact is felt, N: measured, or smoothed where it is noisy."""
        self.felt_load = self.felt / self.gain
        """Load at which a sensor without noise measures that force, N."""
        self._identity = patient.name, patient.goal
        self._rng: np.random.Generator | None = None  # until noise is drawn
        self._shared = False  # whether a copy has the same generator: who draws takes an own one

    def __deepcopy__(self, memo: object) -> 'ForceSensor':
        """Return a sensor that will have the same noise."""
        self._shared = True
        return copy.copy(self)

    def measure(self, load: float) -> float:
        """Return the measured force of a load, N; each call draws new noise."""
        return self.gain * load + (self.noise(1).item() if self.noisy else 0.0)

    def noise(self, count: int) -> NDArray[np.float64]:
        """Draw the noise of the next measurements, shape (count,), N."""
        if not self.noisy:
            return np.zeros(count)
        if self._rng is None:
            name = hashlib.sha256(repr(self._identity).encode()).digest()
            self._rng = np.random.default_rng([Stream.FORCE_SENSOR, *name])
        elif self._shared:
            self._rng = copy.deepcopy(self._rng)
        self._shared = False
        return self.deviation * self._rng.standard_normal(count)


class Felt(PerPatient):
    """
    What was felt of the stiffness so far: least squares of F = K d^1.5 over the ticks in contact.

    Force and depth are those that the robot measures; ticks count in which the tip is nearly at
    rest. Until enough was felt the estimate is drawn to 1000 N/m^1.5. For one tip, or for n.
    """

    def __init__(self, count: int | None = None) -> None:
        self._products: Number = 0.0 if count is None else np.zeros(count)
        self._squares: Number = 0.0 if count is None else np.zeros(count)

    def add(self, force: Number, depth: Number, contact: Number, lag: Number) -> None:
        """
        Add a tick.

        :param force: measured, N.
        :param depth: of the tip below the seen surface, m.
        :param contact: whether contact is felt.
        :param lag: of the tip above its set-point, m.
        """
        inside = excess(depth, 0.0) * (abs(lag) < _AT_REST) * contact
        power = inside * inside**0.5
        self._products = self._products + power * force
        self._squares = self._squares + power * power

    @property
    def stiffness(self) -> Number:
        """Return the logarithm of the estimate, from 1000 N/m^1.5; 0 before anything is felt."""
        maths = maths_of(self._squares)
        estimate = (self._products + _DRAWN * USUAL_STIFFNESS) / (self._squares + _DRAWN)
        return maths.logarithm(maths.greater(estimate, _LEAST) / USUAL_STIFFNESS)


@dataclass(slots=True)
class Tissue:
    """
    The organ of one patient under one instrument, or the organs of many, as arrays.

    :param stiffness: K, N / m^1.5.
    :param damping: lambda, s/m.
    :param friction: Coulomb coefficient.
    :param bearable: force that tissue bears for each metre of depth, N/m: a mean pressure
        F / (pi R d) above the limit harms it.
    :param rest: height of the surface between breathing in and out, m.
    :param amplitude: of breathing, m.
    :param rate: of breathing, rad/s.
    :param phase: of breathing, rad.
    :param coughs: that breathing will be disturbed by.
    """

    stiffness: Number
    damping: Number
    friction: Number
    bearable: Number
    rest: Number
    amplitude: Number
    rate: Number
    phase: Number
    coughs: Sequence[Span] = ()

    def surface(self, time: Number) -> tuple[Number, Number]:
        """Return height (m) and upward speed (m/s) of the untouched surface at a time."""
        height, speed = self.breath(time)
        return self.rest + height, speed

    def breath(self, time: Number) -> tuple[Number, Number]:
        """Return how far breathing has the surface above its rest (m), and its speed (m/s)."""
        return breathing_motion(self.amplitude, self.rate, self.phase, self.coughs, time)[:2]

    def normal_force(self, depth: Number, speed: Number = 0.0) -> Number:
        """
        Return the force that pushes the tip out, N.

        :param depth: of the tip below the untouched surface, m.
        :param speed: at which the depth grows, m/s.
        """
        return contact_force(self.stiffness, self.damping, depth, speed)

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


def tissue_of(patient: Patient) -> Tissue:
    """Return a patient's organ."""
    radius = patient.procedure.contact_radius
    return Tissue(
        contact_stiffness(patient.young_modulus, radius),
        patient.damping,
        patient.friction,
        PRESSURE_LIMIT * math.pi * radius,
        patient.goal[2] + patient.registration_error,
        patient.breathing_amplitude,
        breathing_rate(patient),
        patient.breathing_phase,
        spans(patient.events, 'breathing'),
    )
