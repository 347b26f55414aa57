# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The node graph as data, and the runner that starts and ends processes."""

from dataclasses import replace
import os
from pathlib import Path
import select
import signal
import socket
import subprocess
import sys
from xml.etree import ElementTree

from fdrl_ros.deployment import bringup
from fdrl_ros.deployment import runner as running
from fdrl_ros.deployment.bringup import (
    BringupSettings,
    environment,
    federation_graph,
    free_domains,
    middleware,
    NodeSpec,
    robot_graph,
    RobotArguments,
    RoomArguments,
    warnings,
)
from fdrl_ros.deployment.launch_files import check, notices
from fdrl_ros.deployment.launch_files import graph as launch_graph
from fdrl_ros.deployment.runner import command, Death, Runner, tail
from fdrl_ros.deployment.supervision import Ending
from fdrl_ros.errors import FdrlError, SettingError, StoreError
from fdrl_ros.experiments.ros_federation import missing_ros
from fdrl_ros.nodes import entry_point
from fdrl_ros.resources import resource
import pytest
import yaml

SETTINGS = BringupSettings(directory='/somewhere/fed: 1')
PROFILE = ('FASTRTPS_DEFAULT_PROFILES_FILE', 'FASTDDS_DEFAULT_PROFILES_FILE')
"""What Fast DDS 2 of Jazzy reads, and 3 of Kilted."""
LINGERING = """
import pathlib, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
pathlib.Path({gate!r}).write_text('ready')
signal.pause()
"""
OBEDIENT = """
import pathlib, signal, sys
signal.signal(signal.SIGINT, lambda number, frame: sys.exit(0))
pathlib.Path({gate!r}).write_text('ready')
while True: signal.pause()
"""


def graph() -> tuple[NodeSpec, ...]:
    return launch_graph(
        'federation', {'directory': SETTINGS.directory, 'robots': '2', 'description': 'false'}
    )


def test_graph_has_every_party_once_in_its_namespace():
    labels = [each.label for each in graph()]
    assert labels == [
        'federation.key_authority',
        'federation.aggregator',
        'hospital_1.trainer',
        'hospital_2.trainer',
        'hospital_3.trainer',
        'robot_1.env',
        'robot_1.selector',
        'robot_2.env',
        'robot_2.selector',
    ]


@pytest.mark.parametrize(
    ('namespace', 'root'), [('north', '/north'), ('/hall/north', '/hall/north')]
)
def test_namespace_is_put_before_that_of_every_node(namespace, root):
    settings = replace(SETTINGS, namespace=namespace)
    moved, usual = (
        (*federation_graph(each, ('hospital_1',)), *robot_graph(each, 'robot_1'))
        for each in (settings, SETTINGS)
    )
    assert [each.namespace for each in moved] == [root + each.namespace for each in usual]
    assert [each.parameters for each in moved] == [each.parameters for each in usual]
    assert moved[-1].label == f'{root[1:].replace("/", ".")}.robot_1.selector'
    with pytest.raises(SettingError, match="namespace = 'north-wing': expected a ROS namespace"):
        replace(SETTINGS, namespace='north-wing')


def test_env_makes_time_and_the_selector_follows_it():
    room = RoomArguments(endoscope=True, use_sim_time=True, real_time_factor=4.0)
    env, selector = robot_graph(SETTINGS, 'robot_1', room=room)
    assert env.parameters['endoscope'] and env.parameters['real_time_factor'] == 4.0
    assert env.parameters['use_sim_time'] and selector.parameters['use_sim_time']
    env, selector = robot_graph(SETTINGS, 'robot_1')
    assert not env.parameters['endoscope'] and not env.parameters['use_sim_time']
    assert not selector.parameters['use_sim_time']


