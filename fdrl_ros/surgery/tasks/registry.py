# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is to be done in each procedure: a task knows its way, its end and its remaining cost."""

from fdrl_ros.errors import SettingError
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.tasks.hold import Hover, Press
from fdrl_ros.surgery.tasks.incision import Incision
from fdrl_ros.surgery.tasks.outcome import failure_code
from fdrl_ros.surgery.tasks.procedures import of_each_kind
from fdrl_ros.surgery.tasks.task import Task
from fdrl_ros.surgery.tasks.transfer import Transfer
from fdrl_ros.surgery.tissue.contact import Tissue

_CLASSES: dict[str, type[Task]] = {
    'hover': Hover,
    'press': Press,
    'incision': Incision,
    'transfer': Transfer,
}
TASKS = of_each_kind(_CLASSES, 'tasks/registry.py')

for _kind, _task in _CLASSES.items():
    try:
        failure_code(_task.loss)
    except SettingError as error:
        raise error.of(_kind) from None


def task_of(patient: Patient, tissue: Tissue) -> Task:
    """Return what is to be done with a patient."""
    return TASKS[patient.procedure.name].plan(patient, tissue)
