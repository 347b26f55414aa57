# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Messages of other packages, or ours of the same fields where those were not found at build."""

import importlib
from typing import Any, NamedTuple

import fdrl_ros.msg
import fdrl_ros.srv


class Definitions(NamedTuple):
    """
    Where messages and services are taken from.

    :param own: whether that is this package.
    """

    own: bool
    msg: Any
    srv: Any


def definitions(package: str, message: str) -> Definitions:
    """
    Return the modules of a package, or ours in its place.

    :param message: one of its messages, which is ours only where the package was not found.
    """
    if hasattr(fdrl_ros.msg, message):
        return Definitions(True, fdrl_ros.msg, fdrl_ros.srv)
    modules = (importlib.import_module(f'{package}.{kind}') for kind in ('msg', 'srv'))
    return Definitions(False, *modules)
