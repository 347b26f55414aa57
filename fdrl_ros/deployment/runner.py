# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Starts a node graph as processes where there is no `ros2 launch`, and ends it cleanly."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import time
from typing import NamedTuple, Self

from fdrl_ros.deployment.bringup import BringupSettings, environment, NodeSpec
from fdrl_ros.errors import StoreError

TAIL = 12
"""Lines of a log that a death is reported with."""

_TAIL_BYTES = 16384


@dataclass(frozen=True)
class Death:
    """
    A node that ended without being told to.

    :param code: exit code; negative for a signal.
    :param lines: last lines of its log.
    :param restarted: whether it was started again.
    """

    label: str
    code: int
    lines: tuple[str, ...]
    restarted: bool

    def __str__(self) -> str:
        """Tell it in one line, then what the node said last."""
        cause = signal.Signals(-self.code).name if self.code < 0 else f'exit code {self.code}'
        after = ', started again' if self.restarted else ''
        return '\n  '.join((f'{self.label} ended by {cause}{after}; it said last:', *self.lines))


class _Process(NamedTuple):
    spec: NodeSpec
    popen: subprocess.Popen[bytes]
    restarts: int = 0


def command(spec: NodeSpec) -> list[str]:
    """Return what starts a node: its module in this interpreter, nothing of the working folder."""
    words = [sys.executable, '-P', '-m', 'fdrl_ros.nodes', spec.executable, '--ros-args']
    words += ['-r', f'__ns:={spec.namespace}', '-r', f'__node:={spec.name}']
    for name, value in spec.parameters.items():
        # JSON is YAML, and a string in quotes stays a string.
        words += ['-p', f'{name}:={json.dumps(value)}']
    # Last, so that what the site says counts: above all that an arm is not armed.
    if spec.parameter_file:
        words += ['--params-file', spec.parameter_file]
    return words


class Runner:
    """
    The processes of a graph, each in a process group of its own with a log file.

    Use it in a `with`: leaving it ends them all. If this process itself is killed, the nodes
    notice and end too.
    """

    def __init__(
        self,
        settings: BringupSettings,
        log: Path,
        *,
        restarts: int = 0,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """
        Prepare; nothing runs yet.

        :param log: directory of the log files.
        :param restarts: how often a node that died is started again.
        :param variables: further environment variables of the nodes.
        """
        self._settings = settings
        self._log = log
        self._restarts = restarts
        self._variables = dict(variables or {})
        self._processes: dict[str, _Process] = {}

    def __enter__(self) -> Self:
        """Do nothing: nodes begin with :meth:`start`."""
        return self

    def __exit__(self, *unused: object) -> None:
        """End all nodes."""
        self.stop()

    @property
    def running(self) -> tuple[str, ...]:
        """Labels of the nodes that run."""
        return tuple(label for label, one in self._processes.items() if one.popen.poll() is None)

    def start(self, specs: Iterable[NodeSpec]) -> None:
        """
        Start nodes; more may follow later.

        :raises StoreError: if a log file cannot be written.
        """
        for spec in specs:
            self._processes[spec.label] = _Process(spec, self._open(spec))

    def log_file(self, label: str) -> Path:
        """Return the log file of a node."""
        return self._log / f'{label}.log'

    def process_id(self, label: str) -> int:
        """Return the process of a node."""
        return self._processes[label].popen.pid

    def poll(self) -> list[Death]:
        """Look who died since the last call, and start again whom the policy allows."""
        deaths = []
        for label, (spec, popen, restarts) in list(self._processes.items()):
            code = popen.poll()
            if code is None:
                continue
            # Before its successor: whatever it started must not go on beside that.
            _kill_group(popen.pid)
            again = restarts < self._restarts
            deaths.append(Death(label, code, tail(self.log_file(label)), again))
            if again:
                self._processes[label] = _Process(spec, self._open(spec), restarts + 1)
            else:
                del self._processes[label]
        return deaths

    def stop(self, grace: float = 15.0) -> dict[str, int]:
        """
        End all nodes: SIGINT, and SIGKILL for their whole groups after a time.

        :param grace: time to end by themselves, second.
        :returns: exit code by label.
        """
        for process in self._processes.values():
            process.popen.send_signal(signal.SIGINT)
        deadline = time.monotonic() + grace
        codes = {}
        for label, process in self._processes.items():
            try:
                codes[label] = process.popen.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _kill_group(process.popen.pid)
                codes[label] = process.popen.wait()
        self._processes.clear()
        return codes

    def _open(self, spec: NodeSpec) -> subprocess.Popen[bytes]:
        variables = {
            **os.environ,
            **environment(self._settings, spec.domain),
            'ROS_LOG_DIR': str(self._log / 'ros'),
            **self._variables,
        }
        try:
            with self.log_file(spec.label).open('ab') as log:
                return subprocess.Popen(
                    command(spec),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=variables,
                    start_new_session=True,
                )
        except OSError as error:
            raise StoreError(f'cannot start {spec.label}: {error}') from error


def tail(path: Path, lines: int = TAIL) -> tuple[str, ...]:
    """Return the last lines of a log file; none if it cannot be read."""
    try:
        with path.open('rb') as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode('utf-8', 'replace')
    except OSError:
        return ()
    return tuple(text.splitlines()[-lines:])


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
