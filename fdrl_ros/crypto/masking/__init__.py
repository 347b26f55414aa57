# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Masks that cancel in the sum, and the shares that restore them after drop-outs."""
