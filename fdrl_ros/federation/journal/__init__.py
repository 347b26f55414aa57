# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Round journals: signed records of what each party did, and how to compare them."""
