# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The shield: it refuses actions that could lead beyond a hard limit, and its proof."""