@pytest.mark.parametrize('armed', ['auto', 'true', 'false'])
@pytest.mark.parametrize('env', [True, False])
def test_selector_without_the_simulated_env_is_armed_by_who_says_so_alone(env, armed):
    graph = robot_graph(SETTINGS, 'robot_1', room=RoomArguments(env=env, armed=armed))
    assert [each.executable for each in graph] == ['env', 'selector'][not env :]
    armed_now = armed == 'true' or (env and armed == 'auto')
    assert graph[-1].parameters['armed'] is armed_now
    # A real arm is not commanded again after a crash before a person has looked.
    assert graph[-1].respawn is (env or not armed_now)
    with pytest.raises(SettingError, match="armed = 'ture': expected .* 'auto', 'true', 'false'"):
        RoomArguments(armed='ture')


def test_monitor_reports_a_real_arm_by_a_plan_and_never_beside_the_simulated_env():
    room = RobotArguments(env=False, plan='plan.yaml', use_sim_time=True)
    monitor, selector = robot_graph(SETTINGS, 'robot_1', room=room, plan=room.plan)
    assert (monitor.full_name, monitor.domain) == ('/robot_1/monitor', selector.domain)
    assert monitor.parameters['plan'] == 'plan.yaml' and monitor.parameters['use_sim_time']
    with pytest.raises(SettingError, match="plan = 'plan.yaml': expected none .* env:=false"):
        RobotArguments(plan='plan.yaml')


@pytest.mark.parametrize('env', [True, False])
def test_a_segmenter_brings_the_endoscope_and_a_selector_that_needs_visibility(env):
    room = RoomArguments(segmenter='a.npz', env=env, use_sim_time=True)
    nodes = {each.name: each.parameters for each in robot_graph(SETTINGS, 'robot_1', room=room)}
    assert nodes.keys() == {'selector', 'segmenter'} | ({'env'} if env else set())
    assert nodes['segmenter']['file'] == 'a.npz' and nodes['segmenter']['use_sim_time']
    assert nodes['selector']['needs_visibility']
    if env:
        assert nodes['env']['endoscope']
        sides = nodes['env']['endoscope_width'], nodes['env']['endoscope_height']
        assert not any(each % 32 for each in sides), 'a segmenter could not take these pictures'
    plain = {each.name: each.parameters for each in robot_graph(SETTINGS, 'robot_1')}
    assert not plain['selector']['needs_visibility'] and not plain['env']['endoscope']
    assert 'segmenter' not in plain


@pytest.mark.parametrize(
    ('name', 'text', 'reason'),
    [
        ('missing.yaml', None, 'No such file'),
        ('', None, 'Is a directory'),
        ('torn.yaml', '/**/selector: {ros__parameters: [', 'while parsing'),
        ('words.yaml', 'armed false', 'the file has no section ros__parameters'),
        ('empty.yaml', '', 'the file has no section ros__parameters'),
        ('flat.yaml', '/**/selector: {armed: false}', '.* has no section ros__parameters'),
        ('picture.yaml', '\udcff', "'utf-8' codec"),
    ],
)
def test_parameter_file_that_nodes_would_go_without_is_refused(tmp_path, name, text, reason):
    path = tmp_path / name
    if text is not None:
        path.write_text(text, 'utf-8', 'surrogateescape')
    with pytest.raises(SettingError, match=f'parameters = .*{name}.*: {reason}'):
        BringupSettings(parameters=str(path))


@pytest.mark.parametrize('node', ['/robot_1/selectr', '/**/enw'])
def test_parameter_file_with_a_misspelt_node_is_refused(tmp_path, node):
    site = tmp_path / 'site.yaml'
    site.write_text(f'{node}: {{ros__parameters: {{armed: false}}}}')
    with pytest.raises(SettingError, match='did you mean (selector|env)'):
        BringupSettings(parameters=str(site))


@pytest.mark.parametrize('value', ['ture', '"false"', '0'])
@pytest.mark.parametrize('node', ['/robot_1/selector', 'robot_1: {selector', '/**'])
def test_parameter_file_gives_values_of_the_type_that_nodes_are_given(tmp_path, node, value):
    site = tmp_path / 'site.yaml'
    closing = '}' * node.count('{')
    site.write_text(f'{node}: {{ros__parameters: {{armed: {value}}}}}{closing}')
    with pytest.raises(SettingError, match='armed to be a bool, not'):
        robot_graph(BringupSettings(parameters=str(site)), 'robot_1')


