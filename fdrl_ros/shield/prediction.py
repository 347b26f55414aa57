# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The greatest force that an action can lead to, from the contact law and bounds alone.

With x = F^(2/3) Hertz' law is linear in depth: x = kappa d, kappa = K^(2/3). So the motion of the
surface in the last tick follows from the rise of x and the way of the tip, for every kappa that is
possible: the prediction needs no guess of the stiffness.

:class:`Prediction` is the definition, in NumPy over arrays of robots, and what the proof checks.
:class:`CompiledPrediction` is the same law for one robot in C (native/contact.c): NumPy takes
milliseconds of the control loop for it. Tests hold the one to the other.
"""

from functools import lru_cache
import itertools
import math
from typing import Any, NamedTuple

from fdrl_ros.errors import StateError
from fdrl_ros.runtime import kernels
from fdrl_ros.shield.depth_tables import Bounds, depth_tables, DEPTHS, POWER
from fdrl_ros.surgery.gym.actions import MAXIMUM_SPEED, TICK
from fdrl_ros.surgery.scalar_or_array import Number
from fdrl_ros.surgery.tissue.contact import contact_stiffness
import numpy as np

_NONE = 0.0
_SPEED = float(MAXIMUM_SPEED)
LEAST_DEPTH = 1e-6

KINDS = 8
"""Into how many the range of kappa is cut."""

FRESH = 2.0
"""Doubt in the tick of the first contradiction."""

_ROOT = 1.0 / (1.0 + POWER)
TINY = 1e-9
SLACK = 1e-9
"""By which speeds that contradict each other may be off by rounding, m/s."""


Kinds = Any
"""Each kind of tissue: a list of TissueKind, or of one robot the compiled struct."""


class TissueKind(NamedTuple):
    """
    Speeds of the surface that are possible if the tissue is of one kind; none if slow > fast.

    One wrong reading of the force contradicts the true kind of tissue once, in the tick that ends
    with it or in a later one. So a first contradiction only puts a kind in doubt: its speeds are
    reset, and once more a tick later, as that tick may have begun with the wrong reading. The next
    contradiction excludes it.

    :param slow: least speed upwards, m/s.
    :param fast: greatest speed upwards, m/s.
    :param doubt: 0 for none, 2 in the tick of the first contradiction, 1 later on.
    """

    slow: Number
    fast: Number
    doubt: Number = 0.0


class ContactState(NamedTuple):
    """
    Readings of the contact in one state and the one before: numbers, or arrays of one shape.

    :param force: measured load, N.
    :param before: the same one tick earlier, N.
    :param lag: height of the tip above its set-point, m.
    :param lag_before: the same one tick earlier, m.
    :param sunk: how far the tip sank in the last tick, m; NaN where that is unknown.
    :param room: height of the tip above where the surface can be now at the most, m.
    :param room_ever: height of the tip above where the surface can ever be, m.
    :param pending: the move downwards that may still be to come: 2 is coarse, 1 fine, 0 none.
    :param level: which range of the arm's lag it has shown, see DepthTables.levels.
    :param kinds: possible speeds of the surface at the state before, for each kind of tissue.
    :param aside: how far the tip went sideways in the last tick at most, m.
    :param interval: between the state before and this one, about a tick, s.
    """

    force: Number
    before: Number
    lag: Number
    lag_before: Number
    sunk: Number
    room: Number
    room_ever: Number
    pending: Number
    level: Number
    kinds: Kinds
    aside: Number = 0.0
    interval: float = TICK


class ContactBounds(NamedTuple):
    """
    Bounds on the contact now, inferred from all states so far.

    :param kinds: possible speeds of the surface, for each kind of tissue; of one robot the
        compiled struct, which alone has all that follows.
    :param softest: least kappa, N^(2/3)/m.
    :param stiffest: greatest kappa, N^(2/3)/m.
    :param contact: greatest kappa d at present by the measured force, N^(2/3).
    :param speed: greatest speed of the surface, m/s, whatever the kind of tissue.
    :param fast: row of the tables for it.
    :param far: row of the tables for the lag of the tip.
    :param high: greatest kappa d (1 + lambda v)^(2/3) at present, N^(2/3).
    :param sinking: least speed downwards of the tip, m/s.
    """

    kinds: Kinds
    softest: Number = math.nan
    stiffest: Number = math.nan
    contact: Number = math.nan
    speed: Number = math.nan
    fast: Number = math.nan
    far: Number = math.nan
    high: Number = math.nan
    sinking: Number = math.nan


class ChosenMove(NamedTuple):
    """
    A move whose force is predicted.

    :param place: in MOVES.
    :param far: row of the tables for the lag of the tip.
    :param deeper: how much deeper the tip gets by going sideways over a slope, m.
    :param deepest: greatest d (1 + lambda v)^(2/3) there can ever be, m.
    """

    place: int
    far: Number
    deeper: Number
    deepest: Number


class Prediction:
    """
    Greatest forces under one instrument, over arrays of robots.

    :param bounds: of patient, arm and sensor.
    :param radius: of the instrument's rounded end, m.
    """

    def __init__(self, bounds: Bounds, radius: float) -> None:
        self.bounds = bounds
        self.tables = depth_tables(bounds)
        self.softest = float(contact_stiffness(bounds.softest, radius) ** POWER)
        self.stiffest = float(contact_stiffness(bounds.stiffest, radius) ** POWER)
        """Least and greatest kappa, N^(2/3)/m."""
        ends = np.geomspace(self.softest, self.stiffest, KINDS + 1).tolist()
        self.spans: list[tuple[float, float]] = list(itertools.pairwise(ends))
        """Least and greatest kappa of each kind of tissue, N^(2/3)/m."""
        self._turn = 0.5 * bounds.acceleration
        self._quick = 1.0 / bounds.quickest
        self._slow = 1.0 / np.array(self.tables.levels)

    def unknown_tissue(self, like: Number) -> Kinds:
        """
        Return the kinds of tissue before the first state.

        :param like: zeros of shape (n,) for n robots.
        """
        top = self.bounds.speed + like
        return [TissueKind(-top, top, 0.0 * top)] * KINDS

    def _speeds(self, lag: Number, level: Number) -> tuple[Number, Number]:
        """Return the least and greatest speed downwards of a tip so far above its set-point."""
        slow, error = self._slow[level], self.bounds.position_error
        low, high = lag - error, lag + error
        return (
            np.maximum(np.minimum(low * slow, low * self._quick), -_SPEED),
            np.minimum(np.maximum(high * slow, high * self._quick), _SPEED),
        )

    def infer(self, seen: ContactState) -> ContactBounds:
        """Return the bounds on the contact now."""
        sinking, _ = self._speeds(seen.lag, seen.level)
        high = np.maximum(seen.force + self.bounds.force_error, _NONE) ** POWER
        kinds = self._tissue_kinds(seen, high)
        softest, stiffest, slow, speed = self._range_of_kinds(kinds)
        contact = self.greatest_contact(high, slow, sinking)
        fast, far = self.tables.places(speed, seen.lag + self.bounds.position_error)
        return ContactBounds(kinds, softest, stiffest, contact, speed, fast, far, high, sinking)

    def _range_of_kinds(self, kinds: list[TissueKind]) -> tuple[Number, Number, Number, Number]:
        """Return least and greatest kappa, and least and greatest speed, of all kinds."""
        top = self.bounds.speed
        slow, fast = np.array([each[:2] for each in kinds]).swapaxes(0, 1)
        alive = slow <= fast
        ends = np.array(self.spans)[:, :, None]
        softest = np.where(alive, ends[:, 0], self.stiffest).min(axis=0)
        stiffest = np.where(alive, ends[:, 1], self.softest).max(axis=0)
        return (
            softest,
            stiffest,
            np.where(alive, slow, top).min(axis=0),
            np.where(alive, fast, -top).max(axis=0),
        )

    def _tissue_kinds(self, seen: ContactState, high: Number) -> list[TissueKind]:
        """
        Return what the surface of each kind of tissue can do now.

        :param high: greatest kappa d (1 + lambda v)^(2/3) now, by what is felt, N^(2/3).
        """
        error = self.bounds.force_error
        low = np.maximum(seen.force - error, _NONE) ** POWER
        low_then = np.maximum(seen.before - error, _NONE) ** POWER
        now_least, now_most = self._speeds(seen.lag, seen.level)
        time, top, worst = seen.interval, self.bounds.speed, self.bounds.damping
        known = seen.sunk == seen.sunk
        change = self._turn * time
        risen, fallen = known & (low_then > 0.0), known & (low > 0.0)
        then_least, then_most = self._speeds(seen.lag_before, seen.level)
        high_then = np.maximum(seen.before + error, _NONE) ** POWER
        # With damping x is kappa d (1 + lambda v)^(2/3), v being how fast the depth grows: the
        # surface's part of it hardly changed in a tick.
        slow_now, slow_then = now_least - change, then_least - change
        fast_now = np.maximum(now_most + change, slow_then)
        fast_then = np.maximum(then_most + change, slow_now)
        gone = np.where(known, 2.0 * change, 2.0 * top)
        drift = np.where(known, seen.sunk, _NONE) / time
        off = 2.0 * self.bounds.position_error  # one error then, and another one now
        slid = change + (self.bounds.slope * seen.aside + off) / time
        ahead, behind = slid - drift, -slid - drift
        least_growth, least_fall = high - low_then, high_then - low
        kinds: list[TissueKind] = []
        left: Number = False
        for (soft, stiff), (slow, fast, doubt) in zip(self.spans, seen.kinds, strict=True):
            alive = slow <= fast
            growth, fall = least_growth, least_fall
            for v in (np.maximum(slow - change, -top), np.minimum(fast + change, top)):
                growth = np.maximum(
                    growth, greatest_growth(high, v + slow_now, low_then, v + fast_then, worst)
                )
                fall = np.maximum(
                    fall, greatest_growth(high_then, v + slow_then, low, v + fast_now, worst)
                )
            fast = np.minimum(fast + gone, top)
            way = growth / (time * np.where(growth > 0.0, soft, stiff))
            fast = np.where(risen, np.minimum(fast, way + ahead), fast)
            slow = np.maximum(slow - gone, -top)
            way = fall / (time * np.where(fall > 0.0, soft, stiff))
            slow = np.where(fallen, np.maximum(slow, behind - way), slow)
            fresh, agrees = doubt == FRESH, slow <= fast + SLACK
            left = left | (alive & agrees)
            anew = fresh | ((doubt == 0.0) & (agrees ^ True))
            alive = alive & (agrees | anew)
            slow, fast = np.where(anew, -top, np.minimum(slow, fast)), np.where(anew, top, fast)
            doubt = np.where(fresh, 1.0, np.where(anew, FRESH, doubt))
            kinds.append(
                TissueKind(np.where(alive, slow, top), np.where(alive, fast, -top), doubt)
            )
        # A contradiction of every kind says nothing about the tissue: something else pulled.
        return [
            TissueKind(
                np.where(left, slow, -top), np.where(left, fast, top), np.where(left, doubt, 0.0)
            )
            for slow, fast, doubt in kinds
        ]

    def force(
        self,
        seen: ContactState,
        possible: ContactBounds,
        move: int,
        aside: Number = 0.0,
        enough: Number = 0.0,
    ) -> Number:
        """
        Return the greatest force that a move can lead to, N, if the tip is drawn back after it.

        :param possible: for what is seen.
        :param move: place in MOVES.
        :param aside: how far the tip goes sideways meanwhile, m: over a slope it gets deeper.
        :param enough: force below which no closer bound is needed, N.
        """
        tables, far = self.tables, possible.far
        deeper = self.bounds.slope * aside
        # Never deeper than where the surface can be at its highest.
        deepest = tables.sink[seen.level, far, seen.pending, move] - seen.room_ever + deeper
        chosen = ChosenMove(move, far, deeper, deepest * tables.steep)
        ends = possible.softest, possible.stiffest
        whole = self.greatest_between(seen, chosen, ends, possible.contact, possible.fast)
        whole = whole * whole**0.5
        near = whole > enough
        if not near.any():
            return whole
        x: Number = 0.0 * seen.force
        for (soft, stiff), (slow, fast, _) in zip(self.spans, possible.kinds, strict=True):
            alive = near & (slow <= fast)
            if not alive.any():
                continue
            row, _ = tables.places(fast, seen.lag)
            contact = self.greatest_contact(possible.high, slow, possible.sinking)
            one = self.greatest_between(seen, chosen, (soft, stiff), contact, row)
            x = np.where(alive, np.maximum(x, one), x)
        return np.where(near, x * x**0.5, whole)

    def greatest_contact(self, high: Number, slow: Number, sinking: Number) -> Number:
        """Return the greatest kappa d for what is felt, by the least speeds of surface and tip."""
        closing = np.minimum(slow + sinking, _NONE)
        return high / (1.0 + self.bounds.damping * closing) ** POWER

    def greatest_between(
        self,
        seen: ContactState,
        chosen: ChosenMove,
        ends: tuple[Number, Number],
        contact: Number,
        row: Number,
    ) -> Number:
        """Return the greatest kappa d (1 + lambda v)^(2/3) for kappa between two ends."""
        tables, level, pending = self.tables, seen.level, seen.pending
        move, far, deeper, deepest = chosen
        soft, stiff = ends

        def felt(kappa: Number) -> Number:
            depth = np.minimum(contact / kappa, -seen.room) + deeper
            return np.minimum(tables.reached(level, row, far, pending, move, depth), deepest)

        x = np.maximum(stiff * felt(stiff), _NONE)
        # What gets less deep is linear in kappa too: then the softest is the worst, or the one
        # that is as deep as the surface can be high.
        soft = np.minimum(np.maximum(contact / np.maximum(-seen.room, LEAST_DEPTH), soft), stiff)
        return np.maximum(x, soft * felt(soft))


def greatest_growth(now: Number, slow: Number, then: Number, fast: Number, worst: float) -> Number:
    """
    Return how much kappa d grew at most for some damping up to the worst, N^(2/3).

    With y = x (1 + lambda v)^(-2/3), the greatest y now less the least y then: at the worst
    damping, or where the derivative to lambda is 0, which then is the maximum.

    :param now: x now at the most.
    :param slow: v now at least.
    :param then: x then at least.
    :param fast: v then at the most, not less than `slow`.
    """
    found = now / (1.0 + worst * slow) ** POWER - then / (1.0 + worst * fast) ** POWER
    inside = (now * slow > TINY) & (then * fast > now * slow)
    share = (np.where(inside, then * fast, 1.0) / np.where(inside, now * slow, 1.0)) ** _ROOT
    span = fast - share * slow
    inside = inside & (share - 1.0 < worst * span)
    damping = (share - 1.0) / np.where(inside, span, 1.0)
    damping = np.where(inside, damping, worst)
    grown = now / (1.0 + damping * slow) ** POWER - then / (1.0 + damping * fast) ** POWER
    return np.maximum(found, grown)


_ONE = np.zeros(1)
_OF_BOUNDS = ('force_error', 'position_error', 'damping', 'slope', 'speed')
_OF_TABLES = ('steep', 'speed_step', 'lag_step', 'reach')
"""Fields of the compiled struct that bounds and tables have too."""


class CompiledPrediction(Prediction):
    """
    The same prediction for one robot: numbers in, numbers out.

    Compiled where native/contact.c was built; elsewhere NumPy over one robot, several times
    slower. The kinds of tissue of one must not be passed to the other.
    """

    def __init__(self, bounds: Bounds, radius: float) -> None:
        super().__init__(bounds, radius)
        self._contact = self._compiled() if kernels.built() else None

    def unknown_tissue(self, like: Number = 0.0) -> Kinds:
        """Return the kinds of tissue before the first state."""
        if self._contact is None:
            return super().unknown_tissue(_ONE)
        top = self.bounds.speed
        return kernels.ffi.new('fdrl_outlook *', {'kinds': [(-top, top, 0.0)] * KINDS})

    def infer(self, seen: ContactState) -> ContactBounds:
        """
        Return the bounds on the contact now.

        :raises StateError: if a number is not finite.
        """
        if self._contact is None:
            if not all(map(math.isfinite, (*seen[:4], seen.aside, seen.interval))):
                raise StateError(f'the state of the contact cannot be: {seen}')
            return super().infer(_as_arrays(seen))
        found = kernels.ffi.new('fdrl_outlook *')
        numbers = *seen[:9], seen.aside, seen.interval
        done = kernels.lib.fdrl_look(self._contact, seen.kinds.kinds, *numbers, found)
        if done:
            raise StateError(f'the state of the contact cannot be: {seen}')
        return ContactBounds(found)

    def force(
        self,
        seen: ContactState,
        possible: ContactBounds,
        move: int,
        aside: Number = 0.0,
        enough: Number = 0.0,
    ) -> float:
        """
        Return the greatest force that a move can lead to, N; see :meth:`Prediction.force`.

        :raises StateError: if a number is not finite.
        """
        if self._contact is None:
            found = super().force(_as_arrays(seen), possible, move, aside, enough).item()
        else:
            found = kernels.lib.fdrl_force(self._contact, possible.kinds, move, aside, enough)
        if not found >= 0.0:
            raise StateError(f'no force can be told for a way of {aside} m and {enough} N')
        return float(found)

    def _compiled(self) -> Kinds:
        """
        Return the parameters of the compiled law.

        :raises RuntimeError: if it was compiled for tables of another form.
        """
        lib, of, tables, bounds = kernels.lib, kernels.ffi.from_buffer, self.tables, self.bounds
        rows = (lib.FDRL_LEVELS, lib.FDRL_SPEEDS, lib.FDRL_BEHIND, lib.FDRL_PENDING)
        form = (*rows, lib.FDRL_MOVES, lib.FDRL_DEPTHS)
        if tables.felt.shape != form or lib.FDRL_KINDS != KINDS:
            raise RuntimeError(f'fdrl_ros._kernels is of another form: {form}')
        # A table must live as long as what points to it: of() keeps it, and `self` keeps both.
        self._tables = of('double[]', tables.felt), of('double[]', tables.sink)
        return kernels.ffi.new(
            'fdrl_contact *',
            {
                **{name: getattr(bounds, name) for name in _OF_BOUNDS},
                **{name: getattr(tables, name) for name in _OF_TABLES},
                'turn': self._turn,
                'quick': self._quick,
                'fastest': float(MAXIMUM_SPEED),
                'slow': self._slow.tolist(),
                'ends': [*(soft for soft, _ in self.spans), self.stiffest],
                'depths': DEPTHS,
                'felt': self._tables[0],
                'sink': self._tables[1],
            },
        )


@lru_cache(maxsize=64)
def compiled_prediction(bounds: Bounds, radius: float) -> CompiledPrediction:
    """Return the prediction under one instrument, made once."""
    return CompiledPrediction(bounds, radius)


def _as_arrays(seen: ContactState) -> ContactState:
    """Return the state of one robot as arrays of one."""
    numbers = {
        name: np.array([value])
        for name, value in seen._asdict().items()
        if name not in ('kinds', 'interval')
    }
    return ContactState(**numbers, kinds=seen.kinds, interval=seen.interval)
