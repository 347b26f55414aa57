# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A leakage laboratory: shadow models, membership attacks, inversion, and what they find."""
