# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What goes to which host: all that its parties need, and no secret of another."""

from dataclasses import replace
from pathlib import Path

from click.testing import CliRunner
from fdrl_ros.cli.commands import main
from fdrl_ros.crypto.keys.keystore import make_federation, NewFederation
from fdrl_ros.crypto.keys.rotation import private_keys
from fdrl_ros.deployment.bringup import BringupSettings, environment
from fdrl_ros.deployment.hosts import export, host_graph, parties_here
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import RosterError, SettingError, StoreError
from fdrl_ros.runtime.durable import make_private_directory
import pytest

SETTINGS = BringupSettings(hosts='several', discovery_server='10.1.0.2:11811')


@pytest.fixture
def layout(tmp_path) -> Layout:
    layout = Layout(tmp_path / 'federation')
    names = ('hospital_1', 'hospital_2', 'hospital_3')
    make_private_directory(layout.directory)
    make_federation(layout.keys, NewFederation(dict.fromkeys(names, 30)))
    layout.plan.write_text(Plan().to_yaml())
    layout.pretrained.write_bytes(b'public')
    for name in names:
        make_private_directory(layout.party(name))
        layout.records(name).write_bytes(name.encode())
    return layout


def files(directory: Path) -> set[str]:
    return {str(each.relative_to(directory)) for each in directory.rglob('*') if each.is_file()}


PUBLIC = {'plan.yaml', 'pretrained.npz', 'keys/roster.json', 'keys/root.pub'}


def test_a_hospital_gets_its_own_secrets_and_what_is_public(layout, tmp_path):
    export(layout, ['hospital_2'], tmp_path / 'two')
    own = {'keys/hospital_2/identity.key', 'hospital_2/records.npz'}
    assert files(tmp_path / 'two') == PUBLIC | own
    made = Layout(tmp_path / 'two')
    assert made.credentials('hospital_2')[0].public == layout.credentials('hospital_2')[0].public
    assert parties_here(made) == ('hospital_2',)
    for each in (made.directory, made.keys, made.keys / 'hospital_2', made.party('hospital_2')):
        assert each.stat().st_mode & 0o777 == 0o700


def test_servers_on_one_host_get_no_key_of_a_hospital_or_of_the_root(layout, tmp_path):
    export(layout, ['aggregator', 'key_authority'], tmp_path / 'servers')
    keys = private_keys(tmp_path / 'servers' / 'keys')
    assert {Path(each).parts[0] for each in keys} == {'aggregator', 'key_authority'}
    assert parties_here(Layout(tmp_path / 'servers')) == ('aggregator', 'key_authority')


def test_who_keeps_a_key_at_home_gets_the_rest(layout, tmp_path):
    (layout.keys / 'hospital_1' / 'identity.key').unlink()
    export(layout, ['hospital_1'], tmp_path / 'one')
    assert files(tmp_path / 'one') == PUBLIC | {'hospital_1/records.npz'}
    assert parties_here(Layout(tmp_path / 'one')) == ()


def test_unknown_parties_and_directories_that_are_there_are_refused(layout, tmp_path):
    for name in ('hospital_4', 'root', '../hospital_1'):
        with pytest.raises(RosterError, match='not in the roster'):
            export(layout, [name], tmp_path / 'other')
    with pytest.raises(StoreError, match='another directory'):
        export(layout, ['hospital_1'], layout.directory)
    layout.pretrained.unlink()
    with pytest.raises(StoreError, match=r'pretrained\.npz'):
        export(layout, ['hospital_1'], tmp_path / 'other')
    assert not (tmp_path / 'other').exists()


def test_every_party_of_a_host_has_its_node(layout):
    names = ('aggregator', 'key_authority', 'hospital_1', 'hospital_2', 'hospital_3')
    assert parties_here(layout) == names
    labels = [each.label for each in host_graph(SETTINGS, names)]
    assert labels == [
        'federation.aggregator',
        'federation.key_authority',
        *(f'{name}.trainer' for name in names[2:]),
    ]
    assert [each.label for each in host_graph(SETTINGS, names[2:3])] == ['hospital_1.trainer']


def test_robots_know_nothing_of_the_discovery_server():
    federation = environment(SETTINGS, SETTINGS.federation_domain)
    assert federation['ROS_DISCOVERY_SERVER'] == '10.1.0.2:11811'
    assert 'ROS_DISCOVERY_SERVER' not in environment(SETTINGS, SETTINGS.robot_domain)
    by_multicast = replace(SETTINGS, discovery_server='')
    assert 'ROS_DISCOVERY_SERVER' not in environment(by_multicast, SETTINGS.federation_domain)
    with pytest.raises(SettingError, match='discovery_server'):
        replace(SETTINGS, hosts='one')


def test_commands_say_what_they_did_or_why_not(layout, tmp_path):
    call = CliRunner().invoke
    made = call(main, ['export', str(layout.directory), 'hospital_3', '--to', f'{tmp_path}/three'])
    assert made.exit_code == 0 and 'is for the host of hospital_3' in made.output
    (tmp_path / 'three/keys/hospital_3/identity.key').unlink()
    nobody = call(main, ['join', f'{tmp_path}/three', '--discovery-server', '10.1.0.2:11811'])
    assert nobody.exit_code == 1 and 'no private key' in nobody.output
