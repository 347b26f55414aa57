# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The launchers of a launch file, `ros2 launch` and `fdrl launch`, behind one interface."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
import importlib.util
import os
from pathlib import Path
import shutil
import signal
import subprocess
import sys
import time

from fdrl_ros.resources import resource
import pytest
from support.orphans import descendants


@dataclass
class Launched:
    """
    A launch that runs.

    :param output: file with what the launcher says.
    :param logs: folder with what the nodes say; None if the launcher says it too.
    """

    process: subprocess.Popen[bytes]
    output: Path
    logs: Path | None

    @property
    def said(self) -> str:
        """What the launcher said so far."""
        return self.output.read_text('utf-8', 'replace')

    @property
    def nodes_said(self) -> str:
        """What the nodes said so far."""
        if self.logs is None:
            return self.said
        files = sorted(self.logs.glob('*.log'))
        return '\n'.join(each.read_text('utf-8', 'replace') for each in files)

    def nodes(self) -> dict[str, int]:
        """Return the processes of nodes that run, by the labels of their specs."""
        found = {}
        for each in descendants(self.process.pid):
            try:
                words = Path(f'/proc/{each}/cmdline').read_text().split('\0')
            except OSError:
                continue  # it has just ended
            given = dict(word.split(':=', 1) for word in words if ':=' in word)
            if '__ns' in given:
                found[f'{given["__ns"].strip("/")}.{given["__node"]}'] = each
        return found

    def kill(self, node: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a node a signal, and wait for its end."""
        process = os.pidfd_open(self.nodes()[node])
        signal.pidfd_send_signal(process, number)
        self.until(lambda: node not in self.nodes())
        os.close(process)

    def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until a condition holds while the launcher runs; else show what was said."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline or self.process.poll() is not None:
                said = f'{self.said}\n{self.nodes_said}'
                pytest.fail(f'not within {seconds} s, {self.process.poll()}:\n{said}')
            time.sleep(0.02)

    def until_said(self, words: str, count: int = 1, seconds: float = 60.0) -> None:
        """Wait until the nodes said something so many times."""
        self.until(lambda: self.nodes_said.count(words) >= count, seconds)

    def end(self, number: signal.Signals = signal.SIGINT, seconds: float = 40.0) -> int:
        """End the launcher by a signal, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(seconds)


@dataclass(frozen=True)
class Launcher:
    """
    What starts a launch file.

    :param command: that the file and its arguments follow.
    :param suffix: of the file.
    """

    name: str
    command: tuple[str, ...]
    suffix: str = ''

    def words(self, file: str, **arguments: object) -> list[str]:
        """Return the words of a command line."""
        path = str(resource(f'launch/{file}{self.suffix}')) if self.suffix else file
        given = [f'{name}:={value}' for name, value in arguments.items()]
        return [*self.command, path, *given]

    def refuse(self, file: str, **arguments: object) -> str:
        """Return the one line by which a launch ends with exit code 1 and starts nothing."""
        out = {'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT}
        done = subprocess.run(self.words(file, **arguments), **out, text=True, timeout=60)
        assert done.returncode == 1 and 'started' not in done.stdout, done.stdout
        lines = [each for each in done.stdout.splitlines() if not each.startswith('[INFO]')]
        (line,) = lines
        return line

    @contextmanager
    def start(self, folder: Path, file: str, **arguments: object) -> Iterator[Launched]:
        """
        Start a launch file, and end it at the end of the `with` if it runs on.

        :param folder: for the output.
        """
        path = folder / f'{self.name.partition(" ")[0]}.txt'
        logs = None if self.suffix else Path(str(arguments['directory']), 'log')
        with path.open('wb') as output:
            process = subprocess.Popen(
                self.words(file, **arguments),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield Launched(process, path, logs)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(40)
                except subprocess.TimeoutExpired:
                    process.kill()


LAUNCHERS = [Launcher('fdrl launch', (sys.executable, '-m', 'fdrl_ros', 'launch'))]
"""Those that this machine has: `ros2 launch` where ROS 2 is installed from packages."""

if importlib.util.find_spec('ros2launch') and shutil.which('ros2'):
    LAUNCHERS.append(Launcher('ros2 launch', ('ros2', 'launch'), '.launch.py'))
