# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Attacks on the training code, to hold its claims of privacy against what can be shown."""
