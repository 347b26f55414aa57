# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""ICU-Sepsis as a world to learn in (DP-DQN section 4)."""
