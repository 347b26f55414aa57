# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Keys and the roster: how they are made, stored, rotated and revoked."""
