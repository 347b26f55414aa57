# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What was recorded: runs, their operations, and bags of one robot, as the page replays them."""
