# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What `fdrl link` refuses before anything is made or started."""

from datetime import datetime, UTC

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.cli.federation import link
from fdrl_ros.deployment.hosts import export
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.link.credentials import make_links
from fdrl_ros.deployment.prepare import prepare
from fdrl_ros.deployment.runner import Runner
import pytest
from support.small_run import SMALL_PLAN


@pytest.fixture(scope='module')
def layout(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp('links') / 'federation', SMALL_PLAN)


def fdrl(*words):
    return CliRunner().invoke(main, [str(each) for each in words])


@pytest.mark.parametrize('name', ['a b', '', 'tls/'])
def test_init_asks_for_a_name_and_no_port(name, layout):
    found = fdrl('link', 'init', layout.directory, '--router', name)
    assert found.exit_code == 1 and not (layout.keys / 'link').exists()
    assert f'--router {name!r}: expected the name or address of a host' in found.stderr
    assert 'port' not in found.stderr.lower()


def test_a_directory_is_joined_once_at_a_time(layout, tmp_path, monkeypatch):
    made = Layout(tmp_path / 'all')
    make_links(layout, ['127.0.0.1'], datetime.now(UTC), 30)
    export(layout, ['hospital_1'], made.directory)
    words, started, second = ('link', 'join', made.directory, '--router', 'localhost'), [], []

    def follow(*unused):
        if len(started) == 1:
            second.append(fdrl(*words))

    monkeypatch.setattr(Runner, 'start', lambda runner, specs: started.append(specs))
    monkeypatch.setattr(link, 'follow', follow)
    fdrl(*words)
    assert len(started) == 1
    assert second[0].exit_code == 1 and f'{made.log} is used by process ' in second[0].stderr
    fdrl(*words)
    assert len(started) == 2
