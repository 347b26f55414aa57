# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A hospital's records D_i: collecting, storing, sampling."""
