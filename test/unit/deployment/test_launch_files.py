# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What each launch file starts and refuses, out of its arguments as texts."""

from pathlib import Path

from click.testing import CliRunner
from fdrl_ros.cli import main
from fdrl_ros.crypto.keys.keystore import make_federation, NewFederation
from fdrl_ros.deployment.bringup import BringupSettings, RobotArguments
from fdrl_ros.deployment.launch_files import (
    check,
    chosen,
    FILES,
    full_graph,
    graph,
    names,
    page,
    parties,
)
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.runner import command
from fdrl_ros.errors import FdrlError, PolicyError, ResourceError, SettingError
import pytest
from support.untrained_segmenter import untrained

SILENT = {'description': 'false'}


@pytest.fixture
def prepared(tmp_path: Path) -> str:
    """Return a directory with plan and roster, and no more."""
    layout = Layout(tmp_path / 'federation')
    layout.directory.mkdir()
    layout.plan.write_text('{}')
    layout.pretrained.touch()
    make_federation(
        layout.keys, NewFederation({'hospital_1': 9, 'hospital_2': 9, 'hospital_3': 9})
    )
    return str(layout.directory)


@pytest.mark.parametrize('file', FILES)
def test_arguments_of_a_launch_file_have_one_meaning_each(file):
    assert len(set(names(file))) == len(names(file))
    assert {'log_level', 'use_respawn', 'namespace', 'parameters'} <= set(names(file))


def test_selector_is_armed_as_said_and_alone_where_a_real_arm_answers():
    for arguments, wanted in (
        ({}, {'env': None, 'selector': True}),
        ({'armed': 'false'}, {'env': None, 'selector': False}),
        ({'env': 'false'}, {'selector': False}),
        ({'env': 'false', 'armed': 'True'}, {'selector': True}),
        (
            {'env': 'false', 'armed': 'true', 'plan': 'plan.yaml'},
            {'monitor': None, 'selector': True},
        ),
    ):
        specs = graph('robot', {**SILENT, **arguments})
        assert {each.name: each.parameters.get('armed') for each in specs} == wanted


def test_a_page_is_served_where_one_is_asked_for_and_once_for_a_federation():
    asked = {'page': 'true', 'page_port': '0', 'namespace': 'north', 'robot_domain': '7'}
    assert page('robot', {}) == page('server', asked) == []
    words = page('robot', {**asked, 'robot': 'robot_3'})
    told = dict(zip(words[1::2], words[2::2], strict=True))
    assert words[0] == 'watch' and told['--robot'] == 'robot_3' and told['--port'] == '0'
    assert told['--domain'] == '7' and told['--namespace'] == '/north'
    whole = page('federation', {**asked, 'robots': '2'})
    assert whole.count('--robot') == 2
    for file, given in parties({**asked, 'robots': '2'}):
        assert page(file, {**asked, **given}) == [], 'one of the whole federation'
    with pytest.raises(SettingError, match='page_port'):
        page('robot', {**asked, 'page_port': '70000'})


def test_frames_are_published_unless_told_not_to_and_rviz_is_shown_when_asked_for():
    for arguments, wanted in (
        ({}, ['robot_state_publisher']),
        ({'rviz': 'true'}, ['robot_state_publisher', 'rviz2']),
        ({'description': 'false'}, []),
    ):
        specs = [each for each in graph('robot', arguments) if each.package != 'fdrl_ros']
        assert [each.executable for each in specs] == wanted
        assert all(('/tf', 'tf') in each.remappings for each in specs)
    assert [each.name for each in full_graph('robot')] == [
        *('env', 'selector', 'robot_state_publisher', 'rviz2', 'monitor', 'segmenter')
    ]


def test_one_robot_of_a_federation_shows_itself_and_only_one_may_make_time():
    texts = {'robots': '2', 'rviz': 'true', 'endoscope': 'true'}
    specs = graph('federation', texts)
    assert sum(each.name == 'rviz2' for each in specs) == 1
    envs = [each for each in specs if each.name == 'env']
    assert all(each.parameters['endoscope'] for each in envs)
    with pytest.raises(SettingError, match='use_sim_time'):
        graph('federation', {'robots': '2', 'use_sim_time': 'true'})


@pytest.mark.parametrize('text', ['ward_3', '/ward_3'])
def test_namespace_moves_every_node(text):
    for spec in graph('federation', {'robots': '1', 'namespace': text}):
        assert spec.namespace.startswith('/ward_3/')
        if spec.package == 'fdrl_ros':
            assert f'__ns:={spec.namespace}' in command(spec)
    for wrong in ('3', 'a b', 'a//b', '~x'):
        with pytest.raises(SettingError, match='namespace'):
            chosen(BringupSettings, {'namespace': wrong})


