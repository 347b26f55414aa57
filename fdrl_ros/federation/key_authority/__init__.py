# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The key authority's side of a round (FDRL Alg. 1)."""
