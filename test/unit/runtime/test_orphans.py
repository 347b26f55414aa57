# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who loses its launcher ends, whatever it does just then."""

import os
from pathlib import Path
import select
import subprocess
import sys

from fdrl_ros.runtime.orphans import LAUNCHER
import pytest
from support.orphans import ended, watched

LAUNCHES = """
import os, subprocess, sys
os.environ['FDRL_PARENT'] = str(os.getpid())
subprocess.run([*{prefix!r}, sys.executable, '-c', {program!r}])
"""
BEGINS = """
import ctypes, os, pathlib, signal, sys
from fdrl_ros.runtime.orphans import end_with_launcher

def asked(number, frame):
    {asked}

signal.signal(signal.SIGTERM, asked)
end_with_launcher()
pathlib.Path({gate!r}).write_text(str(os.getpid()))
while True:
    signal.pause()
"""
ASKED = {
    'goes': 'sys.exit()',
    'does not listen': 'pass',
    'is in foreign code that keeps the lock': 'ctypes.PyDLL(None).sleep(60)',
}


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Return the pipe through which a process says who it is."""
    os.mkfifo(tmp_path / 'gate')
    return tmp_path / 'gate'


def announced(gate: Path, starter: subprocess.Popen) -> int:
    """Return the number that a process writes into the gate; fail if its starter ends before."""
    listening, ending = os.open(gate, os.O_RDWR), os.pidfd_open(starter.pid)
    try:
        ready, _, _ = select.select([listening, ending], [], [])
        assert listening in ready, 'the starter ended before anything was announced'
        return int(os.read(listening, 100))
    finally:
        os.close(listening)
        os.close(ending)


@pytest.mark.parametrize(
    ('asked', 'prefix'),
    [*((each, []) for each in ASKED), ('does not listen', ['sh', '-c', '"$0" "$@"; true'])],
)
def test_process_ends_with_its_launcher(gate, asked, prefix):
    program = BEGINS.format(gate=str(gate), asked=ASKED[asked])
    launches = LAUNCHES.format(prefix=prefix, program=program)
    with subprocess.Popen([sys.executable, '-c', launches]) as launcher:
        with watched([announced(gate, launcher)]) as orphans:
            launcher.kill()
            assert ended(orphans)


def test_process_whose_launcher_is_gone_already_says_so_and_ends():
    gone = subprocess.Popen([sys.executable, '-c', ''])
    gone.wait()
    for launcher in (str(gone.pid), 'nobody'):
        done = subprocess.run(
            [sys.executable, '-m', 'fdrl_ros.nodes', 'env'],
            env={**os.environ, LAUNCHER: launcher},
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 1 and done.stderr.count('\n') == 1
        assert done.stderr.startswith(f'FDRL_PARENT = {launcher!r}: expected the process')


COMPUTES = """
import os, pathlib, signal

def compute(gate, **_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pathlib.Path(gate).write_text(str(os.getpid()))
    while True:
        signal.pause()
"""
STARTS = {
    'elsewhere': """
from fdrl_ros.runtime.subprocess_runner import run_elsewhere
from computes import compute
run_elsewhere(compute, ({gate!r},), lambda: False)
""",
    'workers': """
from fdrl_ros.runtime.progress import Caller
from fdrl_ros.runtime.worker_processes import run_tasks
from computes import compute
tasks = [({gate!r},), ('/dev/null',)]
run_tasks(compute, tasks, workers=2, caller=Caller(print))
""",
}


@pytest.mark.parametrize('starts', STARTS.values(), ids=STARTS)
def test_computation_ends_with_the_process_that_asked_for_it(gate, tmp_path, starts):
    (tmp_path / 'computes.py').write_text(COMPUTES)
    variables = {**os.environ, 'PYTHONPATH': f'{tmp_path}:{os.environ.get("PYTHONPATH", "")}'}
    program = starts.format(gate=str(gate))
    with subprocess.Popen([sys.executable, '-c', program], env=variables) as asks:
        with watched([announced(gate, asks)]) as orphans:
            asks.kill()
            assert ended(orphans)
