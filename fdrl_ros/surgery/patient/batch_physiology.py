# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The bodies of many patients at once, by the law of :mod:`fdrl_ros.surgery.patient.body`.

Not for clinical use. The last axis of every array is the patient; scores are
in :mod:`fdrl_ros.surgery.patient.batch_scores`.
"""

from fdrl_ros.surgery.patient.batch_events import Array, Rows, Spans
from fdrl_ros.surgery.patient.body import Body, QUANTITIES
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.patient.physiology import Physiology, steps_of
import numpy as np


class BatchPhysiology(Body):
    """
    The bodies of n patients, each in its own operation.

    :param count: n.
    :param pace: how many times faster than real time they live.
    """

    above, below = staticmethod(np.maximum), staticmethod(np.minimum)

    def __init__(self, count: int, pace: float = 1.0) -> None:
        self._pace = pace
        for each in QUANTITIES:
            setattr(self, each, np.ones(count))
        self._bleeds, self._falls = (
            Spans(kind, count, pace) for kind in ('bleed', 'desaturation')
        )

    def put(self, row: int, patient: Patient, body: Physiology) -> None:
        """
        Put a patient into a row.

        :param body: of the patient at the start.
        """
        for each in QUANTITIES:
            getattr(self, each)[row] = getattr(body, each)
        self._bleeds.put(row, patient.events)
        self._falls.put(row, patient.events)

    def keep(self, rows: Rows) -> None:
        """Keep only some rows."""
        for spans in (self._bleeds, self._falls):
            spans.keep(rows)
        for each in QUANTITIES:
            setattr(self, each, getattr(self, each)[rows])

    def advance(self, period: float, force: Array, damage: Array, cough: Array) -> None:
        """
        Let time pass, no longer than one step of :class:`Physiology`.

        :param period: s of real time.
        :param force: on tissue, N, at least 0.
        :param damage: done to tissue in this time, N s.
        :param cough: factor on breathing motion at the end of it.
        """
        if self._pace == 1.0:
            self._live(period, force, damage, cough)
            return
        period = period * self._pace
        steps = steps_of(period)
        for _ in range(steps):
            self._live(period / steps, force, damage / steps, cough)

    def _live(self, period: float, force: Array, damage: Array, cough: Array) -> None:
        begin, end = self.time, self.time + period
        bled: Array | float = 0.0
        fall: Array | float = 0.0
        if self._bleeds:
            start, stop, rate = self._bleeds.table
            during = np.minimum(end, stop) - np.maximum(begin, start)
            bled = (rate * np.maximum(during, 0.0)).sum(axis=0)
        if self._falls:
            start, stop, depth = self._falls.table
            fall = (((begin < stop) & (start < end)) * depth).sum(axis=0)
        self._step(period, force, damage, cough, bled, fall)
