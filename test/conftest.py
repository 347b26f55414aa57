# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Every test run has two ROS domains of its own, one thread, and its files in memory."""

from collections.abc import Iterator
import gc
import os
from pathlib import Path
import shutil
import socket

from fdrl_ros.deployment.bringup import BringupSettings, middleware
import pytest

# Domains up to 101 keep Fast DDS below Linux's ephemeral ports. A bound port is the reservation,
# so it ends with the process however that ends.
DOMAINS = range(1, 102)
HIGH_DOMAINS = range(215, 233)  # above the ephemeral ports, up to the last that Fast DDS has
FIRST_PORT = 22119

_reservations: list[socket.socket] = []

# Temporary files lie in memory where it has room: tests sync thousands of small files, and a disk
# takes milliseconds for each.
MEMORY = Path('/dev/shm')
ROOM = 2 * 1024**3


def _reserve_domain(domains: range = DOMAINS) -> int:
    """Return a domain that no other test run on this machine has."""
    for offset in range(len(domains)):
        domain = domains[(os.getpid() + offset) % len(domains)]
        port = socket.socket()
        try:
            port.bind(('127.0.0.1', FIRST_PORT + domain))
        except OSError:
            port.close()
            continue
        _reservations.append(port)
        return domain
    raise pytest.UsageError('every ROS domain of this machine is taken by another test run')


def _can_hold_files(folder: Path) -> bool:
    """Tell whether tests may write there, load what they compiled, and find room."""
    return (
        os.access(folder, os.W_OK)
        and not os.statvfs(folder).f_flag & os.ST_NOEXEC
        and shutil.disk_usage(folder).free > ROOM
    )


def pytest_configure(config: pytest.Config) -> None:
    """Isolate before any module can import rclpy or numpy."""
    gc.disable()  # while tests are collected
    os.environ['ROS_DOMAIN_ID'] = str(_reserve_domain())
    os.environ.setdefault('OMP_NUM_THREADS', '1')
    os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
    os.environ.update(middleware(BringupSettings()))
    if _can_hold_files(MEMORY):
        os.environ.setdefault('PYTEST_DEBUG_TEMPROOT', str(MEMORY))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let no garbage collection look at modules again: they stay to the end."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Give the domains back."""
    while _reservations:
        _reservations.pop().close()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Pass a folder whose every module was skipped, each with its reason."""
    reporter = session.config.pluginmanager.get_plugin('terminalreporter')
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and reporter.stats.get('skipped'):
        session.exitstatus = pytest.ExitCode.OK


@pytest.fixture(scope='session')
def federation_domain() -> int:
    """Domain of the federation's topics in this run."""
    return int(os.environ['ROS_DOMAIN_ID'])


@pytest.fixture
def lone_domain() -> Iterator[int]:
    """
    Domain that one test alone has.

    For nodes made in this very process: rclpy's lifecycle services hold them for good, so they
    stay announced after their end, and a later test would call a node that never answers.
    """
    yield _reserve_domain()


@pytest.fixture(scope='session')
def robot_domain() -> Iterator[int]:
    """Domain of a robot's topics in this run, another than the federation's."""
    yield _reserve_domain()


@pytest.fixture
def high_domain() -> Iterator[int]:
    """Domain of a robot's topics whose ports lie above the ephemeral ones."""
    yield _reserve_domain(HIGH_DOMAINS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Try a test over DDS again when it fails: discovery and start-up are at the machine's mercy.

    A test that fails twice in a row has not lost a race.
    """
    if not config.pluginmanager.hasplugin('rerunfailures'):
        return
    for item in items:
        if {'node', 'launch'} & set(item.path.parts):
            item.add_marker(pytest.mark.flaky(reruns=1))
