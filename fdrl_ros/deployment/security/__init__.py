# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""DDS Security of a federation: rules out of the node graph, enclaves out of the roster."""
