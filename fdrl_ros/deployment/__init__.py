# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A federation's deployment: plan, directories, hosts, node graph."""
