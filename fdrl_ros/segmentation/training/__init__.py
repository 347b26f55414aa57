# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Training of the segmenter: hospitals (RSC), key authority (SERQ), the methods compared."""
