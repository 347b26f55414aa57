# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Pictures of an operation: the renderer, the camera, the endoscope."""
