# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The launch files start the graph of bringup.py, supervise it, and end with it.

Every launcher that this machine has passes the same tests: `fdrl launch` everywhere, `ros2 launch`
where ROS 2 is installed from packages.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
import os
from pathlib import Path
import shutil
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip('rclpy', reason='ROS 2 is not sourced')
pytest.importorskip('fdrl_ros.msg', reason='the messages are not built')

from fdrl_ros.deployment.launch_files import FILES, graph  # noqa: E402, I100
from fdrl_ros.deployment.security.enclaves import KeystoreSettings, make_keystore  # noqa: E402
from fdrl_ros.deployment.supervision import RESPAWN_DELAY  # noqa: E402
from support.launchers import Launched, Launcher, LAUNCHERS  # noqa: E402
from support.orphans import descendants, ended, watched  # noqa: E402

OPTIONS = [
    '--noise', 'seeded', '--learner-hidden', '8', '--learner-epochs', '1',
    '--privacy-batch', '10', '--privacy-delta', '0.001', '--collection-patients', '30',
    '--pretraining-patients', '10', '--pretraining-steps', '20', '--validation-patients', '3',
    '--validation-margin', '1.0', '--world-mode', 'kinematic',
]  # fmt: skip
UP = 'is in DDS domain'

Start = Callable[..., AbstractContextManager[Launched]]


@pytest.fixture(params=LAUNCHERS, ids=lambda each: each.name)
def launcher(request: pytest.FixtureRequest) -> Launcher:
    """Return each launcher of this machine."""
    found: Launcher = request.param
    return found


@pytest.fixture(scope='module')
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small prepared federation, made by the command that launchers call."""
    path = tmp_path_factory.mktemp('launch') / 'federation'
    command = [sys.executable, '-m', 'fdrl_ros', 'prepare', str(path), '--rounds', '1']
    subprocess.run([*command, *OPTIONS], check=True, timeout=60)
    return path


@pytest.fixture
def directory(prepared: Path, tmp_path: Path) -> Path:
    """Return a prepared directory of the test's own."""
    return Path(shutil.copytree(prepared, tmp_path / 'federation'))


@pytest.fixture
def start(launcher: Launcher, tmp_path: Path, federation_domain: int, robot_domain: int) -> Start:
    """Return what starts a launch file in the domains of this run, without foreign nodes."""

    def begin(file: str, **arguments: object) -> AbstractContextManager[Launched]:
        given: dict[str, object] = {
            'federation_domain': federation_domain,
            'robot_domain': robot_domain,
            **({'description': False} if file in ('federation', 'robot') else {}),
            **arguments,
        }
        return launcher.start(tmp_path, file, **given)

    return begin


def labels(file: str) -> set[str]:
    """Return the labels of the nodes that a launch file starts."""
    return {each.label for each in graph(file, {'description': 'false'})}


@pytest.mark.parametrize('file', FILES)
def test_typing_error_is_refused_before_any_node_starts(launcher, file, tmp_path):
    missing = tmp_path / 'none'
    assert f"parameters = '{missing}'" in launcher.refuse(file, parameters=missing)
    assert "autostrat = 'false'" in launcher.refuse(file, autostrat='false')
    if file != 'federation':
        assert f"directory = '{missing}'" in launcher.refuse(
            file, directory=missing, **({'description': False} if file == 'robot' else {})
        )


def test_unknown_hospital_is_refused_before_any_node_starts(launcher, prepared):
    line = launcher.refuse('hospital', directory=prepared, hospital='hospital_12')
    assert "hospital = 'hospital_12': expected one of the 3 hospitals in the roster" in line


def test_server_starts_what_the_graph_says_and_ends_cleanly(start, directory):
    with start('server', directory=directory) as launched:
        launched.until_said('a new round')
        assert set(launched.nodes()) == labels('server')
        assert launched.end() == 0
        assert 'has died' not in launched.said and 'escalating' not in launched.said


def test_federation_ends_its_rounds_though_a_trainer_is_killed_in_training(start, tmp_path):
    directory = tmp_path / 'federation'
    options = ' '.join([*OPTIONS, '--learner-epochs', '150', '--privacy-budget', '1e6'])
    with start('federation', directory=directory, rounds=1, options=options) as launched:
        launched.until_said('TRAIN', seconds=90.0)
        assert set(launched.nodes()) == labels('federation')
        launched.kill('hospital_2.trainer')
        launched.until_said('all rounds are done', seconds=90.0)
        assert set(launched.nodes()) == labels('federation')
        assert launched.end() == 0


