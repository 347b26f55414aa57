# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The command line: parse, call the library, print."""

from fdrl_ros.runtime.early_interrupt import quietly_stopped
from fdrl_ros.runtime.environment_variables import take_one_thread

take_one_thread()  # before the rest, which brings numpy

with quietly_stopped():
    from fdrl_ros.cli.commands import main

__all__ = ['main']
