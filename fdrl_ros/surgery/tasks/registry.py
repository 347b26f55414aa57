# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is to be done in each procedure: a task knows its way, its end and its remaining cost."""

from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.tasks.hold import Hover, Press
from fdrl_ros.surgery.tasks.incision import Incision
from fdrl_ros.surgery.tasks.task import Task
from fdrl_ros.surgery.tasks.transfer import Transfer
from fdrl_ros.surgery.tissue.contact import Tissue

TASKS: dict[str, type[Task]] = {
    'reach': Hover,
    'palpation': Press,
    'retraction': Press,
    'incision': Incision,
    'needle_pass': Transfer,
    'peg_transfer': Transfer,
    'follow': Hover,
}


def task_of(patient: Patient, tissue: Tissue) -> Task:
    """Return what is to be done with a patient."""
    return TASKS[patient.procedure.name].plan(patient, tissue)
