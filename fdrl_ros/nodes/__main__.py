# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Starts a node: `python -m fdrl_ros.nodes env --ros-args ...`."""

import sys

from fdrl_ros.deployment.bringup import NODES
from fdrl_ros.nodes.entry_point import start

if __name__ == '__main__':
    if len(sys.argv) < 2 or sys.argv[1] not in NODES:
        sys.exit(f'usage: python -m fdrl_ros.nodes {"|".join(NODES)} [--help | --ros-args ...]')
    sys.exit(start(sys.argv.pop(1)))
