# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A hand-written controller of all procedures: a pure function of the state, without a patient.

It sees what a policy sees, knows the textbook's numbers of each procedure, and remembers nothing.
Simulated surgeons use it with the experience of their hospital; without experience it is a
baseline of tables.
"""

from collections.abc import Callable
from dataclasses import dataclass
import math
from typing import NamedTuple

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.surgery.gym.actions import (
    CLOSE_JAW,
    COARSE_STEP,
    FINE_STEP,
    MAXIMUM_SPEED,
    OPEN_JAW,
    STAY,
)
from fdrl_ros.surgery.gym.state import INDEX, unscale
from fdrl_ros.surgery.scalar_or_array import Array, Flags, Number, Point, Rows
from fdrl_ros.surgery.tasks.procedures import of_each_kind, Procedure, PROCEDURES, TRAITS
from fdrl_ros.surgery.tasks.task import CLOSED, OPEN
from fdrl_ros.surgery.tissue.contact import contact_stiffness, EXPONENT, USUAL_STIFFNESS
import numpy as np
from numpy.typing import NDArray

DELAY = 0.165
"""Usual time from a command until the tip is there, s: 1.5 ticks of latency, and the lag."""

BREATH_SHARE = 0.6
"""Usual share of breathing in the surface's height above the plan; the rest is registration."""

_COARSE = 0.5 * (COARSE_STEP + FINE_STEP)
"""Way from which a coarse move leads nearer than a fine one, m."""

_REST = 0.0003
"""Way that is not worth a move, m; a fine move overshoots a shorter one than 0.25 mm."""


@dataclass(frozen=True)
class Experience:
    """
    What somebody who works in one hospital corrects for; by default nothing.

    :param calibration: how far the robot takes everything to be from its true place, m.
    :param force_gain: measured force for each newton on the tip, above 0.
    :param protocol: what the hospital's procedures ask for, as a factor of the textbook's target
        force and depth of cut, above 0.
    :param caution: factor of the way from which coarse moves are made, above 0.

    Of many patients each number is an array of shape (n,), the calibration one of shape (3, n).
    """

    calibration: Point = (0.0, 0.0, 0.0)
    force_gain: Number = 1.0
    protocol: Number = 1.0
    caution: Number = 1.0

    def __post_init__(self) -> None:
        """
        Refuse what nobody can have learned.

        :raises SettingError: on numbers that are not finite, a factor that is not above 0, or a
            calibration without three axes.
        """
        place: Array = np.asarray(self.calibration, np.float64)
        if place.shape[:1] != (3,) or not np.isfinite(place).all():
            raise SettingError('calibration', self.calibration, 'three finite numbers, m')
        for name in ('force_gain', 'protocol', 'caution'):
            factor: Array = np.asarray(getattr(self, name), np.float64)
            if not (np.isfinite(factor) & (factor > 0.0)).all():
                raise SettingError(name, getattr(self, name), 'a finite number above 0')

    def rows(self, rows: Rows) -> 'Experience':
        """Return the experience for some of many patients."""
        values = (self.calibration, self.force_gain, self.protocol, self.caution)
        return Experience(*(_of_rows(value, rows) for value in values))


def _of_rows(value: Number, rows: Rows) -> Number:
    return value[..., rows] if isinstance(value, np.ndarray) else value


NO_EXPERIENCE = Experience()


