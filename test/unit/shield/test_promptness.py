# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The shield looks nothing up in the control loop that has to be made first."""

from fdrl_ros.selector import Shield
from fdrl_ros.shield.excursion import excursion
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES, STATE_SIZE
import numpy as np


def test_the_first_state_of_a_procedure_makes_no_tables():
    shield = Shield()
    made = excursion.cache_info().misses
    for name in PROCEDURE_NAMES:
        shield.reset()
        shield.update(np.ones(STATE_SIZE), name, 1.0)
    assert excursion.cache_info().misses == made