@pytest.mark.parametrize(
    ('file', 'arguments', 'reason'),
    [
        ('robot', {'operations': 'abc'}, "operations = 'abc'"),
        ('robot', {'rviz': 'perhaps'}, "rviz = 'perhaps'"),
        ('robot', {'armed': 'ture'}, "armed = 'ture'"),
        ('robot', {'evn': 'false'}, 'did you mean env?'),
        ('robot', {'hospital': 'hospital_1'}, 'arguments of robot; did you mean home?'),
        ('robot', {'xyz': '1'}, '--show-args lists them'),
        ('robot', {'robot': '9x'}, "robot = '9x': expected letters, digits and _"),
        ('robot', {'robot': 'hospital_1'}, "robot = 'hospital_1': expected a name that no"),
        ('robot', {'robot': 'keys'}, "robot = 'keys': expected a name that no"),
        ('robot', {'real_time_factor': '4'}, 'expected 1.0 without use_sim_time:=true'),
        ('robot', {'env': 'false', 'plan': '/none.yaml'}, "plan = '/none.yaml': expected a"),
        ('robot', {'plan': 'plan.yaml'}, "plan = 'plan.yaml': expected none with the simulated"),
        ('federation', {'plan': 'plan.yaml'}, "plan = 'plan.yaml'"),
        ('robot', {'home': 'hospital_9'}, "home = 'hospital_9': expected one of the 3 hospitals"),
        ('robot', {'robot_domain': '233'}, 'at most 232'),
        ('robot', {'robot_domain': '50'}, 'another domain'),
        ('robot', {'directory': '/none'}, "directory = '/none'"),
        ('robot', {'log_level': 'loud'}, "log_level = 'loud'"),
        ('hospital', {'hospital': 'hospital_12'}, 'one of the 3 hospitals in the roster'),
        ('hospital', {'robot': 'robot_1'}, "robot = 'robot_1'"),
        ('federation', {'hospitals': '2'}, 'hospitals = 2'),
        ('federation', {'options': '--seed "3'}, 'No closing quotation'),
        ('federation', {'hospital': 'hospital_1'}, 'did you mean hospitals'),
        ('server', {'discovery_server': '10.0.0.1:11811'}, 'none where hosts is'),
        (
            'server',
            {'discovery_server': '10.0.0.1:11811', 'hosts': 'several', 'security': 'true'},
            'none with security',
        ),
        ('server', {'security': 'true'}, 'with the enclave /federation/key_authority'),
        ('federation', {'security': 'true'}, 'with the enclave /federation/key_authority'),
        (
            'robot',
            {'security': 'true', 'rviz': 'true'},
            'rviz = True: expected false with security',
        ),
    ],
)
def test_argument_that_cannot_be_is_refused_by_its_name(file, arguments, reason, prepared):
    silent = SILENT if 'description' in names(file) else {}
    given = {'directory': prepared, **silent, **arguments}
    with pytest.raises(SettingError) as refused:
        check(file, given, given)
    assert reason in str(refused.value) and '\n' not in str(refused.value)


def test_a_robot_is_refused_where_the_task_has_none(prepared):
    Layout(Path(prepared)).plan.write_text('federation: {task: instruments}')
    with pytest.raises(SettingError, match='task has a robot: instruments has none'):
        check('robot', {'directory': prepared, **SILENT})
    check('server', {'directory': prepared})


@pytest.mark.parametrize('file', ['robot', 'federation'])
def test_a_segmenter_that_no_node_could_use_is_refused_by_its_file(file, prepared, tmp_path):
    given = {'directory': prepared, **SILENT, 'segmenter': str(tmp_path / 'segmenter.npz')}
    with pytest.raises(PolicyError, match=r'cannot read the segmenter .*segmenter\.npz: No such'):
        check(file, given, given)
    data = untrained(tmp_path).read_bytes()
    check(file, given, given)
    for damaged in (b'', b'x', data[:-1], data[:99] + bytes([data[99] ^ 1]) + data[100:]):
        (tmp_path / 'segmenter.npz').write_bytes(damaged)
        with pytest.raises(PolicyError, match=r'segmenter\.npz is .*damaged'):
            check(file, given, given)


@pytest.mark.parametrize('file', FILES)
def test_what_can_be_is_not_refused(file, prepared):
    given = {'directory': prepared, **(SILENT if 'description' in names(file) else {})}
    check(file, given, given)


def test_package_that_is_not_installed_is_refused_with_what_to_do(prepared, tmp_path, monkeypatch):
    monkeypatch.setenv('AMENT_PREFIX_PATH', str(tmp_path))
    given = {'directory': prepared}
    with pytest.raises(ResourceError, match='robot_state_publisher is not installed.*description'):
        check('robot', given)
    program = tmp_path / 'lib' / 'robot_state_publisher' / 'robot_state_publisher'
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    check('robot', given)
    words = command(full_graph('robot')[2])
    assert words[:4] == ['setpriv', '--pdeathsig', 'TERM', str(program)]
    with pytest.raises(ResourceError, match='rviz2 is not installed.*say rviz:=false'):
        check('robot', {**given, 'rviz': 'true'})


@pytest.mark.parametrize(
    ('file', 'lost', 'text', 'reason'),
    [
        ('server', 'plan.yaml', '{', 'expected a readable YAML file'),
        ('robot', 'keys/roster.json', '{', 'roster.json is damaged'),
        ('robot', 'pretrained.npz', None, 'pretrained.npz is not there'),
        ('server', 'keys/aggregator/identity.key', None, 'identity.key is not there'),
        ('hospital', 'keys/hospital_1/identity.key', None, 'identity.key is not there'),
    ],
)
def test_directory_that_no_node_could_use_is_refused(prepared, file, lost, text, reason):
    path = Path(prepared, lost)
    path.unlink()
    if text is not None:
        path.write_text(text)
    given = {'directory': prepared, **(SILENT if file == 'robot' else {})}
    with pytest.raises(FdrlError, match=reason) as refused:
        check(file, given)
    assert '\n' not in str(refused.value)


def test_command_shows_the_arguments_and_refuses_what_is_given_twice():
    runner = CliRunner()
    shown = runner.invoke(main, ['launch', 'robot.launch.py', '--show-args'])
    assert shown.exit_code == 0
    for each in RobotArguments.describe():
        assert f"'{each.name}':\n        {each.description}: " in shown.output
    assert "(default: 'robot_1')" in shown.output
    twice = runner.invoke(main, ['launch', 'robot', 'armed:=false', 'armed:=true'])
    assert twice.exit_code == 1
    assert "armed = 'true': expected it once: it is 'false' before" in twice.output
