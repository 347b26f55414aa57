# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Topics of any DDS domain, whoever publishes them: list, print, show, record and play them."""
