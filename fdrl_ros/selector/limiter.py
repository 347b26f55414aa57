# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The limiter: turns selections (20 Hz) into set-points of the tip (100 Hz) that stay slow and safe.

It is the last word before the arm: whatever the selector does, the set-point is continuous, no
faster than the speed limit, and stands still when no fresh action comes.
"""

from dataclasses import dataclass
import math

from fdrl_ros.env.actions import displacement, MAXIMUM_SPEED, TICK
from fdrl_ros.errors import StateError
from fdrl_ros.selector.candidate import Selection
from fdrl_ros.settings import setting, Settings
import numpy as np

UP = (0.0, 0.0, 1.0)
"""Away from the tissue, in the frame of the arm's base."""


@dataclass(frozen=True)
class LimiterSettings(Settings):
    """How far the limiter lets the tip go."""

    speed_limit: float = setting(
        MAXIMUM_SPEED, 'fastest set-point', unit='m/s', minimum=0.001, maximum=0.1
    )
    action_timeout: float = setting(
        0.1, 'age at which an action is stale', unit='s', minimum=0.05, maximum=1.0
    )
    force_timeout: float = setting(
        0.05, 'age at which a force is stale', unit='s', minimum=0.005, maximum=1.0
    )
    prediction: float = setting(
        0.05, 'how far ahead force is predicted', unit='s', minimum=0.0, maximum=0.5
    )
    retract_speed: float = setting(
        0.02, 'speed of retraction', unit='m/s', minimum=0.0, maximum=0.1
    )
    retract_limit: float = setting(
        0.02, 'longest retraction of one hold', unit='m', minimum=0.0, maximum=0.1
    )


@dataclass(frozen=True)
class SetPoint:
    """
    Where the tip shall be now.

    :param position: metre, in the frame of the arm's base, shape (3,), read-only.
    :param holding: no action moves the tip.
    :param retracting: the tip goes back because force would pass the limit.
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
        self._ready = False
        self._start = self._last = np.zeros(3)
        self._move = np.zeros(3)
        self._began = -math.inf
        self._now = -math.inf
        self._accepted = -math.inf
        self._hold = True
        self._away = np.array(UP)
        self._retracted = 0.0
        self._force: tuple[float, float, float, float] | None = None
        self._jaw: float | None = None
        self._jaw_move: tuple[float, float, float] | None = None

    def reset(self, position: np.ndarray, now: float, jaw: float | None = None) -> None:
        """
        Start from a measured position of the tip, at the start of a case or after a pause.

        :param position: metre, shape (3,).
        :param jaw: opening that the jaw was told last, rad; None if nobody says.
        :raises StateError: if it is no finite position.
        """
        tip = np.array(position, dtype=np.float64)
        if tip.shape != (3,) or not np.all(np.isfinite(tip)):
            raise StateError(f'tip at {position!r}: expected three finite metres')
        self._ready = True
        self._start = self._last = tip
        self._move = np.zeros(3)
        self._began = self._now = now
        self._accepted = -math.inf
        self._hold = True
        self._force = None
        self._retracted = 0.0
        self._jaw, self._jaw_move = jaw, None

    def sense(self, force: float, force_limit: float, now: float) -> None:
        """
        Take in the force at the tip; two in a row predict the next.

        :param force: newton; one that is not finite counts as none.
        :param force_limit: of the procedure, newton.
        """
        if not (math.isfinite(force) and math.isfinite(force_limit) and force_limit > 0):
            self._force = None
            return
        rate = 0.0
        if self._force is not None and now > self._force[3]:
            rate = (force - self._force[0]) / (now - self._force[3])
        elif self._force is not None:
            rate = self._force[1]
        self._force = (force, rate, force_limit, now)

    def accept(self, selection: Selection, now: float, away: np.ndarray | None = None) -> None:
        """
        Take in a selection: move by its action over one tick from here, or hold.

        :param away: unit vector along the shaft away from the tissue, shape (3,); up by default.
        :raises StateError: if there is no such action; the tip then holds.
        """
        if not self._ready:
            return
        was_holding = self._hold
        forward = now >= self._now
        self._stand(now)
        if away is not None and np.shape(away) == (3,) and np.all(np.isfinite(away)):
            self._away = np.array(away, dtype=np.float64)
        if selection.holds or not forward:
            if not was_holding:
                self._retracted = 0.0
            self._jaw_move = None
            return
        move = np.array(displacement(selection.action))
        length = float(np.linalg.norm(move))
        longest = self.settings.speed_limit * TICK
        self._move = move * min(1.0, longest / length) if length > 0 else move
        self._accepted = now
        self._hold = False

    def turn_jaw(self, opening: float, now: float) -> None:
        """
        Open or close the jaw over one tick from now on; a hold stops it on its way.

        :param opening: rad.
        """
        start = opening if self._jaw is None else self._jaw
        self._jaw_move = (start, opening, now)

    def step(self, now: float) -> SetPoint | None:
        """
        Return the set-point for now; call it at 100 Hz.

        :returns: None before the first :meth:`reset`.
        """
        if not self._ready:
            return None
        elapsed = now - self._now
        fresh = elapsed >= 0 and now - self._accepted <= self.settings.action_timeout
        if not self._hold and not fresh:
            self._stand(now)
            self._retracted = 0.0
        retracting = False
        held = now - max(self._now, self._began)  # before that the tip was still on its move
        if self._hold and held > 0 and self._too_much_force(now):
            # A late call must not turn into a leap.
            speed = min(self.settings.retract_speed, self.settings.speed_limit)
            way = min(speed * min(held, TICK), self.settings.retract_limit - self._retracted)
            if way > 0:
                self._start = self._start + way * self._away
                self._retracted += way
                retracting = True
        if not math.isnan(now):
            self._now = now
        self._last = self._position(now)
        position = self._last.copy()
        position.flags.writeable = False
        return SetPoint(position, self._hold, retracting, self._turn(now))

    def _turn(self, now: float) -> float | None:
        """Return where the jaw has come to, while it is on its way and once at its end."""
        if self._jaw_move is None:
            return None
        start, end, began = self._jaw_move
        share = min(max(0.0, (now - began) / TICK), 1.0)
        self._jaw = start + share * (end - start)
        if share >= 1.0 - 1e-9:
            self._jaw, self._jaw_move = end, None
        return self._jaw

    def _stand(self, now: float) -> None:
        """Stop where the present move has come to; a clock that went back moves nothing."""
        self._start = self._position(now) if now >= self._now else self._last
        self._move = np.zeros(3)
        self._began = now
        self._hold = True

    def _position(self, now: float) -> np.ndarray:
        """Where the present move has come to."""
        # In this order a time that is no number counts as no time.
        share = min(max(0.0, (now - self._began) / TICK), 1.0)
        position: np.ndarray = self._start + share * self._move
        return position

    def _too_much_force(self, now: float) -> bool:
        """Predict the force a little ahead; a force that is not fresh predicts nothing."""
        if self._force is None:
            return False
        force, rate, limit, time = self._force
        if not 0.0 <= now - time <= self.settings.force_timeout:
            return False
        return max(force, force + rate * self.settings.prediction) > limit
