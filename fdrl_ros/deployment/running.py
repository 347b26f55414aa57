# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Where a federation runs now, for programs that look on; and the page that looks on by itself."""

from collections.abc import Callable
from contextlib import suppress
import json
import os
import socket
import subprocess
import sys
import threading
from typing import Any, Final

from fdrl_ros.deployment.bringup import BringupSettings
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.closeable import Closeable
from fdrl_ros.runtime.durable import write_whole
from fdrl_ros.runtime.orphans import LAUNCHER

RUNNING: Final = 'running.json'
"""File in a federation's directory with the domains that it last ran in."""

PAGE_PORT: Final = 8765
"""Where the page is unless told otherwise."""

_FIELDS: Final = ('federation_domain', 'robot_domain', 'namespace')
_ENDING = 10.0  # s that the page has to end


def note_running(layout: Layout, settings: BringupSettings) -> None:
    """
    Write down where a federation runs.

    :raises StoreError: if it cannot be written.
    """
    told = {name: getattr(settings, name) for name in _FIELDS}
    write_whole(layout.directory / RUNNING, json.dumps(told).encode())


def where_running(layout: Layout) -> dict[str, Any]:
    """
    Return the settings with which a federation last ran here; none if nobody wrote them down.

    :returns: domains and namespace, by the names of :class:`BringupSettings`.
    """
    with suppress(OSError, ValueError, TypeError, SettingError):
        told = json.loads((layout.directory / RUNNING).read_text('utf-8'))
        found = {name: told[name] for name in _FIELDS if name in told}
        BringupSettings.from_mapping(found)
        return found
    return {}


class PageProcess(Closeable):
    """
    `fdrl watch` in a process of its own, which ends with this object or with its launcher.

    Whatever happens to it, who starts it goes on.

    :param layout: of the federation.
    :param say: told what it prints: its address and a link, or why it could not begin.
    """

    def __init__(self, layout: Layout, say: Callable[[str], None], port: int = PAGE_PORT) -> None:
        words = ['watch', '--directory', str(layout.directory)]
        words += ['--port', str(port if _is_free(port) else 0), '--link-minutes', '60']
        self._process = subprocess.Popen(
            [sys.executable, '-P', '-m', 'fdrl_ros', *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, LAUNCHER: str(os.getpid()), 'PYTHONUNBUFFERED': '1'},
            start_new_session=True,
        )
        self._say = say
        self._thread = threading.Thread(target=self._read, name='page', daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip():
                self._say(line.rstrip())

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(_ENDING)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(('127.0.0.1', port))
        except OSError:
            return False
    return True
