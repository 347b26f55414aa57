# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Whole experiments: train, compare, report; and what is needed to repeat them."""
