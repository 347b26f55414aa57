# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The limiter: turns selections (20 Hz) into set-points of the tip (100 Hz) that stay slow and safe.

It comes last before the arm: whatever the selector does, the set-point is continuous, no
faster than the speed limit, and stands still when no fresh action comes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
import math
from typing import NamedTuple

from fdrl_ros.errors import StateError
from fdrl_ros.selector.candidates.candidate import Selection
from fdrl_ros.settings import setting, Settings
from fdrl_ros.shield.retreat import retreat, Vector
from fdrl_ros.surgery.gym.actions import displacement, MAXIMUM_SPEED, TICK
import numpy as np

_NO_WAY = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class LimiterSettings(Settings):
    """How far the limiter lets the tip go."""

    speed_limit: float = setting(
        MAXIMUM_SPEED, 'fastest set-point', limits=(0.001, 0.1), unit='m/s'
    )
    action_timeout: float = setting(
        0.1, 'age at which an action is stale', limits=(0.05, 1.0), unit='s'
    )


class SetPoint(NamedTuple):
    """
    Where the tip shall be now.

    :param position: metre, in the frame of the arm's base, shape (3,), read-only.
    :param holding: no action moves the tip.
    :param retracting: the tip is drawn back because force could pass a limit.
    :param jaw: opening that the jaw shall have, rad; None while no action moves it.
    """

    position: np.ndarray
    holding: bool
    retracting: bool
    jaw: float | None = None


class Limiter:
    """One robot's set-point as a function of time, on the selector's steady clock."""

    def __init__(self, settings: LimiterSettings | None = None) -> None:
        self.settings = settings or LimiterSettings()
        self._longest = self.settings.speed_limit * TICK
        self._ready = False
        self._stand_still(_NO_WAY, -math.inf, None)

    def reset(self, position: np.ndarray | Vector, now: float, jaw: float | None = None) -> None:
        """
        Start from a measured position of the tip, at the start of a case or after a pause.

        :param position: metre, shape (3,).
        :param jaw: opening that the jaw was told last, rad; None if nobody says.
        :raises StateError: if it is no finite position.
        """
        tip = np.array(position, dtype=np.float64)
        if tip.shape != (3,) or not np.all(np.isfinite(tip)):
            raise StateError(f'tip at {position!r}: expected three finite metres')
        x, y, z = tip.tolist()
        self._stand_still((x, y, z), now, jaw)
        self._ready = True

    def _stand_still(self, tip: Vector, now: float, jaw: float | None) -> None:
        """Stand still at a position of the tip, and forget every move."""
        self._start = self._last = tip
        self._move: Vector = _NO_WAY
        self._began = self._now = now
        self._accepted = -math.inf
        self._hold, self._retracting = True, False
        self._jaw = jaw
        self._jaw_move: tuple[float, float, float] | None = None

    def accept(
        self, selection: Selection, now: float, away: Sequence[float] | None = None
    ) -> None:
        """
        Take in a selection: move by its action over one tick from here, or hold.

        A hold whose action goes up, as the shield has it where staying could bring too much
        force, draws the tip back as far along the shaft, see :func:`retreat`.

        :param away: unit vector along the shaft away from the tissue, (3,); up by default.
        :raises StateError: if there is no such action; the tip then holds.
        """
        if not self._ready:
            return
        forward = now >= self._now
        self._stop(now)
        x, y, z = displacement(selection.action)
        holds = selection.holds
        if holds or not forward:
            self._jaw_move = None
            if not (forward and z > 0.0):
                return
            x, y, z = retreat(z, away)
            self._retracting = True
        length = math.hypot(x, y, z)
        if length > self._longest:
            share = self._longest / length
            x, y, z = x * share, y * share, z * share
        self._move = x, y, z
        self._accepted = now
        self._hold = holds

    def turn_jaw(self, opening: float, now: float) -> None:
        """
        Open or close the jaw over one tick from now on; a hold stops it on its way.

        :param opening: rad.
        """
        start = opening if self._jaw is None else self._jaw
        self._jaw_move = (start, opening, now)

    def setpoint(self, now: float) -> SetPoint | None:
        """
        Return the set-point for now; call it at 100 Hz.

        :returns: None before the first :meth:`reset`.
        """
        if not self._ready:
            return None
        elapsed = now - self._now
        fresh = elapsed >= 0 and now - self._accepted <= self.settings.action_timeout
        if not fresh and (not self._hold or self._retracting):
            self._stop(now)
        if not math.isnan(now):
            self._now = now
        self._last = self._position(now)
        position = np.array(self._last)
        position.setflags(write=False)
        return SetPoint(position, self._hold, self._retracting, self._jaw_opening(now))

    def _jaw_opening(self, now: float) -> float | None:
        """Return where the jaw has come to, while it is on its way and once at its end."""
        if self._jaw_move is None:
            return None
        start, end, began = self._jaw_move
        share = min(max(0.0, (now - began) / TICK), 1.0)
        self._jaw = start + share * (end - start)
        if share >= 1.0 - 1e-9:
            self._jaw, self._jaw_move = end, None
        return self._jaw

    def _stop(self, now: float) -> None:
        """Stop where the present move has come to; a clock that went back moves nothing."""
        self._start = self._position(now) if now >= self._now else self._last
        self._move = _NO_WAY
        self._began = now
        self._hold, self._retracting = True, False

    def _position(self, now: float) -> Vector:
        """Where the present move has come to."""
        # In this order a time that is no number counts as no time.
        share = min(max(0.0, (now - self._began) / TICK), 1.0)
        (x, y, z), (dx, dy, dz) = self._start, self._move
        return x + share * dx, y + share * dy, z + share * dz
