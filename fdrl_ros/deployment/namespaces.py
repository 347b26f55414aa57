# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""ROS namespaces: of a federation, of its servers, and of who lives beside them."""

import re
from typing import Final

from fdrl_ros.errors import SettingError

FEDERATION: Final = 'federation'
"""Namespace of the servers and of the federation's topics, beside those of the other parties."""

LONGEST = 200
"""Most letters of a namespace; the middleware takes 255 in a whole name of a topic."""

_WORD = '[A-Za-z_][A-Za-z0-9_]*'
_LEGAL = re.compile(f'/|/?{_WORD}(/{_WORD})*')


def check_namespace(setting: str, namespace: str) -> None:
    """
    Refuse what ROS does not take as a namespace; empty is one.

    :param setting: name of the setting that holds it.
    :raises SettingError: if it is illegal.
    """
    if namespace and (len(namespace) > LONGEST or not _LEGAL.fullmatch(namespace)):
        expected = (
            f'a ROS namespace such as /north or north/wing_2, at most {LONGEST} letters: words of '
            'letters, digits and _ that begin with no digit, with one / between them and none '
            'at the end'
        )
        raise SettingError(setting, namespace, expected)


def check_name(setting: str, name: str) -> None:
    """
    Refuse what ROS does not take as one word of a namespace.

    :param setting: name of the setting that holds it.
    :raises SettingError: if it is illegal.
    """
    if len(name) > LONGEST or not re.fullmatch(_WORD, name):
        expected = f'letters, digits and _ that begin with no digit, at most {LONGEST}'
        raise SettingError(setting, name, expected)


def absolute(*parts: str) -> str:
    """Join parts of a name; empty ones count for nothing."""
    return '/' + '/'.join(filter(None, (each.strip('/') for each in parts)))


def beside(namespace: str, other: str) -> str:
    """
    Return the namespace that lies beside another.

    :param namespace: absolute.
    :param other: relative to the parent of `namespace`, or absolute.
    """
    return other if other.startswith('/') else absolute(namespace.rpartition('/')[0], other)
