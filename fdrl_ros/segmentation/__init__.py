# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""FedST: hospitals train a segmenter of instrument parts together without sharing video."""
