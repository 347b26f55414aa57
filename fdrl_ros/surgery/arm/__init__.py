# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The arm: kinematics, motors in PyBullet, motion commands and CRTK readings."""
