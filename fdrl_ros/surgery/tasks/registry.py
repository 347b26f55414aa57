# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is to be done in each procedure: a task knows its way, its end and its remaining cost."""

from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.tasks.hold import Hover, Press
from fdrl_ros.surgery.tasks.incision import Incision
from fdrl_ros.surgery.tasks.outcome import failure_code
from fdrl_ros.surgery.tasks.procedures import TRAITS
from fdrl_ros.surgery.tasks.task import Task
from fdrl_ros.surgery.tasks.transfer import Transfer
from fdrl_ros.surgery.tissue.contact import Tissue

_CLASSES: dict[str, type[Task]] = {
    'hover': Hover,
    'press': Press,
    'incision': Incision,
    'transfer': Transfer,
}
TASKS = {name: _CLASSES[traits.task] for name, traits in TRAITS.items()}

for _task in _CLASSES.values():
    failure_code(_task.loss)  # refuses a task whose loss has no code


def task_of(patient: Patient, tissue: Tissue) -> Task:
    """Return what is to be done with a patient."""
    return TASKS[patient.procedure.name].plan(patient, tissue)
