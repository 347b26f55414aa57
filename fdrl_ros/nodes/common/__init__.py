# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What all nodes share: lifecycle, parameters, quality of service, diagnostics."""
