# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The surgical world: arm, tissue, patient, procedures and expert (simulated, for research)."""
