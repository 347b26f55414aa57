# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The ROS 2 nodes: thin drivers of the parties, one process each, and all that imports rclpy."""

import os

# Before numpy is loaded: a second thread costs these small networks time, and the
# machine runs one process for every party.
for _name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS'):
    os.environ.setdefault(_name, '1')
