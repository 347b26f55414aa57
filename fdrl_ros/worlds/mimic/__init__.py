# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Reads an extracted MIMIC-III table of sepsis patients into records (DP-DQN section 4.2)."""
