# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The protocol: parties that take messages and return messages, and the drivers that move them."""