class _View(NamedTuple):
    """
    What the controller makes of n states of one procedure, corrected by its experience.

    :param off: commanded set-point minus the waypoint, shape (3, n), m.
    :param lag: measured tip minus the commanded set-point, shape (3, n), m.
    :param surface: height of the surface above the planned one, m.
    :param rise: its upward speed, m/s.
    :param breathing: rate of breathing, rad/s.
    :param force: on the tip, N.
    :param felt: stiffness felt so far, N/m^1.5, below the surface that the robot shows.
    :param jaw: opening of the jaw, 1 is open.
    :param told: whether the jaw was last told to open.
    :param held: whether the jaw holds the object.
    """

    off: Array
    lag: Array
    surface: Array
    rise: Array
    breathing: Array
    force: Array
    felt: Array
    jaw: Array
    told: Flags
    held: Flags
    experience: Experience

    @property
    def tip(self) -> Array:
        """Return how far the measured tip is from the waypoint, shape (3, n), m."""
        return self.off + self.lag

    def surface_ahead(self) -> Array:
        """Return where breathing will have the surface once a command of now is done, m."""
        turn = self.breathing * DELAY
        back = BREATH_SHARE * self.surface * (1.0 - np.cos(turn))
        return self.surface + self.rise * DELAY * np.sinc(turn / math.pi) - back


Law = Callable[[_View, Procedure], NDArray[np.int64]]
"""Views of one procedure to actions, shape (n,)."""


def _view(values: Array, experience: Experience) -> _View:
    """Read states in their units, shape (n, STATE_SIZE)."""

    def seen(name: str) -> Array:
        return values[:, INDEX[name]]

    x, y, z = experience.calibration
    return _View(
        np.array([seen('goal_error_x') + x, seen('goal_error_y') + y, seen('goal_error_z') + z]),
        np.array([seen('lag_x'), seen('lag_y'), seen('lag')]),
        seen('surface'),
        seen('surface_speed'),
        2.0 * math.pi / 60.0 * seen('respiratory_rate'),
        seen('force') / experience.force_gain,
        USUAL_STIFFNESS * np.exp(seen('felt_stiffness')) / experience.force_gain,
        seen('jaw'),
        seen('jaw_target') > 0.5,
        seen('grasped') > 0.5,
        experience,
    )


def _widest(way: Array) -> Array:
    """Return the greatest distance along an axis, shape (n,)."""
    widest: Array = np.abs(way).max(axis=0)
    return widest


def _move(way: Array, rest: Number, coarse: Number) -> NDArray[np.int64]:
    """
    Return the moves along the axes with the longest way.

    :param way: that the set-point has to go, shape (3, n), m.
    :param rest: way that is not worth a move, m.
    :param coarse: way from which the move is coarse, m.
    """
    axis = np.abs(way).argmax(axis=0)
    chosen = way[axis, np.arange(way.shape[1])]
    distance, number = np.abs(chosen), 2 * axis + (chosen > 0.0)
    return np.where(distance >= coarse, number, np.where(distance > rest, 6 + number, STAY))


def _moved(view: _View, way: Array) -> NDArray[np.int64]:
    return _move(way, _REST, _COARSE * view.experience.caution)


def _hover(view: _View, procedure: Procedure) -> NDArray[np.int64]:
    """Go to the waypoint, and ahead of it where it rides on the organ."""
    ahead = view.rise * (DELAY if TRAITS[procedure.name].rides else 0.0)
    x, y, z = -view.off
    return _moved(view, np.array([x, y, z + ahead]))


_SOFT, _STIFF = 2500.0, 30000.0
"""Young's moduli that nearly all organs lie between, Pa."""

_FORCE_ERROR, _SPEED_ERROR, _MODEL_ERROR = 0.05, 1.0, 0.05
"""What a stiffness felt is uncertain by: N, 1 per m/s of the tip, and a share."""

_FELT_TICKS, _STILL = 4.0, 0.001
"""Ticks that a stiffness felt so far is taken to be of; lag from which it tells less, m."""

_DAMPING = 2.5
"""Usual damping of tissue, s/m."""

_TOUCH = 0.0003
"""Depth from which a force says something of the tissue, m."""

_CAUTION, _SURE = 2.5, 0.12
"""How many deviations stiffer the tissue is taken to be, of what is uncertain above a share."""

_ASIDE, _NEAR_GOAL = (0.0005, 0.0012), (0.001, 0.003)
"""Ways aside that are put right and that are near enough to press, above the surface and below."""

_CLEAR = 0.003
"""Height above the surface on the way to the goal, m."""