def test_parameter_file_does_not_arm_what_a_person_leaves_unarmed(tmp_path):
    site = tmp_path / 'site.yaml'
    site.write_text('/**/selector: {ros__parameters: {armed: true}}')
    settings = BringupSettings(parameters=str(site))
    with pytest.raises(SettingError, match="armed = 'false': expected true, .*without armed"):
        robot_graph(settings, 'robot_1', room=RoomArguments(armed='false'))
    with pytest.raises(SettingError, match="armed = 'auto': expected true, .*without armed"):
        robot_graph(settings, 'robot_1', room=RoomArguments(env=False))
    site.write_text('/robot_2/selector: {ros__parameters: {armed: true}}')
    assert robot_graph(settings, 'robot_1', room=RoomArguments(env=False))
    site.write_text('/camera: {ros__parameters: {rate: 5, directory: 3}}')  # of somebody else
    assert robot_graph(settings, 'robot_1')


def test_section_of_no_node_is_told_and_refused_where_it_should_have_disarmed(tmp_path):
    site = tmp_path / 'site.yaml'
    settings = replace(SETTINGS, parameters='')
    site.write_text('selector: {ros__parameters: {armed: false}}')
    with pytest.raises(SettingError, match='a namespace in .*, such as /../selector'):
        replace(settings, parameters=str(site))
    robot_3 = '/robot_3/selector: {ros__parameters: {armed: %s}}'
    given = {'directory': SETTINGS.directory, 'parameters': str(site), 'description': 'false'}
    site.write_text('/robot_1/selector: {ros__parameters: {armed: false}}')
    ward = {**given, 'namespace': 'ward'}
    for more in ({}, {'hospitals': '3'}):  # also included by another launch file
        with pytest.raises(SettingError, match='armed: false of /ward/robot_1/selector, not of'):
            check('robot', ward | more)
    site.write_text(robot_3 % 'false')
    assert len(notices('robot', given)) == 1, 'one file for many robots'
    unarmed = {**given, 'armed': 'false'}
    notice, words = notices('robot', unarmed)
    assert (
        words == f'{site}: /robot_3/selector is none of the nodes /robot_1/env, /robot_1/selector'
    )
    assert 'not armed' in notice
    site.write_text(robot_3 % 'true')  # one file for many robots
    assert len(notices('robot', given)) == 1 and not notices('server', given)
    assert not notices('robot', {**given, 'hospitals': '3'}), 'a federation tells it once'
    assert len(notices('federation', given)) == 1
    assert not notices('federation', {**given, 'robots': '3'})


def test_robots_live_in_another_domain_than_the_federation():
    domains = {each.executable in ('env', 'selector'): each.domain for each in graph()}
    assert domains == {True: SETTINGS.robot_domain, False: SETTINGS.federation_domain}
    for each in graph():
        assert ('robot_domain' in each.parameters) == (each.executable == 'trainer')
    with pytest.raises(SettingError, match='another domain'):
        BringupSettings(federation_domain=7, robot_domain=7)


def test_every_node_runs_with_one_thread_in_its_domain():
    for each in graph():
        variables = environment(SETTINGS, each.domain)
        assert variables['ROS_DOMAIN_ID'] == str(each.domain)
        assert variables['OMP_NUM_THREADS'] == '1'
        assert variables['FDRL_PARENT'] == str(os.getpid()), 'they end with this process'
        assert variables['ROS_AUTOMATIC_DISCOVERY_RANGE'] == 'SYSTEM_DEFAULT'
        assert {*PROFILE} & {*variables}
        for name in {*PROFILE} & {*variables}:
            profile = Path(variables[name]).read_text()
            assert '<type>UDPv4</type>' in profile and '<address>127.0.0.1</address>' in profile
    several = environment(replace(SETTINGS, hosts='several'), 1)
    assert several['FASTDDS_BUILTIN_TRANSPORTS'] == 'UDPv4', 'heard without multicast too'
    assert several['ROS_AUTOMATIC_DISCOVERY_RANGE'] == 'SUBNET'


