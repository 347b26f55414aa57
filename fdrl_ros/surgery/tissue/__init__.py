# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Soft tissue: contact force and the threshold from which contact is felt."""
