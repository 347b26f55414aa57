# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The two procedures: which force, within what, for how long, and never above what."""

from dataclasses import dataclass

from fdrl_ros.env.constants import constant
from fdrl_ros.errors import SettingError


@dataclass(frozen=True)
class Procedure:
    """
    Press the tool on the goal with a target force and hold it.

    :param name: its name in states and messages.
    :param target_force: force to hold, N.
    :param tolerance: how far from the target counts as held, N.
    :param warn_force: force above which tissue takes damage, N.
    :param force_limit: force that ends the operation as a failure, N.
    :param contact_radius: radius of the instrument's rounded end, m.
    :param hold_time: time to hold without a break, s.
    """

    name: str
    target_force: float
    tolerance: float
    warn_force: float
    force_limit: float
    contact_radius: float
    hold_time: float


def _procedure(name: str) -> Procedure:
    fields = [each for each in Procedure.__dataclass_fields__ if each != 'name']
    return Procedure(name, *(constant(f'{name}.{each}') for each in fields))


PROCEDURES: tuple[Procedure, ...] = (_procedure('palpation'), _procedure('retraction'))


def procedure_named(name: str) -> Procedure:
    """
    Return a procedure by its name.

    :raises SettingError: if there is none.
    """
    for each in PROCEDURES:
        if each.name == name:
            return each
    raise SettingError('procedure', name, 'one of ' + ', '.join(p.name for p in PROCEDURES))
