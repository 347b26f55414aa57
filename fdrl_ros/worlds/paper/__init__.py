# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The synthetic world of the FDRL paper (section IV)."""
