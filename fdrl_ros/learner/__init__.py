# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a hospital does alone: its records, and DP-DQN on them."""
