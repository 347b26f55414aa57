# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The tasks of the procedures: way, end, reward and expert of each."""

DEFAULT_PROCEDURES = ('palpation', 'retraction')
"""What a cohort or an env does where nobody says what; a federation does all there are."""
