# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl policies` shows a robot's policies and takes the surgeon's word while no node runs."""

import json
import sys
from types import SimpleNamespace

from click.testing import CliRunner
from fdrl_ros.cli import commands
from fdrl_ros.cli.robot import policies
from fdrl_ros.deployment.events import PoliciesListed
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.robot_policies import (
    hospital_of,
    keep_hospital,
    RobotPolicies,
)
from fdrl_ros.deployment.robot.safety_test import basis
from fdrl_ros.experiments.ros_federation import has_valued, unvalued_policies
from fdrl_ros.policy.onnx_model import OnnxModel
from fdrl_ros.selector.candidates.registry import Status
import pytest
from support.signed_policies import global_policy, own_policy, report_on, robot_directory

WRITTEN = 'robot_1 does not run: written down for its start: '
PLAN = Plan().changed({'learner': {'hidden': 4}})


@pytest.fixture
def layout(tmp_path):
    """Prepare a directory with a robot that has two versions, the older refused."""
    made = robot_directory(tmp_path / 'federation', PLAN)
    robot = RobotPolicies(made, 'robot_1')
    for number, forced in ((1, 0.9), (2, 0.1)):
        version = robot.registry.receive(global_policy(made.directory, number, number), 1e9)
        robot.files.save(version)
        report = report_on(version.policy, basis=basis(PLAN), force_failures=forced)
        robot.files.save_report(report)
    return made


def fdrl(layout, *words, code=0):
    done = CliRunner().invoke(
        commands.main, ['policies', *words, '--directory', str(layout.directory)]
    )
    assert done.exit_code == code, done.output
    return done.output


def test_list_tells_of_every_version_and_why_one_is_refused(layout):
    text = fdrl(layout, 'list')
    assert 'refused' in text and '2001-09-09 01:46:40' in text
    assert '90.0% of its operations end by force' in text
    assert 'robot_1 does not run: this is what it last wrote' in text
    assert 'not valued yet' in text and 'valuing' not in text
    assert text.endswith('when robot_1 runs: the selector drives\n')
    told = json.loads(fdrl(layout, 'list', '--json'))
    assert [(each['round'], each['status']) for each in told['policies']] == [
        (2, 'valuing'),
        (1, 'refused'),
    ]
    assert not told['running'] and told['policies'][0]['safety']['force_failures'] == 0.1


def test_list_tells_whose_a_policy_is_and_calls_that_of_the_robot_s_hospital_home(layout):
    home = layout.party('robot_1')
    assert hospital_of(home) == ''
    keep_hospital(home, 'hospital_2')
    robot = RobotPolicies(layout, 'robot_1')
    for name in ('hospital_1', 'hospital_2'):
        message = own_policy(layout.directory, name, len(name))
        robot.files.save(robot.registry.receive(message, 1e9))
    told = json.loads(fdrl(layout, 'list', '--json'))['policies']
    assert [(each['name'], each['owner']) for each in told] == [
        ('global', 'federation'),
        ('global', 'federation'),
        ('home', 'hospital_2'),
        ('hospital_1', 'hospital_1'),
    ]
    assert 'home' in fdrl(layout, 'veto', 'home')
    keep_hospital(home, '')
    names = [each['name'] for each in json.loads(fdrl(layout, 'list', '--json'))['policies']]
    assert 'home' not in names and 'hospital_2' in names


def test_show_tells_all_of_one_policy(layout):
    text = fdrl(layout, 'show', 'global')
    rows = [[each.strip() for each in line.strip('│').split('│')] for line in text.splitlines()]
    assert ['sender', 'key_authority'] in rows
    assert ['safety: force_failures', '0.9'] in rows and ['safety: finite', 'yes'] in rows
    assert '{' not in text
    (first, _) = json.loads(fdrl(layout, 'show', 'global', '--json'))
    assert len(first['digest']) == 64
    assert "robot_1 has no policy 'hospital_1': expected one of the policies global" in fdrl(
        layout, 'show', 'hospital_1', code=1
    )


def test_word_is_kept_until_it_is_taken_back(layout):
    assert 'hospital_1 is vetoed' in fdrl(layout, 'veto', 'hospital_1')
    assert 'vetoed: allow it' in fdrl(layout, 'lock', 'hospital_1', code=1)
    assert 'global alone may act' in fdrl(layout, 'lock', 'global')
    taken = fdrl(layout, 'take-over')
    assert taken.startswith(f'{WRITTEN}the surgeon drives')
    told = json.loads(fdrl(layout, 'list', '--json'))
    assert (told['driver'], told['locked'], told['vetoed']) == (
        'surgeon',
        'global',
        ['hospital_1'],
    )
    for words in (('allow', 'hospital_1'), ('unlock',), ('hand-back',)):
        last = fdrl(layout, *words)
    assert last == WRITTEN + 'the selector drives\n'


def test_pin_refuses_what_cannot_stand(layout):
    for version, words in (
        ('1', 'by force'),
        ('2', 'not valued yet'),
        ('3', 'expected one of the rounds that are kept, 2'),
        ('ef3', 'at least six digits'),
    ):
        assert words in fdrl(layout, 'pin', 'global', version, code=1)
    assert fdrl(layout, 'unpin', 'global') == WRITTEN + 'the selector drives\n'