def test_failed_preparation_ends_the_launch_with_its_reason(launcher, tmp_path, federation_domain):
    directory = tmp_path / 'federation'
    arguments = {'directory': directory, 'rounds': 900, 'description': False}
    with launcher.start(tmp_path, 'federation', **arguments) as launched:
        assert launched.process.wait(60) == 1
        assert 'rounds to at most' in launched.said
        assert f'{directory} could not be prepared' in launched.said
        assert not directory.exists()


def test_node_that_cannot_begin_ends_the_launch_with_its_reason(start, directory, tmp_path):
    site = tmp_path / 'site.yaml'
    site.write_text('/**/aggregator: {ros__parameters: {rounds: {quorum: 1}}}')
    with start('server', directory=directory, parameters=site) as launched:
        assert launched.process.wait(60) == 1
        assert 'rounds.quorum = 1: expected a whole number, at least 3' in launched.said
        assert 'federation/aggregator cannot begin' in launched.said.replace('.', '/')


def test_node_that_cannot_be_secured_ends_the_launch_and_runs_nowhere(
    start, directory, federation_domain, robot_domain
):
    domains = {'federation_domain': federation_domain, 'robot_domain': robot_domain}
    make_keystore(directory / 'keys', KeystoreSettings(**domains))
    with start('robot', directory=directory, security=True) as launched:
        launched.until_said('Found security directory')
        while launched.process.poll() is None and UP not in launched.nodes_said:
            time.sleep(0.02)
        if UP not in launched.nodes_said:  # the middleware has no plugin
            assert launched.process.wait(60) == 1
            assert 'have the security libraries' in launched.said


def test_killed_node_comes_back_and_one_that_is_told_to_end_does_not(
    start, directory, high_domain
):
    # A domain above 101 is as good as any.
    with start('robot', directory=directory, robot_domain=high_domain) as launched:
        launched.until_said(f'{UP} {high_domain}', 2)
        launched.kill('robot_1.env', signal.SIGTERM)
        launched.kill('robot_1.selector')
        launched.until(lambda: 'robot_1.selector' in launched.nodes())
        assert set(launched.nodes()) == {'robot_1.selector'}, 'it died later, and is back already'
        assert launched.end() == 0


def test_node_that_dies_stays_dead_where_nobody_wants_it_back(start, directory):
    with start('server', directory=directory, use_respawn=False) as launched:
        launched.until_said(UP, 2)
        launched.kill('federation.aggregator')
        launched.kill('federation.key_authority')
        launched.process.wait(20)
        assert launched.nodes_said.count(UP) == 2


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGKILL])
def test_nodes_end_with_the_launcher_and_none_comes_back(start, directory, number):
    with start('robot', directory=directory) as launched:
        launched.until_said(UP, 2)
        launched.kill('robot_1.selector')  # it would be started again while the launcher ends
        with watched(descendants(launched.process.pid)) as orphans:
            assert orphans
            launched.end(number)
            assert ended(orphans)
    assert not list(children_of(launched.process.pid, RESPAWN_DELAY))


def children_of(launcher: int, seconds: float) -> Iterator[int]:
    """Yield processes that name an ended launcher, looking for so long."""
    mark = f'FDRL_PARENT={launcher}'.encode()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for each in filter(str.isdigit, os.listdir('/proc')):
            try:
                if mark in Path(f'/proc/{each}/environ').read_bytes().split(b'\0'):
                    yield int(each)
            except OSError:
                continue  # it has ended, or is another user's
        time.sleep(0.1)


def test_page_is_served_and_ends_with_the_launch(start, directory):
    arguments = {'directory': directory, 'operations': 0, 'page': 'true', 'page_port': 0}
    with start('robot', **arguments) as launched:
        launched.until(lambda: '/enter?token=' in launched.said)
        assert 'The page is at http://127.0.0.1:' in launched.said
        assert launched.end() == 0
        assert '/enter?token=' not in launched.nodes_said or launched.logs is None
