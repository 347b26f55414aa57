# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Operations as environments: the state, the actions, one operation and many."""
