# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Where a federation runs now, and programs that look on beside it: the page, and recorders."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
import json
import os
from pathlib import Path
import socket
import subprocess
import sys
import threading
from typing import Any, Final

from fdrl_ros.deployment.bringup import BringupSettings, environment
from fdrl_ros.deployment.interfaces import WATCH
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.closeable import Closeable
from fdrl_ros.runtime.durable import write_whole
from fdrl_ros.runtime.orphans import LAUNCHER
from fdrl_ros.settings import setting, Settings

RUNNING: Final = 'running.json'
"""File in a federation's directory with the domains that it runs in."""

PAGE_PORT: Final = 8765
"""Where the page is unless told otherwise."""

_FIELDS: Final = ('federation_domain', 'robot_domain', 'namespace')
_ENDING = 10.0  # s that a companion has to end


@contextmanager
def noted_running(layout: Layout, settings: BringupSettings) -> Iterator[None]:
    """
    Write down where a federation runs while it does.

    :raises StoreError: if it cannot be written.
    """
    told = {name: getattr(settings, name) for name in _FIELDS}
    path = layout.directory / RUNNING
    write_whole(path, json.dumps(told).encode())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def where_running(layout: Layout) -> dict[str, Any]:
    """
    Return the settings with which a federation runs here; none if nobody wrote them down.

    :returns: domains and namespace, by the names of :class:`BringupSettings`.
    """
    with suppress(OSError, ValueError, TypeError, SettingError):
        told = json.loads((layout.directory / RUNNING).read_text('utf-8'))
        found = {name: told[name] for name in _FIELDS if name in told}
        BringupSettings.from_mapping(found)
        return found
    return {}


@dataclass(frozen=True)
class PageArguments(Settings):
    """Whether a launch file serves a page, and where."""

    page: bool = setting(
        False, 'serve a page of it on this host alone; its link is printed (`fdrl watch`)'
    )
    page_port: int = setting(PAGE_PORT, 'port of the page; 0 for a free one', limits=(0, 65535))


def page_words(
    settings: BringupSettings, port: int, robots: Iterable[str] = (), *further: str
) -> list[str]:
    """
    Return the words after `fdrl` that serve a page of a federation.

    :param settings: where it runs.
    :param robots: that are shown; none: those of the directory.
    :param further: words of `fdrl watch`.
    """
    words = ['watch', '--directory', settings.directory, '--port', str(port)]
    words += ['--federation-domain', str(settings.federation_domain)]
    words += ['--domain', str(settings.robot_domain), '--hosts', settings.hosts]
    words += ['--namespace', settings.namespace]
    for each in robots:
        words += ['--robot', each]
    return [*words, *further]


def record_words(settings: BringupSettings, robot: str, bag: Path, operations: int) -> list[str]:
    """Return the words after `fdrl` that record so many operations of a robot in a new bag."""
    words = ['record', str(bag), '--robot', robot, '--operations', str(operations)]
    words += ['--domain', str(settings.robot_domain), '--hosts', settings.hosts]
    return [*words, '--namespace', settings.namespace]


def companion_variables() -> dict[str, str]:
    """Return the environment variables that a companion of this process runs with."""
    return {LAUNCHER: str(os.getpid()), 'PYTHONUNBUFFERED': '1'}


def page_variables(settings: BringupSettings) -> dict[str, str]:
    """Return the environment variables that the page runs with."""
    variables = companion_variables()
    if settings.security:
        variables |= environment(settings, settings.federation_domain)
        variables['ROS_SECURITY_ENCLAVE_OVERRIDE'] = f'/{WATCH}'
    return variables


def free_page_port(port: int = PAGE_PORT) -> int:
    """Return a port of loopback if it is free, else 0, which has one chosen."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(('127.0.0.1', port))
        except OSError:
            return 0
    return port


class Companion(Closeable):
    """
    A command of `fdrl` in a process of its own, which ends with this object or with its launcher.

    Whatever happens to it, who starts it goes on.

    :param words: after `fdrl`, such as those of :func:`page_words`.
    :param say: told each line that it prints, such as a link, or why it cannot begin.
    """

    def __init__(
        self, words: Sequence[str], variables: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self._say, self._ending = say, False
        self.spoke = threading.Event()
        """Set once it has said something, or has ended."""
        self._process = subprocess.Popen(
            [sys.executable, '-P', '-m', 'fdrl_ros', *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **variables},
            start_new_session=True,
        )
        self._thread = threading.Thread(target=self._read, name=words[0], daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() and not self._ending:
                self._say(line.rstrip())
                self.spoke.set()
        self._process.wait()
        self.spoke.set()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it."""
        self._ending = True
        self._process.terminate()
        try:
            self._process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(_ENDING)
