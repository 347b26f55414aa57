# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
PyBullet without its greeting and with clients that cannot be mixed up.

PyBullet prints its build date through C when it is imported. It reuses the numbers of its
clients, so an old number may sooner or later be another client's.
"""

from collections.abc import Iterator
from contextlib import contextmanager, ExitStack
import ctypes
import importlib
import os
from pathlib import Path
import sys
import tempfile
from typing import Any
import weakref

from fdrl_ros.errors import os_errors_as, ResourceError, StateError

_GREETING = b'pybullet build time'


@contextmanager
def without_greeting(descriptor: int) -> Iterator[None]:
    """Hold back what is written to a descriptor, then write all of it but the greeting."""
    try:
        kept = os.dup(descriptor)
    except OSError:  # closed: nobody is greeted
        yield
        return
    with ExitStack() as stack:
        try:
            held = stack.enter_context(tempfile.TemporaryFile())
        except OSError:  # no temporary space: the greeting is shown
            os.close(kept)
            yield
            return
        os.dup2(held.fileno(), descriptor)
        try:
            yield
        finally:
            os.dup2(kept, descriptor)
            os.close(kept)
            held.seek(0)
            rest = b''.join(line for line in held if not line.startswith(_GREETING))
            if rest:
                os.write(descriptor, rest)


def _import_quietly() -> Any:
    """Import PyBullet; what else it or the system says of that is passed on."""
    flush = ctypes.CDLL(None).fflush
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    flush(None)
    with without_greeting(1), without_greeting(2):
        try:
            return importlib.import_module('pybullet')
        finally:
            flush(None)


pybullet: Any = sys.modules.get('pybullet') or _import_quietly()


class _ClosedClient:
    """Stands in for the number of a client that was given back; PyBullet cannot convert it."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def __index__(self) -> int:
        raise StateError.closed(self._owner)


class PhysicsClient:
    """
    A PyBullet client without a display that holds one robot.

    :param owner: what holds the client, for messages.
    :raises ResourceError: if PyBullet has no client left.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.client: Any = pybullet.connect(pybullet.DIRECT)
        """Number of the client; once closed, something that raises when PyBullet gets it."""
        if self.client < 0:
            raise ResourceError('PyBullet gives no further client: close unused envs and pictures')
        self._disconnect = weakref.finalize(self, pybullet.disconnect, self.client)

    def load(self, description: str, path: Path, **options: object) -> int:
        """
        Load a URDF and return the number of its body; close the client if that fails.

        :param path: of the file that the description comes from, for messages.
        :param options: of PyBullet's loadURDF.
        :raises ResourceError: if PyBullet refuses the description.
        """
        with ExitStack() as stack:
            words = 'no temporary space for the arm that PyBullet reads (set TMPDIR)'
            with os_errors_as(ResourceError, words):
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                file = Path(folder) / 'robot.urdf'
                file.write_text(description, 'utf-8')
            try:
                body: int = pybullet.loadURDF(
                    str(file), useFixedBase=True, physicsClientId=self.client, **options
                )
            except pybullet.error as problem:
                self.close()
                raise ResourceError(f'{path}: PyBullet cannot load the arm: {problem}') from None
        return body

    def close(self) -> None:
        """Disconnect the client, once."""
        self._disconnect()
        self.client = _ClosedClient(self._owner)
