# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The robot's control loop: observe, rank, choose, limit, stop at risk."""
