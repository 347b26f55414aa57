# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The procedures in words, for who asks the env's node."""

from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.tasks.procedures import Procedure, PROCEDURES, TRAITS


def described(procedure: Procedure) -> str:
    """Say in one line what a procedure is and what ends it."""
    force = f', {procedure.target_force:g} N' if procedure.target_force else ''
    return (
        f'{procedure.name}: {TRAITS[procedure.name].purpose}{force}; '
        f'at most {procedure.force_limit:g} N and {procedure.horizon * TICK:g} s'
    )


def procedure_list() -> str:
    """Describe every procedure, one a line."""
    return '\n'.join(map(described, PROCEDURES))
