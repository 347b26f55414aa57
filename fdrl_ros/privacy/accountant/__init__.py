# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The accountant: what a history of noisy steps costs (FDRL Eq. 13, 22 and 23)."""