def test_looking_puts_nothing_aside(layout):
    files = RobotPolicies(layout, 'robot_1').files
    broken = files.folder / 'global_0.policy'
    broken.write_bytes(b'broken')
    assert 'cannot be used' in fdrl(layout, 'list')
    assert broken.exists()


def test_while_a_node_has_the_files_the_word_goes_to_it(layout):
    """Without that node's DDS domain nobody answers; the files stay as they are."""
    robot = RobotPolicies(layout, 'robot_1')
    with robot.files.lock():
        assert json.loads(fdrl(layout, 'list', '--json'))['running']
        text = fdrl(layout, 'list')
    assert 'valuing' in text and 'does not run' not in text
    assert text.endswith('\nthe selector drives\n')


@pytest.mark.parametrize('as_json', [(), ('--json',)])
def test_robot_that_never_ran_is_said_to_have_no_policies(layout, as_json):
    folder = RobotPolicies(layout, 'robot_1').files.folder
    for each in folder.iterdir():
        each.unlink()
    text = fdrl(layout, 'list', *as_json, code=1)
    assert 'robot_1 has no policies yet' in text and '`fdrl run`' in text
    with RobotPolicies(layout, 'robot_1').files.lock():
        fdrl(layout, 'list', *as_json)


def test_without_a_directory_the_latest_run_is_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(commands.main, ['policies', 'list'])
    assert done.exit_code == 1
    assert 'runs/latest is not there' in done.output and '`fdrl run`' in done.output


@pytest.mark.parametrize(
    ('variable', 'words', 'domain'),
    [(None, (), 51), ('', (), 51), ('77', (), 77), ('77', ('--domain', '78'), 78)],
)
def test_running_selector_is_looked_for_in_the_domain_told_or_of_the_shell(
    layout, monkeypatch, variable, words, domain
):
    asked = []
    calls = SimpleNamespace(supervise=lambda *words: asked.append(words) or 'obeyed')
    monkeypatch.setitem(sys.modules, 'fdrl_ros.nodes.parties.operator_calls', calls)
    monkeypatch.setattr(policies, 'missing_ros', lambda: '')
    if variable is None:
        monkeypatch.delenv('ROS_DOMAIN_ID', raising=False)
    else:
        monkeypatch.setenv('ROS_DOMAIN_ID', variable)
    with RobotPolicies(layout, 'robot_1').files.lock():
        assert fdrl(layout, 'take-over', *words) == 'obeyed\n'
        in_north = ('--namespace', 'north')
        assert fdrl(layout, 'take-over', *words, *in_north) == 'obeyed\n'
        illegal = fdrl(layout, 'take-over', '--namespace', 'north-wing', code=1)
    assert asked == [(f'{root}/robot_1', domain, 'take_over', '') for root in ('', '/north')]
    assert "--namespace 'north-wing': expected a ROS namespace" in illegal


def test_a_robot_tells_by_status_whose_policies_it_has(layout):
    robot = RobotPolicies(layout, 'robot_1')
    assert robot.named(Status.VALUING) == robot.named(Status.REFUSED) == ['global']
    assert robot.named(Status.CANDIDATE) == []


def test_a_run_says_what_its_robot_could_not_choose_yet():
    def operation(candidates, waiting):
        return {'robot': 'robot_1', 'candidates': candidates, 'not_valued_yet': waiting}

    begun = operation([], ['global', 'hospital_1'])
    later = operation(['global'], ['hospital_1'])
    whole = operation(['global', 'hospital_1'], [])
    assert unvalued_policies([]) == unvalued_policies([whole]) == []
    (said,) = unvalued_policies([begun, later, whole])
    assert '2 of 3 operations' in said
    assert 'among hold, global, and not yet hospital_1.' in said


def test_a_robot_operates_once_it_has_and_has_valued_all_policies():
    released = {'global': 3, 'hospital_1': 3}

    def listed(rounds, *valuing):
        return PoliciesListed('robot_1', rounds, valuing)

    assert not has_valued(None, {})
    assert not has_valued(listed({}), {})
    assert not has_valued(listed({'global': 3}), released), 'hospital_1 has not come'
    assert not has_valued(listed({'global': 2, 'hospital_1': 3}), released), 'an older one'
    assert not has_valued(listed(released, 'hospital_1'), released)
    assert has_valued(listed({**released, 'hospital_2': 1}), released)


def test_a_policy_is_exported_as_its_robot_keeps_it_if_its_signature_holds(layout, tmp_path):
    pytest.importorskip('onnxruntime')
    robot = RobotPolicies(layout, 'robot_1')
    kept, other = (robot.files.path(each) for each in robot.registry.versions)
    target = tmp_path / 'policy.onnx'
    few = ('--evaluation-state-patients', '3', '--world-mode', 'kinematic')

    def export(path, code):
        words = ['policies', 'export', str(path), str(target), *few]
        done = CliRunner().invoke(commands.main, words)
        assert done.exit_code == code, done.output
        return done.output

    assert '100.00% of' in export(kept, 0)
    assert OnnxModel(target.read_bytes()).digest == robot.registry.versions[0].policy.digest
    content = other.read_bytes()
    other.write_bytes(content.replace(b'for a test', b'for a jest'))
    assert 'cannot be used' in export(other, 1) and 'signature' in export(other, 1)
    assert other.exists()
