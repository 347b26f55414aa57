# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Logs of a live arm as a hospital's records D_i: all operations of a pseudonym are one unit."""

from collections.abc import Sequence

from fdrl_ros.errors import RecordsError
from fdrl_ros.learner.records.records import Records
from fdrl_ros.surgery.data.log import LoggedOperation
import numpy as np


def records_of_logs(logged: Sequence[LoggedOperation]) -> Records:
    """
    Group transitions by patient.

    The pseudonym must be the same wherever the patient is: the privacy guarantee is of a patient
    only as far as that holds.

    :param logged: with rewards, as :func:`fdrl_ros.surgery.data.log.with_rewards` derives them.
    :raises RecordsError: without an operation, or if a reward or a pseudonym is missing.
    """
    if not logged:
        raise RecordsError('no operations to make records of')
    by_patient: dict[str, list[LoggedOperation]] = {}
    for each in logged:
        if not each.patient:
            raise RecordsError('an operation on nobody: every patient needs a pseudonym')
        if not np.isfinite(each.rewards).all():
            raise RecordsError(
                'a log has no rewards; derive them with with_rewards, or give your own'
            )
        by_patient.setdefault(each.patient, []).append(each)
    ordered = [each for group in by_patient.values() for each in group]
    lengths = [sum(len(each.actions) for each in group) for group in by_patient.values()]
    return Records(
        states=np.concatenate([each.states for each in ordered]),
        actions=np.concatenate([each.actions for each in ordered]),
        rewards=np.concatenate([each.rewards for each in ordered]),
        next_states=np.concatenate([each.next_states for each in ordered]),
        terminals=np.concatenate([each.terminals for each in ordered]),
        starts=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        patients=np.array(list(by_patient)),
        ends=np.concatenate([np.arange(len(e.actions)) == len(e.actions) - 1 for e in ordered]),
    )
