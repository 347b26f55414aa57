# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Soft tissue under many tips, by the law of :class:`fdrl_ros.surgery.tissue.contact.Tissue`.

Normal forces only: a kinematic arm does not feel friction. The last axis of every array is the
patient.
"""

import math

from fdrl_ros.surgery.gym.actions import SUBSTEP
from fdrl_ros.surgery.patient.batch_events import Array, Breathing, Rows
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tissue.contact import contact_force, Tissue
from fdrl_ros.surgery.tissue.contact_threshold import felt_force, smoothed
import numpy as np
from numpy.typing import NDArray


class BatchTissue(Breathing):
    """
    The organs of n patients.

    :param count: n.
    :param settings: of the world.
    """

    def __init__(self, count: int, settings: WorldSettings) -> None:
        super().__init__(count)
        self._felt, self._noisy = felt_force(settings), settings.force_noise > 0.0
        self.rest, self.stiffness, self.damping, self.bearable = np.zeros((4, count))
        """As :class:`Tissue` has them."""
        self.touched: Array = np.full(count, math.nan)
        """Heights at which contact was first felt, m; not a number before."""
        self.smooth_force: Array = np.zeros(count)

    def lay(self, row: int, patient: Patient, tissue: Tissue) -> None:
        """Lay a patient's organ under the tip of a row."""
        self.put(row, patient)
        self.rest[row], self.stiffness[row] = tissue.rest, tissue.stiffness
        self.damping[row], self.bearable[row] = tissue.damping, tissue.bearable
        self.touched[row], self.smooth_force[row] = math.nan, 0.0

    def press(self, heights: Array, depths: Array, speeds: Array) -> Array:
        """
        Return the force that pushes each tip out after each sub-step, N, and note first contact.

        :param heights: of the tips, shape (12, n), m; as what follows.
        :param depths: of the tips below the untouched surface, m.
        :param speeds: at which the depths grow, m/s.
        """
        loads = contact_force(self.stiffness, self.damping, depths, speeds)
        if self._noisy:
            return loads
        felt = loads >= self._felt
        new: Rows = np.flatnonzero(felt.any(axis=0) & np.isnan(self.touched))
        if len(new):
            self.touched[new] = heights[felt[:, new].argmax(axis=0), new]
        return loads

    def feel(self, measured: Array, height: Array) -> NDArray[np.bool_]:
        """
        Say at the end of a tick which tips feel contact; of a noisy sensor note the first.

        :param measured: what the sensors say, N.
        :param height: of the tips, m.
        """
        if not self._noisy:
            clear: NDArray[np.bool_] = measured >= self._felt
            return clear
        self.smooth_force = smoothed(self.smooth_force, measured)
        felt: NDArray[np.bool_] = self.smooth_force >= self._felt
        self.touched = np.where(felt & np.isnan(self.touched), height, self.touched)
        return felt

    def damage(self, loads: Array, depths: Array, warn: Array) -> Array:
        """
        Return what the tick has done to tissue by force and by pressure, N s, shape (n,).

        :param loads: as :meth:`press` returned them.
        :param depths: as it was given them.
        :param warn: forces above which tissue is harmed, N.
        """
        harm = np.maximum(loads - warn, 0.0)
        bearable = self.bearable * np.maximum(depths, 0.0)
        crushed = loads > bearable
        if crushed.any():
            harm[crushed] += (loads * (loads / np.where(crushed, bearable, 1.0) - 1.0))[crushed]
        total: Array = harm.sum(axis=0) * SUBSTEP
        return total