@pytest.mark.parametrize(
    ('distribution', 'names'),
    [('jazzy', PROFILE[:1]), ('kilted', PROFILE[1:]), ('lyrical', PROFILE[1:]), ('', PROFILE)],
)
def test_fast_dds_gets_its_profile_by_the_name_that_its_version_reads(
    monkeypatch, distribution, names
):
    monkeypatch.setenv('RMW_IMPLEMENTATION', 'rmw_fastrtps_cpp')
    monkeypatch.setenv('ROS_DISTRO', distribution)
    for name in PROFILE:
        monkeypatch.delenv(name, raising=False)
    several = replace(SETTINGS, hosts='several')
    for settings in (SETTINGS, several):
        given = middleware(settings)
        assert {*given} & {*PROFILE} == {*names}
        assert given['RMW_FASTRTPS_USE_QOS_FROM_XML'] == '1'
        for each in names:
            profile = ElementTree.parse(given[each]).getroot()
            kinds = [each.text for each in profile.iter() if 'historyMemoryPolicy' in each.tag]
            assert kinds == ['DYNAMIC_REUSABLE'] * 2
    monkeypatch.setenv(names[0], 'own.xml')
    assert not {*middleware(several)} & {*PROFILE, 'RMW_FASTRTPS_USE_QOS_FROM_XML'}


@pytest.mark.parametrize(
    ('rmw', 'name', 'words'),
    [
        ('rmw_fastrtps_cpp', PROFILE[0], 'fastdds_one_host.xml'),
        ('rmw_fastrtps_cpp', PROFILE[1], 'fastdds_one_host.xml'),
        ('rmw_fastrtps_dynamic_cpp', PROFILE[0], 'fastdds_one_host.xml'),
        ('rmw_cyclonedds_cpp', 'CYCLONEDDS_URI', '<NetworkInterface address="127.0.0.1"/>'),
        ('rmw_zenoh_cpp', 'ZENOH_CONFIG_OVERRIDE', 'listen/endpoints=["tcp/127.0.0.1:0"]'),
        ('rmw_connextdds', 'ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST'),
    ],
)
def test_each_middleware_stays_on_one_host_or_says_that_it_may_not(monkeypatch, rmw, name, words):
    monkeypatch.setenv('RMW_IMPLEMENTATION', rmw)
    monkeypatch.delenv('ROS_DISTRO', raising=False)
    variables = middleware(SETTINGS)
    assert words in variables[name]
    others = {*PROFILE, 'CYCLONEDDS_URI', 'ZENOH_CONFIG_OVERRIDE'}
    others -= {*PROFILE} if name in PROFILE else {name}
    assert not others & set(variables)
    if rmw == 'rmw_cyclonedds_cpp':
        ElementTree.fromstring(variables[name])
    told = [each for each in warnings(SETTINGS) if each.startswith('hosts = one')]
    assert len(told) == (rmw in ('rmw_zenoh_cpp', 'rmw_connextdds'))
    assert not any(
        each.startswith('hosts') for each in warnings(replace(SETTINGS, hosts='several'))
    )
    if 'fastrtps' not in rmw:
        with pytest.raises(SettingError, match=f'{rmw} has no Fast DDS discovery server'):
            BringupSettings(hosts='several', discovery_server='10.0.0.1:11811')