_PRESS_REST, _PRESS_COARSE = 0.45, 1.4
"""Ways in depth that are not worth a move, and worth a coarse one, in half widths of the band."""

_LEAST_REST = 0.0002
"""Least way in depth that is worth a move, m."""


def _stiffness(view: _View, depth: Array, radius: float) -> tuple[Array, Array]:
    """
    Return what the tip feels of the tissue: log K (N / m^1.5) with its deviation.

    It weighs the force felt at a depth, by Hunt and Crossley, the mean of the ticks so far, and
    what organs are like, each by its inverse variance.
    """
    soft, stiff = (math.log(contact_stiffness(each, radius)) for each in (_SOFT, _STIFF))
    usual, spread = 0.5 * (soft + stiff), 0.25 * (stiff - soft)
    sinking = view.lag[2] / DELAY
    speed = sum(np.clip(each, -MAXIMUM_SPEED, MAXIMUM_SPEED) for each in (sinking, view.rise))
    force = np.maximum(view.force, 0.02)
    felt = np.log(force) - EXPONENT * np.log(np.maximum(depth, _TOUCH))
    felt = felt - np.log(1.0 + _DAMPING * speed)
    doubt = (_FORCE_ERROR / force) ** 2 + _MODEL_ERROR**2 + (_SPEED_ERROR * speed) ** 2
    so_far, doubt_so_far = _felt_so_far(view, depth)
    weights = 1.0 / doubt, 1.0 / doubt_so_far
    touched = depth > _TOUCH
    left = np.where(touched, 1.0 / (sum(weights) + 1.0 / spread**2), spread**2)
    more = left * (weights[0] * (felt - usual) + weights[1] * (so_far - usual))
    return usual + touched * more, np.sqrt(left)


def _felt_so_far(view: _View, depth: Array) -> tuple[Array, Array]:
    """
    Return log K of the stiffness felt so far (N / m^1.5), and its variance.

    The robot felt it at depths below the surface that it shows, which experience corrects. What
    was felt deep, and with a tip at rest, tells most.
    """
    shown = np.maximum(depth + view.experience.calibration[2], _TOUCH)
    ratio = shown / np.maximum(depth, _TOUCH)
    squares = _FELT_TICKS * shown**3 / (1.0 + (view.lag[2] / _STILL) ** 4)
    variance = (_FORCE_ERROR / view.felt) ** 2 / squares + _MODEL_ERROR**2
    return np.log(view.felt) + EXPONENT * np.log(ratio), variance


def _press(view: _View, procedure: Procedure) -> NDArray[np.int64]:
    """
    Go to the depth at which what is felt of the tissue gives the target force.

    The set-point is that far below where breathing will have the surface.
    """
    seen = view.surface - view.tip[2]
    log_stiffness, deviation = _stiffness(view, seen, procedure.contact_radius)
    taken = np.exp(log_stiffness + _CAUTION * np.maximum(deviation - _SURE, 0.0))
    target = view.experience.protocol * procedure.target_force
    depth = (target / taken) ** (1.0 / EXPONENT)
    half = depth / EXPONENT * procedure.tolerance / procedure.target_force
    below = view.off[2] < view.surface
    far = _widest(view.off[:2]) > np.where(below, _NEAR_GOAL[1], _NEAR_GOAL[0])
    depth = np.where(far, -_CLEAR, depth)
    x, y, z = -view.off
    aside = np.where(np.abs([x, y]) > np.where(below, _ASIDE[1], _ASIDE[0]), [x, y], 0.0)
    way = np.array([*aside, z + view.surface_ahead() - depth])
    down = np.abs(way).argmax(axis=0) == 2
    rest = np.where(down, np.maximum(_LEAST_REST, _PRESS_REST * half), _REST)
    coarse = np.where(down, np.maximum(_COARSE, _PRESS_COARSE * half), _COARSE)
    return _move(way, rest, coarse * view.experience.caution)


_BESIDE = 0.0025
"""Way aside from which the blade stays above the surface, m."""

