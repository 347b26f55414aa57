# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The file in a directory of results that holds the command which measured them."""

from pathlib import Path

COMMAND = 'command.txt'


def command_of(directory: Path, usual: str) -> str:
    """
    Return the command that made a directory, as it was typed.

    :param usual: what it is if nobody noted it.
    """
    try:
        return (directory / COMMAND).read_text('utf-8').strip() or usual
    except (OSError, ValueError):
        return usual
