# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The parts of an instrument that pictures are labelled with."""

from typing import Final

BACKGROUND, SHAFT, WRIST, JAW = range(4)

PARTS: Final = ('background', 'shaft', 'wrist', 'jaw')
"""Names of the numbers in a label picture."""

UNLABELLED: Final = 255
"""In a label picture: nobody says what is there; losses and metrics leave such pixels out."""
