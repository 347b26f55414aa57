# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Experiments: studies over seeds, evaluation, plots and reports."""
