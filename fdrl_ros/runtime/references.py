# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Classes and functions that a user names: ``path/to/file.py:Name`` or ``package.module:Name``."""

import hashlib
from importlib import import_module
from pathlib import Path
import sys
import traceback
from types import ModuleType

from fdrl_ros.errors import PluginError


def load_reference(text: str) -> object:
    """
    Import what a reference names.

    A file is run once a process, however often it is referred to, and again when it changes; it
    must not have the name of a module that it imports. What it defines can be pickled for another
    process only where that one loads the same reference first.

    :param text: ``path/to/file.py:Name`` or ``package.module:Name``.
    :raises PluginError: if the file or module is missing, cannot be imported (with the file
        and the line), or has no such name.
    """
    place, _, name = text.rpartition(':')
    if not place or not name:
        raise PluginError(text, 'expected file.py:Name or package.module:Name')
    module = _from_file(text, Path(place)) if place.endswith('.py') else _imported(text, place)
    found: object = module
    for part in name.split('.'):
        if not hasattr(found, part):
            public = ', '.join(each for each in vars(module) if not each.startswith('_'))
            raise PluginError(text, f'{place} has no {name!r}: it has {public or "nothing"}')
        found = getattr(found, part)
    return found


def absolute_reference(text: str) -> str:
    """Return a reference to a file with the file's whole path; others as they are."""
    place, colon, name = text.rpartition(':')
    return f'{Path(place).absolute()}:{name}' if colon and place.endswith('.py') else text


def reference_digest(text: str) -> bytes:
    """
    Return the SHA-256 of the file that a reference names, 32 bytes; b'' for a module's.

    :raises PluginError: if the file cannot be read.
    """
    place, _, _ = text.rpartition(':')
    if not place.endswith('.py'):
        return b''
    return hashlib.sha256(_source(text, Path(place))).digest()


def _source(text: str, path: Path) -> bytes:
    """Return the content of a reference's file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise PluginError(text, f'{path.absolute()}: {error.strerror or error}') from error


def _from_file(text: str, path: Path) -> ModuleType:
    """Run a file as a module of its own; one content at one place is one module."""
    content = _source(text, path)
    words = str(path.resolve()).encode() + b'\0' + content
    name = f'fdrl_ros_reference_{path.stem}_{hashlib.sha256(words).hexdigest()[:16]}'
    if name in sys.modules:
        return sys.modules[name]
    module = sys.modules[name] = ModuleType(name)  # dataclasses look their module up
    module.__file__ = str(path)
    try:
        # Compiled from the very bytes of the digest: Python's cache goes by seconds.
        exec(compile(content, str(path), 'exec'), vars(module))
    except Exception as error:  # whatever a user's file raises
        del sys.modules[name]
        raise PluginError(text, _said(error, str(path))) from error
    return module


def _imported(text: str, place: str) -> ModuleType:
    """Import a module by its dotted name."""
    try:
        return import_module(place)
    except Exception as error:  # whatever a user's module raises
        raise PluginError(text, _said(error, place.replace('.', '/'))) from error


def _said(error: Exception, place: str) -> str:
    """Return what an import raised, with the last line of the user's own code that it ran."""
    if isinstance(error, SyntaxError):
        return f'{error.filename} line {error.lineno}: {error.msg}'
    frames = [each for each in traceback.extract_tb(error.__traceback__) if place in each.filename]
    where = f'{frames[-1].filename} line {frames[-1].lineno}: ' if frames else ''
    return f'{where}{type(error).__name__}: {error}'
