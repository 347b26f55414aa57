# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The tasks of the procedures: way, end, reward and expert of each."""

DEFAULT_PROCEDURES = ('palpation', 'retraction')
"""What is done where nobody says what; the shipped federation trains these two."""
