# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl watch`: bad input is one clear line, and a directory tells where its federation runs."""

from contextlib import closing
from pathlib import Path
from queue import Queue
import socket
import sys

import click
from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.crypto.keys.keystore import make_federation, NewFederation
from fdrl_ros.deployment.bringup import BringupSettings
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.live.running import (
    Companion,
    free_page_port,
    noted_running,
    page_words,
    record_words,
    RUNNING,
    where_running,
)
from fdrl_ros.runtime.durable import exclusive
import pytest


@pytest.fixture
def layout(tmp_path) -> Layout:
    """Return a directory with plan and roster, and no more."""
    made = Layout(tmp_path / 'federation')
    made.directory.mkdir()
    made.plan.write_text('{}')
    make_federation(
        made.keys, NewFederation(dict.fromkeys(('hospital_1', 'hospital_2', 'hospital_3'), 9))
    )
    return made


@pytest.fixture
def taken():
    """Return a port that another program has."""
    with closing(socket.create_server(('127.0.0.1', 0))) as other:
        yield other.getsockname()[1]


def refused(*words: object) -> str:
    pytest.importorskip('rclpy', reason='ROS 2 is not sourced')
    done = CliRunner().invoke(main, ['watch', *map(str, words)])
    assert done.exit_code == 1, done.output
    (line,) = done.output.splitlines()
    return line


def test_what_cannot_be_is_one_line(layout, taken, tmp_path):
    place = ('--directory', layout.directory)
    assert 'is not there' in refused('--directory', tmp_path / 'none')
    assert 'a free port, such as 0 for any' in refused(*place, '--port', taken)
    assert 'ssh -L' in refused(*place, '--host', '0.0.0.0')
    assert 'both --tls-certificate and --tls-key' in refused(*place, '--tls-key', 'key.pem')
    assert 'a name of at most 60 letters' in refused(*place, '--viewer', 'x' * 61)
    assert 'a name of at most 60 letters' in refused(*place, '--surgeon', 'A\nB')
    assert 'another domain' in refused(*place, '--domain', 50)
    assert 'letters, digits and _' in refused(*place, '--robot', 'robot 1')
    assert 'nobody' in refused(*place, '--operator-key', 'nobody')
    assert '--foxglove too' in refused(*place, '--record', tmp_path / 'bag')
    # In place of links of a page that ends at once.
    busy = refused(*place, '--port', 0, '--foxglove', '--foxglove-port', taken)
    assert busy.startswith(f'fdrl: foxglove-port = {taken}: expected a free port')


def test_a_missing_library_is_named(layout, monkeypatch):
    monkeypatch.setitem(sys.modules, 'uvicorn', None)
    monkeypatch.delitem(sys.modules, 'fdrl_ros.page.serving', raising=False)
    line = refused('--directory', layout.directory)
    assert 'pip install "fdrl_ros[page]"' in line and 'uvicorn' in line


def test_a_directory_tells_where_its_federation_runs(layout):
    assert where_running(layout) == {}
    settings = BringupSettings(federation_domain=8, robot_domain=9, namespace='north')
    with noted_running(layout, settings):
        found = where_running(layout)
    assert BringupSettings.from_mapping(found).robot_domain == 9
    assert BringupSettings.from_mapping(found).namespace == '/north'
    assert where_running(layout) == {}  # it has ended
    for broken in ('{', '[]', '{"robot_domain": 999}', '{"robot_domain": "x"}'):
        (layout.directory / RUNNING).write_text(broken)
        assert where_running(layout) == {}


def test_a_port_in_use_is_not_taken(taken):
    assert free_page_port(taken) == 0


def wait_for(said: Queue[str], words: str) -> str:
    while words not in (line := said.get(timeout=60.0)):
        pass
    return line


def test_a_page_that_cannot_begin_stops_nobody(layout, taken):
    said: Queue[str] = Queue()
    settings = BringupSettings(directory=str(layout.directory))
    with Companion(page_words(settings, taken), {}, said.put):
        assert wait_for(said, 'fdrl: ').startswith('fdrl: ')


def test_no_link_is_printed_where_foxglove_cannot_be_served(
    layout, tmp_path, federation_domain, robot_domain
):
    pytest.importorskip('rclpy', reason='ROS 2 is not sourced')
    pytest.importorskip('foxglove', reason='needs requirements/foxglove.txt')
    said: Queue[str] = Queue()
    settings = BringupSettings(
        directory=str(layout.directory),
        federation_domain=federation_domain,
        robot_domain=robot_domain,
    )
    words = ('--foxglove', '--foxglove-port', '0', '--record', str(tmp_path))
    with Companion(page_words(settings, 0, (), *words), {}, said.put):
        assert 'exists already' in said.get(timeout=60.0)


def test_a_run_that_has_ended_is_told_on_the_terminal_and_on_the_page(
    layout, federation_domain, robot_domain
):
    pytest.importorskip('rclpy', reason='ROS 2 is not sourced')
    page_client = pytest.importorskip('support.page_client', reason='needs requirements/page.txt')
    (layout.directory.parent / 'policies').mkdir()  # so that it is one
    said: Queue[str] = Queue()
    settings = BringupSettings(
        directory=str(layout.directory),
        federation_domain=federation_domain,
        robot_domain=robot_domain,
    )
    with Companion(page_words(settings, 0), {}, said.put):
        assert 'has ended; the page replays it' in said.get(timeout=60.0)
        link = wait_for(said, '/enter?token=').split()[-1]
        url, _, token = link.partition('/enter?token=')
        client = page_client.PageClient(url, token)
        assert client.wait(lambda found: 'ended' in found, 30.0)['ended'] is True
        with exclusive(layout.directory.parent):
            client.wait(lambda found: found['ended'] is False, 30.0)


def test_links_are_printed_and_let_in(layout, federation_domain, robot_domain):
    pytest.importorskip('rclpy', reason='ROS 2 is not sourced')
    import httpx

    said: Queue[str] = Queue()
    settings = BringupSettings(
        directory=str(layout.directory),
        federation_domain=federation_domain,
        robot_domain=robot_domain,
    )
    people = ('--surgeon', 'Ada', '--viewer', 'Bob')
    with Companion(page_words(settings, 0, (), *people), {}, said.put):
        line = wait_for(said, 'Ada (surgeon): http://127.0.0.1:')
        with httpx.Client() as browser:
            link = line.rpartition(' ')[2]
            assert browser.get(link).status_code == 303
            session = browser.get(f'{link.partition("/enter")[0]}/api/session').json()
    assert session['name'] == 'Ada' and 'take_over' in session['acts']
    assert 'hand_back' not in session['acts'] and '--operator-key' in session['note']
    assert (Path(layout.directory) / 'page_acts.jsonl').stat().st_mode & 0o777 == 0o600


def test_a_recorder_of_a_run_is_told_its_robot_domain_and_namespace():
    settings = BringupSettings(robot_domain=9, namespace='north')
    name, *words = record_words(settings, 'robot_1', Path('bag'), 3)
    command = main.get_command(click.Context(main), name)
    told = command.make_context(name, words).params
    assert (told['bag'], told['robot'], told['operations']) == (Path('bag'), 'robot_1', 3)
    assert (told['domain'], told['namespace'], told['play']) == (9, '/north', False)
