# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Value models: the expected return of a policy in a state, with uncertainty (FDRL Eq. 7)."""
