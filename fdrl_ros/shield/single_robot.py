# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The greatest force under the instrument of one robot, in the time that a control loop has.

Compiled (native/contact.c) where that was built; elsewhere as the only one of many, in arrays,
several times slower. Tests hold one to the other.
"""

from functools import lru_cache
import math
from typing import Any

from fdrl_ros.errors import StateError
from fdrl_ros.runtime import kernels
from fdrl_ros.shield.excursion import Bounds, DEPTHS
from fdrl_ros.shield.prediction import KINDS, Outlook, Prediction, Seen
from fdrl_ros.shield.scalar_or_array import Number
from fdrl_ros.surgery.gym.actions import MAXIMUM_SPEED
import numpy as np

_ONE = np.zeros(1)


class SinglePrediction(Prediction):
    """
    Forces under the instrument of one robot: numbers in, numbers out.

    The parameters are those of :class:`Prediction`. What is kept of the kinds of tissue belongs to
    whoever made it.
    """

    def __init__(self, bounds: Bounds, radius: float) -> None:
        super().__init__(bounds, radius)
        self._contact = self._compiled() if kernels.built() else None

    def all_kinds(self, like: Number = 0.0) -> Any:
        """Return what the surface can do where nothing was seen."""
        if self._contact is None:
            return super().all_kinds(_ONE)
        top = self.bounds.speed
        return kernels.ffi.new('fdrl_outlook *', {'kinds': [(-top, top, 0.0)] * KINDS})

    def outlook(self, seen: Seen) -> Outlook:
        """
        Return what can be now.

        :raises StateError: if a number is not finite.
        """
        if self._contact is None:
            if not all(map(math.isfinite, (*seen[:4], seen.aside, seen.interval))):
                raise StateError(f'what is seen of the contact cannot be: {seen}')
            return super().outlook(_alone(seen))
        found = kernels.ffi.new('fdrl_outlook *')
        done = kernels.lib.fdrl_look(
            self._contact,
            seen.kinds.kinds,
            seen.force,
            seen.before,
            seen.lag,
            seen.lag_before,
            seen.sunk,
            seen.room,
            seen.room_ever,
            seen.pending,
            seen.level,
            seen.aside,
            seen.interval,
            found,
        )
        if done:
            raise StateError(f'what is seen of the contact cannot be: {seen}')
        return Outlook(
            found.softest,
            found.stiffest,
            found.contact,
            found.speed,
            found.fast,
            found.far,
            found,
            found.high,
            found.sinking,
        )

    def force(
        self,
        seen: Seen,
        outlook: Outlook,
        move: int,
        aside: Number = 0.0,
        enough: Number = 0.0,
    ) -> float:
        """
        Return the greatest force that a move can lead to, N; see :meth:`Prediction.force`.

        :raises StateError: if a number is not finite.
        """
        if self._contact is None:
            found = super().force(_alone(seen), outlook, move, aside, enough).item()
        else:
            found = kernels.lib.fdrl_force(self._contact, outlook.kinds, move, aside, enough)
        if not found >= 0.0:
            raise StateError(f'no force can be told for a way of {aside} m and {enough} N')
        return float(found)

    def _compiled(self) -> Any:
        """
        Return what the compiled arithmetic needs to know.

        :raises RuntimeError: if it was compiled for tables of another form.
        """
        lib, of, tables, bounds = kernels.lib, kernels.ffi.from_buffer, self.excursion, self.bounds
        rows = (lib.FDRL_LEVELS, lib.FDRL_SPEEDS, lib.FDRL_BEHIND, lib.FDRL_PENDING)
        form = (*rows, lib.FDRL_MOVES, lib.FDRL_DEPTHS)
        if tables.felt.shape != form or lib.FDRL_KINDS != KINDS:
            raise RuntimeError(f'fdrl_ros._kernels is of another form: {form}')
        # A table must live as long as what points to it: of() keeps it, and `self` keeps both.
        self._tables = of('double[]', tables.felt), of('double[]', tables.sink)
        return kernels.ffi.new(
            'fdrl_contact *',
            {
                'force_error': bounds.force_error,
                'position_error': bounds.position_error,
                'damping': bounds.damping,
                'slope': bounds.slope,
                'speed': bounds.speed,
                'turn': self._turn,
                'quick': self._quick,
                'fastest': float(MAXIMUM_SPEED),
                'steep': tables.steep,
                'speed_step': tables.speed_step,
                'lag_step': tables.lag_step,
                'reach': tables.reach,
                'slow': self._slow.tolist(),
                'ends': [*(soft for soft, _ in self.spans), self.stiffest],
                'depths': DEPTHS,
                'felt': self._tables[0],
                'sink': self._tables[1],
            },
        )


@lru_cache(maxsize=64)
def single(bounds: Bounds, radius: float) -> SinglePrediction:
    """Return the forces under one instrument, made once."""
    return SinglePrediction(bounds, radius)


def _alone(seen: Seen) -> Seen:
    """Return the same of one robot among many."""
    numbers = {
        name: np.array([value])
        for name, value in seen._asdict().items()
        if name not in ('kinds', 'interval')
    }
    return Seen(**numbers, kinds=seen.kinds, interval=seen.interval)
