# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Starts a node: `python -m fdrl_ros.nodes env --ros-args ...`."""

import sys

from fdrl_ros.nodes.starting import start

if __name__ == '__main__':
    sys.exit(start(sys.argv.pop(1)))
