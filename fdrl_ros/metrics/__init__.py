# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is measured: episodes, task accuracy, risk, adaptation. Needs numpy alone."""
