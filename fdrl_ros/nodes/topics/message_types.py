# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Types of messages by their names, and their definitions with all that they are made of."""

from functools import cache
import importlib
from pathlib import Path
import re
from typing import Any

from fdrl_ros.errors import ResourceError, TopicError
from fdrl_ros.resources import PACKAGE, prefixes, resource
from fdrl_ros.surgery.data.bag import TRANSFORMS

# Of TRANSFORMS, the type of /tf, which is often not installed.
_TRANSFORMS = 'geometry_msgs/TransformStamped[] transforms\n'
_NEXT = f'{"=" * 80}\nMSG: '
_FIELD = re.compile(r'^\s*([A-Za-z][\w/]*)(?:<=\d+)?(?:\[[^\]]*\])?\s+[a-z]\w*', re.MULTILINE)
_PRIMITIVE = re.compile(r'(u?int(8|16|32|64)|float(32|64)|bool|byte|char|w?string)$')


def message_type(name: str) -> Any:
    """
    Return the class of a type such as std_msgs/msg/String.

    :raises TopicError: if it is not installed.
    """
    package, _, kind = name.partition('/msg/')
    try:
        return getattr(importlib.import_module(f'{package}.msg'), kind)
    except (ImportError, AttributeError, ValueError) as error:
        raise TopicError(f'messages of type {name} are not installed here') from error


@cache
def schema(name: str) -> str:
    """
    Return the definition of a type, followed by those of all types in it.

    :param name: such as std_msgs/msg/String.
    :raises TopicError: if a definition is not installed.
    """
    found: dict[str, str] = {}
    waiting = [name]
    while waiting:
        each = waiting.pop(0)
        if each not in found:
            found[each] = text = _definition(each)
            waiting += _types_in(text, each.partition('/')[0])
    own = found.pop(name)
    return ''.join((own, *(f'\n{_NEXT}{_short(kind)}\n{text}' for kind, text in found.items())))


def _types_in(text: str, package: str) -> list[str]:
    """Return the names of the types of messages that a definition names."""
    names = []
    for kind in _FIELD.findall('\n'.join(line.partition('#')[0] for line in text.splitlines())):
        if _PRIMITIVE.match(kind):
            continue
        *of, last = kind.replace('/msg/', '/').split('/')
        names.append(f'{of[0] if of else package}/msg/{last}')
    return names


def _definition(name: str) -> str:
    """Return the text of an installed .msg file."""
    if name == TRANSFORMS:
        return _TRANSFORMS
    package, _, kind = name.partition('/msg/')
    tried = [prefix / 'share' / package / 'msg' / f'{kind}.msg' for prefix in prefixes()]
    if package == PACKAGE:
        try:
            tried.insert(0, resource(f'msg/{kind}.msg'))
        except ResourceError:
            pass  # it is not ours, whatever its name
    for path in tried:
        if path.is_file():
            return Path(path).read_text('utf-8')
    raise TopicError(f'the definition of {name} is not installed here')


def _short(name: str) -> str:
    return name.replace('/msg/', '/')