_OFF_DEPTH = 0.0006
"""Error of depth that is put right before the cut goes on, m."""


def _incision(view: _View, procedure: Procedure) -> NDArray[np.int64]:
    """Follow the waypoint along the line, at the depth below where the surface will be."""
    own = TRAITS[procedure.name].numbers
    deeper = (view.experience.protocol - 1.0) * own['depth']
    near = _widest(view.off[:2]) <= _BESIDE
    height = view.surface_ahead() + np.where(near, -deeper, own['depth'] + own['hover'])
    x, y, z = -view.off
    z = z + height
    on = ~(near & (np.abs(z) > _OFF_DEPTH))
    return _moved(view, np.array([x * on, y * on, z]))


_THERE = 0.0005
"""Distance of each axis from which the set-point counts as there, m."""

_STILL_THERE = 0.0012
"""The same once the jaw moves: an order that is taken back late may drop the object, m."""

_SETTLED = 0.7
"""Share of a tolerance within which the tip must be before the jaw moves."""

_OVER, _TIP_OVER = 0.0006, 0.001
"""Way aside from which set-point and tip count as over a peg, m."""

_FREE = 0.0003
"""How far above the top of a peg the tip must be before it goes aside, m."""


def _over_pegs(view: _View, top: float, clear: float) -> Array:
    """
    Return the way of a ring: up, aside, down, shape (3, n), m.

    :param top: height of a peg above where the ring is let go, m.
    :param clear: height of the way over, m.
    """
    x, y, z = -view.off
    tip = view.tip
    over = _widest(view.off[:2]) < _OVER
    aside = over | (tip[2] > top + _FREE)
    down = np.where(_widest(tip[:2]) < _TIP_OVER, z, 0.0)
    return np.array([x * aside, y * aside, np.where(over, down, np.maximum(clear + z, 0.0))])


def _transfer(view: _View, procedure: Procedure) -> NDArray[np.int64]:
    """Open the jaw, go, close it around the object, carry that, and let it go."""
    own, held, told = TRAITS[procedure.name].numbers, view.held, view.told
    way = -view.off
    if TRAITS[procedure.name].pegs:
        top = own['peg']
        way = np.where(held, _over_pegs(view, top, top + own['clearance']), way)
    tolerance = np.where(held, own['place_tolerance'], own['pick_tolerance'])
    ordered = np.where(held, told, ~told & (view.jaw >= CLOSED))
    there = _widest(view.off) < np.where(ordered, _STILL_THERE, _THERE)
    there &= _widest(view.tip) < np.where(ordered, 1.0, _SETTLED) * tolerance
    closing = ~held & there & (view.jaw >= np.where(told, OPEN, CLOSED))
    wanted = np.where(held, there, ~closing)
    order = np.where(wanted, OPEN_JAW, CLOSE_JAW)
    return np.where(wanted != told, order, np.where(there, STAY, _moved(view, way)))


_LAWS: dict[str, Law] = of_each_kind(
    {'hover': _hover, 'press': _press, 'incision': _incision, 'transfer': _transfer},
    'tasks/controller.py',
)


def controller(
    states: NDArray[np.float32], experience: Experience = NO_EXPERIENCE
) -> NDArray[np.int64]:
    """
    Return the action in each state.

    :param states: as a policy sees them, shape (n, STATE_SIZE).
    :param experience: of who operates; arrays where each state is somebody else's.
    :returns: numbers of actions, shape (n,).
    :raises StateError: if a state is of the wrong size or not finite, or has no procedure.
    """
    values = np.atleast_2d(unscale(states))
    actions = np.full(len(values), -1, np.int64)
    for procedure in PROCEDURES:
        rows = np.flatnonzero(values[:, INDEX[procedure.name]] > 0.5)
        if len(rows):
            view = _view(values[rows], experience.rows(rows))
            actions[rows] = _LAWS[procedure.name](view, procedure)
    if (actions < 0).any():
        raise StateError('state of no procedure: expected a 1 among ' + ', '.join(_LAWS))
    return actions