@pytest.mark.parametrize(
    ('name', 'value', 'expected'),
    [
        ('RMW_IMPLEMENTATION', 'rmw_nonsense', 'one that is installed: rmw_fastrtps_cpp'),
        ('RMW_IMPLEMENTATION', 'rmw_implementation', 'one that is installed: rmw_fastrtps_cpp'),
        ('ROS_DOMAIN_ID', '300', 'a DDS domain, 0 to 232'),
        ('ROS_DOMAIN_ID', 'five', 'a DDS domain, 0 to 232'),
    ],
)
def test_variable_that_ends_every_node_is_refused_in_one_line(
    monkeypatch, tmp_path, capsys, name, value, expected
):
    index = tmp_path / 'share/ament_index/resource_index/rmw_typesupport'
    index.mkdir(parents=True)
    for each in ('rmw_fastrtps_cpp', 'rmw_implementation'):
        (index / each).touch()
    monkeypatch.setenv('AMENT_PREFIX_PATH', str(tmp_path))
    monkeypatch.setenv('RMW_IMPLEMENTATION', 'rmw_fastrtps_cpp')
    monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, 'argv', ['env', '--ros-args'])
    assert entry_point.start('env') == 1
    assert capsys.readouterr().err == f'env: {name} = {value!r}: expected {expected}\n'
    if name == 'RMW_IMPLEMENTATION':
        with pytest.raises(SettingError, match=f'{name} = {value!r}'):  # of every command
            missing_ros()


@pytest.mark.parametrize(
    ('domain', 'ports', 'told'),
    [
        (0, '32768 60999', False),
        (101, '32768 60999', False),
        (102, '32768 60999', True),
        (214, '32768 60999', True),
        (215, '32768 60999', False),
        (232, '32768 60999', False),
        (232, '1024 65535', True),
        (60, '15000 23000', True),
    ],
)
def test_domain_whose_ports_the_host_gives_away_is_warned_of(
    monkeypatch, tmp_path, domain, ports, told
):
    monkeypatch.setattr(bringup, '_PORT_RANGE', tmp_path / 'range')
    (tmp_path / 'range').write_text(ports)
    settings = BringupSettings(federation_domain=1, robot_domain=domain)
    found = [each for each in warnings(settings) if each.startswith('robot_domain')]
    assert len(found) == told
    assert all(
        f'robot_domain = {domain}: its ports {7410 + 250 * domain} to' in each for each in found
    )


def test_command_line_keeps_every_value_and_its_type():
    spec = robot_graph(SETTINGS, 'robot_1', operations=5)[0]
    words = command(replace(spec, parameter_file='site.yaml'))
    assert words[:5] == [sys.executable, '-P', '-m', 'fdrl_ros.nodes', 'env']
    given = dict(words[at + 1].split(':=', 1) for at, word in enumerate(words) if word == '-p')
    assert {name: yaml.safe_load(text) for name, text in given.items()} == spec.parameters
    assert ['-r', '__ns:=/robot_1'] == words[6:8]
    assert words[-2:] == ['--params-file', 'site.yaml'], 'what the site says counts last'


@pytest.mark.parametrize('number', ['SIGINT', 'SIGTERM'])
def test_node_that_is_told_to_end_while_it_is_imported_ends_quietly(number):
    program = (
        'import os, signal\n'
        'from fdrl_ros.nodes import entry_point\n'
        f'entry_point.import_module = lambda name: os.kill(os.getpid(), signal.{number})\n'
        "entry_point.start('env')\n"
    )
    ended = subprocess.run([sys.executable, '-c', program], capture_output=True, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b'', b'')


@pytest.mark.parametrize(
    ('words', 'code', 'told'),
    [
        ([], 1, [each.executable for each in graph()]),
        (['surgeon'], 1, [each.executable for each in graph()]),
        (['env', '--help'], 0, ['--ros-args', 'config/robot.yaml']),
        (['trainer', 'now'], 1, ['--ros-args', 'config/hospital.yaml']),
    ],
)
def test_who_names_no_node_or_asks_for_help_is_told_the_usage(words, code, told):
    program = [sys.executable, '-P', '-m', 'fdrl_ros.nodes', *words]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=30)
    said = ended.stdout + ended.stderr
    assert ended.returncode == code and said.startswith('usage: '), said
    assert all(each in said for each in told)


