# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""PyBullet without its greeting: it prints its build date through C when it is imported."""

from collections.abc import Iterator
from contextlib import contextmanager
import ctypes
import importlib
import os
import sys
import tempfile
from typing import Any

_GREETING = b'pybullet build time'


@contextmanager
def without_greeting(descriptor: int) -> Iterator[None]:
    """Hold back what is written to a descriptor, then write all of it but the greeting."""
    try:
        kept = os.dup(descriptor)
    except OSError:  # closed: nobody is greeted
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), descriptor)
        try:
            yield
        finally:
            os.dup2(kept, descriptor)
            os.close(kept)
            held.seek(0)
            rest = b''.join(each for each in held if not each.startswith(_GREETING))
            if rest:
                os.write(descriptor, rest)


def _import_quietly() -> Any:
    """Import PyBullet; what else it or the system says of that is passed on."""
    flush = ctypes.CDLL(None).fflush
    for each in (sys.stdout, sys.stderr):
        if each is not None:
            each.flush()
    flush(None)
    with without_greeting(1), without_greeting(2):
        try:
            return importlib.import_module('pybullet')
        finally:
            flush(None)


pybullet: Any = sys.modules.get('pybullet') or _import_quietly()
