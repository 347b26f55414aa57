# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Soft tissue under many tips, by the law of :class:`fdrl_ros.env.tissue.Tissue`.

Normal forces only: a kinematic arm does not feel friction. The last axis of every array is the
patient.
"""

import math

from fdrl_ros.env.batch_events import Array, Breathing, Rows
from fdrl_ros.env.operation import TOUCH_FORCE
from fdrl_ros.env.patient import Patient
from fdrl_ros.env.tissue import Tissue
import numpy as np


class BatchTissue(Breathing):
    """
    The organs of n patients.

    :param count: n.
    """

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.rest, self.stiffness, self.damping = np.zeros((3, count))
        """As :class:`Tissue` has them."""
        self.touched: Array = np.full(count, math.nan)
        """Heights at which contact was first felt, m; not a number before."""

    def lay(self, row: int, patient: Patient, tissue: Tissue) -> None:
        """Lay a patient's organ under the tip of a row."""
        self.put(row, patient)
        self.rest[row], self.stiffness[row] = tissue.rest, tissue.stiffness
        self.damping[row], self.touched[row] = tissue.damping, math.nan

    def press(self, heights: Array, depths: Array, speeds: Array) -> Array:
        """
        Return the force that pushes each tip out after each sub-step, N, and note first contact.

        :param heights: of the tips, shape (12, n), m; as what follows.
        :param depths: of the tips below the untouched surface, m.
        :param speeds: at which the depths grow, m/s.
        """
        inside = np.maximum(depths, 0.0)
        loads = self.stiffness * inside * np.sqrt(inside) * (1.0 + self.damping * speeds)
        np.maximum(loads, 0.0, out=loads)
        felt = loads >= TOUCH_FORCE
        new: Rows = np.flatnonzero(felt.any(axis=0) & np.isnan(self.touched))
        if len(new):
            self.touched[new] = heights[felt[:, new].argmax(axis=0), new]
        return loads
