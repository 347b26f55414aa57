# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A procedure of your own in your own numbers: palpate a spleen, which bears less than a liver.

    fdrl run --task docs/tutorial/spleen.py:SpleenTask
"""

from dataclasses import dataclass, replace

from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.task import SurgeryTask
from fdrl_ros.surgery.tasks.procedures import procedure_named

SPLEEN = replace(
    procedure_named('palpation'),
    target_force=0.5,
    tolerance=0.08,
    warn_force=0.6,
    force_limit=0.9,
    hold_time=0.4,
)


@dataclass(frozen=True)
class SpleenPatients:
    """The patients of a cohort, on whom this procedure is done."""

    cohort: Cohort

    @property
    def hospital(self):
        """Number of the hospital, from 0."""
        return self.cohort.hospital

    @property
    def public(self):
        """Whether they are made up."""
        return self.cohort.public

    @property
    def seed(self):
        """Seed of the whole federation's patients."""
        return self.cohort.seed

    def patient(self, index, split='train'):
        """Return patient number `index`, always the same one."""
        return replace(self.cohort.patient(index, split), procedure=SPLEEN)


class SpleenTask(SurgeryTask):
    """Press on a spleen until a force of 0.5 N holds for 0.4 s, and never above 0.9 N."""

    name = 'spleen'
    summary = 'palpation of a spleen, a procedure of a user'
    robot = False  # the robot's own world has no spleens
    defaults = {
        'federation': {'procedures': 'palpation'},
        'world': {'mode': 'kinematic'},
        'collection': {'patients': 300},
        'pretraining': {'patients': 60, 'steps': 300},
        'privacy': {'batch': 100, 'delta': 1e-3},
        'rounds': {'rounds': 5},
    }

    def population(self, chosen, hospital, heterogeneity=None):
        """Return the patients of a hospital, or public ones."""
        return SpleenPatients(super().population(chosen, hospital, heterogeneity))

    def constants(self):
        """Return the numbers of the world and of the procedure."""
        return super().constants() + repr(SPLEEN).encode()
