# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The policies that a robot may choose from, and what a surgeon orders about them."""