def test_free_domains_leave_out_those_in_use(monkeypatch):
    monkeypatch.setattr(bringup, '_FREE_DOMAINS', range(1, 10))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        for domain in range(1, 10):
            try:
                taken.bind(('', 7400 + 250 * domain + 10))
                break
            except OSError:
                continue
        found = free_domains(3)
        assert domain not in found and len(set(found)) == 3
        with pytest.raises(SettingError, match='free DDS domains'):
            free_domains(10)


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Return a runner of programs that are given as the executable of a spec."""
    monkeypatch.setattr(running, 'command', lambda spec: [sys.executable, '-c', spec.executable])
    monkeypatch.setattr(running, 'RESPAWN_DELAY', 0.0)
    return Runner(SETTINGS, tmp_path)


def spec(program: str) -> NodeSpec:
    return NodeSpec(program, '/somewhere', 'node', 5)


def await_death(runner: Runner) -> list[Death]:
    """Wait until the one node has ended, and return what the runner says of its end."""
    os.waitid(os.P_PID, runner.process_id('somewhere.node'), os.WEXITED | os.WNOWAIT)
    return [each for each in runner.poll() if isinstance(each, Death)]


def test_runner_ends_who_listens_by_sigint_and_others_by_sigkill(runner, tmp_path):
    gates = [tmp_path / 'obedient', tmp_path / 'lingering']
    for each in gates:
        os.mkfifo(each)
    obedient, lingering = (
        spec(program.format(gate=str(gate)))
        for program, gate in zip((OBEDIENT, LINGERING), gates, strict=True)
    )
    with runner:
        runner.start([obedient, replace(lingering, name='deaf')])
        assert [each.read_text() for each in gates] == ['ready', 'ready']
        pids = [runner.process_id(each) for each in runner.running]
        assert runner.stop(grace=0.5) == {
            'somewhere.node': 0,
            'somewhere.deaf': -signal.SIGKILL,
        }
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_runner_reports_a_death_with_its_last_words_and_starts_again_until_it_is_told(runner):
    with runner:
        program = 'import os, sys; print("the disk is full for", os.getpid()); sys.exit(3)'
        runner.start([spec(program)])
        pids = [runner.process_id('somewhere.node')]
        deaths = await_death(runner)
        pids.append(runner.process_id('somewhere.node'))
        deaths += await_death(runner)
        assert [(each.code, each.restarted) for each in deaths] == [(3, True), (3, True)]
        assert 'exit code 3, is started again' in str(deaths[0])
        # What it said before it was started again, in the same file, is no news.
        assert [each.lines for each in deaths] == [
            (f'the disk is full for {pid}',) for pid in pids
        ]
        assert runner.running == ('somewhere.node',)
        assert 'SIGKILL' in str(Death('a', -9, (), False))


def test_runner_says_that_a_node_runs_again(runner):
    with runner:
        runner.start([spec('import sys; sys.exit(3)')])
        os.waitid(os.P_PID, runner.process_id('somewhere.node'), os.WEXITED | os.WNOWAIT)
        death, restart = runner.poll()
        assert death.restarted and str(restart).endswith('somewhere.node was started again')


def test_runner_waits_before_it_starts_a_node_again_and_forgets_it_when_stopped(
    runner, monkeypatch
):
    monkeypatch.setattr(running, 'RESPAWN_DELAY', 1000.0)
    with runner:
        runner.start([spec('import sys; sys.exit(3)')])
        (death,) = await_death(runner)
        assert death.restarted and runner.running == ('somewhere.node',)
        assert runner.poll() == [] and runner.running == ('somewhere.node',)
        assert runner.stop() == {} and runner.running == ()


def test_an_exit_code_of_a_node_of_others_refuses_nothing():
    assert Ending.of(1) is Ending.REFUSED
    assert {Ending.of(code, ours=False) for code in (1, 2, 3, -9)} == {Ending.DIED}
    assert {Ending.of(code, ours=False) for code in (0, -2, -15)} == {Ending.STOPPED}


def test_more_nodes_than_find_each_other_on_one_host_are_refused(monkeypatch):
    profile = resource('config/fastdds_one_host.xml').read_text()
    assert '<maxInitialPeersRange>54</maxInitialPeersRange>' in profile
    most = {'hospitals': '46', 'robots': '1', 'description': 'false'}
    check('federation', most)
    for more, domain in (({'hospitals': '47'}, 'federation_domain'), ({'robots': '2'}, 'robot')):
        with pytest.raises(SettingError, match=rf'{domain}.*48 nodes of one host at most'):
            check('federation', {**most, **more})
        check('federation', {**most, **more, 'hosts': 'several'})
    monkeypatch.setenv('RMW_IMPLEMENTATION', 'rmw_zenoh_cpp')
    check('federation', {**most, 'hospitals': '47'})


def test_robots_of_a_federation_have_patients_of_their_own():
    specs = launch_graph('federation', {'robots': '3', 'description': 'false'})
    firsts = [each.parameters['first_patient'] for each in specs if each.executable == 'env']
    assert firsts == [0, 1000, 2000]


@pytest.mark.parametrize(
    ('code', 'use_respawn', 'again', 'refused'),
    [
        (0, True, False, False),
        (1, True, False, True),
        (3, True, True, False),
        (3, False, False, False),
    ],
)
def test_exit_code_says_whether_a_node_is_started_again(
    tmp_path, monkeypatch, code, use_respawn, again, refused
):
    monkeypatch.setattr(running, 'command', lambda spec: [sys.executable, '-c', spec.executable])
    with Runner(replace(SETTINGS, use_respawn=use_respawn), tmp_path) as runner:
        program = (
            f'import sys; print("[FATAL] [1.5] [node]: KeyFileError: open"); sys.exit({code})'
        )
        runner.start([spec(program)])
        (death,) = await_death(runner)
        assert death.restarted is again and bool(runner.running) is again
        if refused:
            with pytest.raises(FdrlError, match=r'node cannot begin: KeyFileError: open'):
                death.check()
        else:
            death.check()


def test_runner_ends_what_a_dead_node_left_behind(runner, tmp_path):
    left = tmp_path / 'left'
    program = (
        'import pathlib, subprocess, sys\n'
        f'path = pathlib.Path({str(left)!r})\n'
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        'path.exists() or path.write_text(str(child.pid))\n'
        'sys.exit(3)\n'
    )
    with pytest.raises(KeyboardInterrupt), runner:
        runner.start([spec(program)])
        assert await_death(runner)
        again = runner.process_id('somewhere.node')
        try:
            child = os.pidfd_open(int(left.read_text()))
            ended, _, _ = select.select([child], [], [], 10.0)
            os.close(child)
            assert ended
        except ProcessLookupError:
            pass
        raise KeyboardInterrupt
    with pytest.raises(ProcessLookupError):  # the block was left by an error
        os.kill(again, 0)


def test_signals_that_ask_for_the_end_are_no_deaths_and_others_are():
    asked = {number: Ending.of(-number) for number in (signal.SIGINT, signal.SIGTERM)}
    assert set(asked.values()) == {Ending.STOPPED}
    assert {Ending.of(-number) for number in (signal.SIGKILL, signal.SIGSEGV)} == {Ending.DIED}


def test_runner_says_which_log_cannot_be_written(tmp_path):
    with pytest.raises(StoreError, match=r'robot_1\.env'):
        Runner(SETTINGS, tmp_path / 'missing').start(robot_graph(SETTINGS, 'robot_1'))


def test_tail_of_a_long_log_is_its_last_lines(tmp_path):
    path = tmp_path / 'log'
    path.write_text('\n'.join(map(str, range(10000))))
    assert tail(path, 3) == ('9997', '9998', '9999')
    assert tail(tmp_path / 'none') == ()
