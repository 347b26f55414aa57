# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The file in a directory of results that holds the command which measured them."""

from collections.abc import Iterable
from pathlib import Path
import re

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


def without_secrets(text: str) -> str:
    """Return a text whose addresses have no user name and no password."""
    return re.sub(r'(?<=://)[^/\s]*@', '', text)


def public_words(words: Iterable[str]) -> list[str]:
    """Return the words of a command without passwords, and without the places of records."""
    found: list[str] = []
    for word in words:
        if found and found[-1] == '--records':
            word = _without_path(word)
        elif word.startswith('--records='):
            word = '--records=' + _without_path(word.removeprefix('--records='))
        found.append(without_secrets(word))
    return found


def _without_path(records: str) -> str:
    """Return HOSPITAL=FILE, whatever the name of the file is."""
    return records.partition('=')[0] + '=FILE'
