# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What `fdrl watch` serves: a page of the operating room and the federation."""
