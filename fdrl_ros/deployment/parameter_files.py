# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Files of ROS parameters: their sections, and for which nodes those are."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
import re
from typing import Any

from fdrl_ros.errors import SettingError
from fdrl_ros.resources import parse_yaml
import yaml

_WILDCARDS = {'*': '/[^/]+', '**': '(/[^/]+)*'}


def sections(path: str) -> list[tuple[str, dict[str, Any]]]:
    """
    Read a file of ROS parameters.

    :returns: full name of a node, maybe with wildcards, and its parameters as they are nested, for
        each section.
    :raises SettingError: if the file cannot be read, or is of another form.
    """
    try:
        return list(_sections(parse_yaml(Path(path).read_text('utf-8')), ''))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = getattr(error, 'strerror', None) or ' '.join(str(error).split())
        expected = f'a readable file of ROS parameters: {reason}'
        raise SettingError('parameters', path, expected) from error


def _sections(values: Any, node: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(values, dict):
        raise ValueError(f'{node or "the file"} has no section ros__parameters')
    for key, value in values.items():
        if key != 'ros__parameters':
            yield from _sections(value, f'{node}/{str(key).strip("/")}')
        elif isinstance(value, dict):
            yield node, value
        else:
            raise ValueError(f'ros__parameters of {node} are no names and values')


def flattened(values: Mapping[str, Any], group: str = '') -> dict[str, Any]:
    """Return nested parameters by their dotted names."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f'{group}.{key}' if group else str(key)
        found |= flattened(value, name) if isinstance(value, dict) else {name: value}
    return found


def may_be_of(section: str, name: str) -> bool:
    """
    Tell whether a section may be for a node.

    :param section: full name of a node, maybe with wildcards.
    :param name: of the node; with its namespace that counts too.
    """
    if '/' in name:
        return _matches(section, name)
    last = section.rpartition('/')[2]
    return last == name or last in _WILDCARDS


def given_by_wildcards(words: Sequence[str], node: str) -> frozenset[str]:
    """
    Return the parameters that only sections for many nodes give to a node.

    Those on the command line itself and in sections with the node's own name are not among them.

    :param words: of the command line.
    :param node: its full name.
    :raises SettingError: if a parameter file on the command line cannot be read.
    """
    for_many: set[str] = set()
    for_it: set[str] = set()
    for flag, value in _parameters_in(words):
        if flag != '--params-file':
            for_it.add(value.partition(':=')[0].rpartition(':')[2])
            continue
        for section, values in sections(value):
            if _matches(section, node):
                by_name = section.rpartition('/')[2] not in _WILDCARDS
                (for_it if by_name else for_many).update(flattened(values))
    return frozenset(for_many - for_it)


def _parameters_in(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the flags of a command line that give parameters, each with what follows it."""
    for_ros = False
    for word, following in zip(words, [*words[1:], ''], strict=True):
        if word in ('--ros-args', '--'):
            for_ros = word == '--ros-args'
        elif for_ros and word in ('-p', '--param', '--params-file'):
            yield word, following


def _matches(section: str, node: str) -> bool:
    parts = section.strip('/').split('/')
    pattern = ''.join(_WILDCARDS.get(each, f'/{re.escape(each)}') for each in parts)
    return re.fullmatch(pattern, node) is not None
