# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The procedures in words, for who asks the env's node."""

from typing import Final

from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.tasks.procedures import Procedure, PROCEDURES

PURPOSES: Final = {
    'reach': 'bring the tip to a point above the organ, touch nothing, and stay',
    'palpation': 'press gently on the goal until the target force holds',
    'retraction': 'press on the goal with a pad and hold the organ away',
    'incision': 'draw a blade along the planned line at its depth',
    'needle_pass': 'pick up a needle and hand it to the other instrument',
    'peg_transfer': 'lift a ring off one peg and put it over another',
    'follow': 'stay with a point that circles and breathes',
}


def described(procedure: Procedure) -> str:
    """Say in one line what a procedure is and what ends it."""
    force = f', {procedure.target_force:g} N' if procedure.target_force else ''
    return (
        f'{procedure.name}: {PURPOSES[procedure.name]}{force}; '
        f'at most {procedure.force_limit:g} N and {procedure.horizon * TICK:g} s'
    )


def procedure_list() -> str:
    """Describe every procedure, one a line."""
    return '\n'.join(map(described, PROCEDURES))
