# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Nodes whose keys are encrypted: told where the passphrase lies they run, else they say so."""

from dataclasses import replace
from pathlib import Path

from fdrl_ros.crypto.keys.keystore import load_passphrase
from fdrl_ros.crypto.keys.rotation import change_passphrase, private_keys, Succession
from fdrl_ros.crypto.keys.sealed_key import label
from fdrl_ros.deployment.bringup import federation_graph, server_graph
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.runtime.durable import write_secret
from node.conftest import PLAN
import pytest

FILE = """
/**:
  ros__parameters:
    passphrase_file: {file}
"""


@pytest.fixture
def told(settings, tmp_path):
    """Encrypt all keys, and return settings that tell the nodes where the passphrase lies."""
    write_secret(tmp_path / 'passphrase', b'correct horse\n')
    keys = Layout(Path(settings.directory)).keys
    change_passphrase(keys, None, load_passphrase(tmp_path / 'passphrase'))
    (tmp_path / 'site.yaml').write_text(FILE.format(file=tmp_path / 'passphrase'))
    return replace(settings, parameters=str(tmp_path / 'site.yaml'))


def test_federation_with_encrypted_keys_ends_with_the_same_policy(live, reference, told):
    live.runner.start(federation_graph(told, PLAN.hospitals))
    assert live.finish() == reference.digest
    keys = live.layout.keys
    assert len(private_keys(keys)) == 8
    for name in private_keys(keys):
        assert label((keys / name).read_bytes(), name).sealed
    logs = ''.join(each.read_text() for each in live.layout.log.glob('*.log'))
    assert logs and 'horse' not in logs


def test_node_that_is_told_no_passphrase_says_so_and_ends(live, told):
    live.runner.start(server_graph(live.settings))
    live.wait(lambda: not live.runner.running, 30.0)
    assert {each.code for each in live.deaths} == {1}
    for each in live.deaths:
        said = '\n'.join(each.lines)
        assert 'PassphraseError' in said and 'passphrase_file' in said


def test_older_roster_ends_every_node_that_has_seen_the_newer(live):
    before = (live.layout.keys / 'roster.json').read_bytes()
    Succession(live.layout.keys).rotate('operator')
    servers = server_graph(live.settings)
    live.runner.start(servers)
    live.wait(lambda: live.phase is not None and live.policy(0) is not None, 30.0)
    live.runner.stop()
    (live.layout.keys / 'roster.json').write_bytes(before)
    live.runner.start(servers)
    live.wait(lambda: not live.runner.running, 30.0)
    assert {each.label for each in live.deaths} == {each.label for each in servers}
    for each in live.deaths:
        assert each.code == 1 and 'RosterRollbackError' in '\n'.join(each.lines)
