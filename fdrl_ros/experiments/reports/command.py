# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The file in a directory of results that holds the command which measured them."""

from collections.abc import Iterable
from pathlib import Path
import re

COMMAND = 'command.txt'

_USER = re.compile(r'(?<=://)[^/?#\s]*@')
_SECRET = re.compile(r'([?&][^=&#\s]*(?:token|password|secret|key)[^=&#\s]*=)[^&#\s]*', re.I)
_RECORDS = '--records'


def without_password(words: str) -> str:
    """Return words with `...` for the users, passwords and tokens of the addresses in them."""
    return _SECRET.sub(r'\1...', _USER.sub('...@', words))


def public_words(words: Iterable[str]) -> list[str]:
    """
    Return the words of a command without passwords and the places of patients' records.

    :param words: such as `--mlflow https://anna:secret@host --records hospital_1=/clinic/a.h5`.
    :returns: such as `--mlflow https://...@host --records hospital_1=...`.
    """
    found: list[str] = []
    for word in map(without_password, words):
        flag, given, value = word.partition('=')
        if found and found[-1] == _RECORDS:
            found.append(f'{flag}=...' if given else '...')
        elif given and flag == _RECORDS:
            found.append(
                f'{flag}={value.partition("=")[0]}=...' if '=' in value else f'{flag}=...'
            )
        else:
            found.append(word)
    return found


def command_of(directory: Path, usual: str) -> str:
    """
    Return the command that made a directory, as it was typed.

    :param usual: what it is if nobody noted it.
    """
    try:
        return (directory / COMMAND).read_text('utf-8').strip() or usual
    except (OSError, ValueError):
        return usual
