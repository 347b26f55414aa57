# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The DP-DQN paper's experiments on ICU-Sepsis (DP-DQN section 5)."""
