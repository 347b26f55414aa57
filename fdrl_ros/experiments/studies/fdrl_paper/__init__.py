# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The experiments of the FDRL paper (Fig. 3 to 7, ablation, cost) in its own world."""
