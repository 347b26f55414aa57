# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Starts a node by name, and ends quietly when told to before it is there."""

from importlib import import_module
import os
import signal
from typing import Any


def start(name: str) -> int:
    """
    Import a node's module, which takes seconds, and run it.

    Nothing is open yet while it is imported: SIGINT and SIGTERM then end the process at once.

    :param name: of the module in fdrl_ros.nodes.
    :returns: exit code.
    """

    def leave(number: int, frame: Any) -> None:
        # Not by an exception: imported foreign code could turn it into another.
        os._exit(0)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, leave)
    code: int = import_module(f'fdrl_ros.nodes.{name}').main()
    return code
