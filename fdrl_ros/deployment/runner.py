# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Starts a node graph as processes where there is no `ros2 launch`, and ends it cleanly."""

from collections.abc import Callable, Iterable, Mapping
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
from fdrl_ros.deployment.supervision import Ending, RESPAWN_DELAY
from fdrl_ros.errors import FdrlError, StoreError
from fdrl_ros.resources import executable, PACKAGE
from fdrl_ros.runtime.orphans import WITH_LAUNCHER

TAIL = 12
"""Lines of a log that a death is reported with."""

_TAIL_BYTES = 16384


@dataclass(frozen=True)
class Death:
    """
    A node that ended without being told to.

    :param code: exit code; negative for a signal.
    :param lines: the last ones that it wrote since it was started.
    :param restarted: whether it is started again.
    """

    label: str
    code: int
    lines: tuple[str, ...]
    restarted: bool

    def __str__(self) -> str:
        """Tell it and the time in one line, then what the node said last."""
        cause = signal.Signals(-self.code).name if self.code < 0 else f'exit code {self.code}'
        after = f', is started again in {RESPAWN_DELAY:g} s' if self.restarted else ''
        said = '; it said last:' if self.lines else ', and said nothing'
        return '\n  '.join((f'{_now()} {self.label} ended by {cause}{after}{said}', *self.lines))

    def check(self) -> None:
        """
        End what runs the graph if this node cannot begin: it would refuse again.

        :raises FdrlError: naming it.
        """
        if Ending.of(self.code) is Ending.REFUSED:
            reasons = [line for line in self.lines if '[FATAL]' in line] or ['see its log']
            raise FdrlError(f'{self.label} cannot begin: {reasons[-1].rpartition("]: ")[2]}')


class Restart(NamedTuple):
    """A node that died and was started again."""

    label: str

    def __str__(self) -> str:
        """Tell it and the time in one line."""
        return f'{_now()} {self.label} was started again'

    def check(self) -> None:
        """Do nothing: whether it can begin is not known yet."""


class _Process(NamedTuple):
    spec: NodeSpec
    popen: subprocess.Popen[bytes]
    log_start: int  # where its lines begin in the log, bytes


def command(spec: NodeSpec) -> list[str]:
    """
    Return what starts a node.

    One of ours is its module in this interpreter, and nothing of the working folder.

    :raises ResourceError: if the node is of another package, which is not installed.
    """
    if spec.package == PACKAGE:
        words = [sys.executable, '-P', '-m', 'fdrl_ros.nodes', spec.executable]
    else:
        words = [*WITH_LAUNCHER, str(executable(spec.package, spec.executable)), *spec.arguments]
    words += ['--ros-args', '-r', f'__ns:={spec.namespace}', '-r', f'__node:={spec.name}']
    words += ['--enclave', spec.full_name, '--log-level', spec.log_level]
    for before, after in spec.remappings:
        words += ['-r', f'{before}:={after}']
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
        variables: Mapping[str, str] | None = None,
        words: Callable[[NodeSpec], list[str]] | None = None,
    ) -> None:
        """
        Prepare; nothing runs yet.

        :param settings: their `use_respawn` says whether nodes that die are started again.
        :param log: directory of the log files.
        :param variables: further environment variables of the nodes.
        :param words: what starts a node; :func:`command` unless given.
        """
        self._settings = settings
        self._log = log
        self._variables = dict(variables or {})
        self._words = words
        self._processes: dict[str, _Process] = {}
        self._waiting: dict[str, tuple[NodeSpec, float]] = {}  # and when they start, monotonic

    def __enter__(self) -> Self:
        """Do nothing: nodes begin with :meth:`start`."""
        return self

    def __exit__(self, *unused: object) -> None:
        """End all nodes."""
        self.stop()

    @property
    def running(self) -> tuple[str, ...]:
        """Labels of the nodes that run, or will again."""
        alive = (label for label, one in self._processes.items() if one.popen.poll() is None)
        return (*alive, *self._waiting)

    @property
    def done(self) -> bool:
        """Whether :meth:`poll` reported the end of every node, and none is started again."""
        return not self._processes and not self._waiting

    def start(self, specs: Iterable[NodeSpec]) -> None:
        """
        Start nodes; more may follow later.

        :raises StoreError: if a log file cannot be written.
        :raises SettingError: if security is on, and one has no enclave; none is started then.
        """
        specs = tuple(specs)
        self._settings.check_enclaves(specs)
        for spec in specs:
            self._processes[spec.label] = self._open(spec)

    def log_file(self, label: str) -> Path:
        """Return the log file of a node."""
        return self._log / f'{label}.log'

    def process_id(self, label: str) -> int:
        """Return the process of a node."""
        return self._processes[label].popen.pid

    def poll(self) -> list[Death | Restart]:
        """
        Look who ended since the last call, and start again who died, after RESPAWN_DELAY.

        :returns: what happened, each of which a person is told.
        """
        events: list[Death | Restart] = []
        for label, (spec, popen, log_start) in list(self._processes.items()):
            code = popen.poll()
            if code is None:
                continue
            # Before its successor: whatever it started must not go on beside that.
            _kill_group(popen.pid)
            del self._processes[label]
            ending = Ending.of(code, ours=spec.package == PACKAGE)
            again = self._settings.use_respawn and spec.respawn and ending is Ending.DIED
            if again:
                self._waiting[label] = spec, time.monotonic() + RESPAWN_DELAY
            events.append(Death(label, code, tail(self.log_file(label), since=log_start), again))
        for label, (spec, when) in list(self._waiting.items()):
            if time.monotonic() >= when:
                del self._waiting[label]
                self.start([spec])
                events.append(Restart(label))
        return events

    def stop(self, grace: float = 15.0) -> dict[str, int]:
        """
        End all nodes: SIGINT, and SIGKILL for their whole groups after a time.

        :param grace: time to end by themselves, second.
        :returns: exit code by label.
        """
        self._waiting.clear()
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

    def _open(self, spec: NodeSpec) -> _Process:
        variables = {
            **os.environ,
            **environment(self._settings, spec.domain),
            'ROS_LOG_DIR': str(self._log / 'ros'),
            **self._variables,
        }
        try:
            with self.log_file(spec.label).open('ab') as log:
                start = log.tell()
                popen = subprocess.Popen(
                    (self._words or command)(spec),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=variables,
                    start_new_session=True,
                )
                return _Process(spec, popen, start)
        except OSError as error:
            raise StoreError(f'cannot start {spec.label}: {error}') from error


def tail(path: Path, lines: int = TAIL, since: int = 0) -> tuple[str, ...]:
    """
    Return the last lines of a log file that are not empty; none if it cannot be read.

    :param since: byte before which nothing counts.
    """
    try:
        with path.open('rb') as file:
            file.seek(max(since, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode('utf-8', 'replace')
    except OSError:
        return ()
    return tuple(line for line in text.splitlines() if line.strip())[-lines:]


def _now() -> str:
    """Return the time of day, for people."""
    return time.strftime('%H:%M:%S')


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
