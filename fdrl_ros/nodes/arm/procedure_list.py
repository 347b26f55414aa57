# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The procedures in words, for who asks the env's node."""

from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.tasks.procedures import PROCEDURES, TRAITS


def procedure_list() -> str:
    """Say in a line for each procedure what it is and what ends it."""
    lines = []
    for procedure in PROCEDURES:
        force = f', {procedure.target_force:g} N' if procedure.target_force else ''
        lines.append(
            f'{procedure.name}: {TRAITS[procedure.name].purpose}{force}; '
            f'at most {procedure.force_limit:g} N and {procedure.horizon * TICK:g} s'
        )
    return '\n'.join(lines)
