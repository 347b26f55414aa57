# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Nodes whose keys are encrypted: told where the passphrase lies they run, else they say so."""

from fdrl_ros.crypto.keys.rotation import RosterChanges
from fdrl_ros.deployment.bringup import server_graph


def test_node_that_is_told_no_passphrase_says_so_and_ends(live, encrypted):
    live.runner.start(server_graph(live.settings))
    live.wait(lambda: not live.runner.running)
    assert {each.code for each in live.deaths} == {1}
    for each in live.deaths:
        said = '\n'.join(each.lines)
        assert 'PassphraseError' in said and 'passphrase_file' in said


def test_older_roster_ends_every_node_that_has_seen_the_newer(live):
    before = (live.layout.keys / 'roster.json').read_bytes()
    RosterChanges(live.layout.keys).rotate('operator')
    servers = server_graph(live.settings)
    live.runner.start(servers)
    live.wait(lambda: live.phase is not None and live.policy(0) is not None)
    live.runner.stop()
    (live.layout.keys / 'roster.json').write_bytes(before)
    live.runner.start(servers)
    live.wait(lambda: not live.runner.running)
    assert {each.label for each in live.deaths} == {each.label for each in servers}
    for each in live.deaths:
        assert each.code == 1 and 'RosterRollbackError' in '\n'.join(each.lines)
