# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a policy of the FDRL paper's world tells of its records, from every seat."""
