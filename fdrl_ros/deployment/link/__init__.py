# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Links between hospitals over Eclipse Zenoh: every party dials out to a router, and only that."""
