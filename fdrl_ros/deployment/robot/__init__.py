# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Policies of a robot on this host: their test and their value models, by the plan."""
