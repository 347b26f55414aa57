# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The files in config/ say what the nodes say: topics and types, parameters and defaults."""

from pathlib import Path
import sys

from fdrl_ros.nodes import env
from fdrl_ros.nodes.aggregator import AggregatorNode
from fdrl_ros.nodes.env import EnvNode
from fdrl_ros.nodes.key_authority import KeyAuthorityNode
from fdrl_ros.nodes.managed_node import ManagedNode, NodeSettings
from fdrl_ros.nodes.selector import SelectorNode
from fdrl_ros.nodes.trainer import TrainerNode
from fdrl_ros.plan import Plan
from fdrl_ros.resources import resource
from fdrl_ros.settings import Setting
import pytest
import yaml

FILES: dict[str, dict[str, type[ManagedNode]]] = {
    'server': {'aggregator': AggregatorNode, 'key_authority': KeyAuthorityNode},
    'hospital': {'trainer': TrainerNode},
    'robot': {'env': EnvNode, 'selector': SelectorNode},
}
DISPLAYED = {
    'rviz_default_plugins/MarkerArray': 'MarkerArray',
    'rviz_default_plugins/Wrench': 'WrenchStamped',
    'rviz_default_plugins/Pose': 'PoseStamped',
}
PUBLISHED = {name: kind.__name__ for name, kind in env._MEASURED.items()} | {
    'markers': 'MarkerArray'
}


def test_rviz_shows_topics_that_are_published_with_their_type():
    shown = yaml.safe_load(resource('config/robot.rviz').read_text())
    displays = shown['Visualization Manager']['Displays']
    topics = [each for each in displays if 'Topic' in each]
    assert len(topics) >= 3
    for each in topics:
        name = each['Topic']['Value']
        assert not name.startswith('/'), 'rviz runs in the namespace of the robot'
        assert PUBLISHED[name] == DISPLAYED[each['Class']]
    frames = resource('urdf/psm.urdf').read_text()
    for frame in (shown['Visualization Manager']['Global Options']['Fixed Frame'], 'table'):
        assert f'<link name="{frame}"' in frames


def test_joint_states_name_the_joints_of_the_urdf():
    from fdrl_ros.env.arm import JAW, JOINTS

    description = resource('urdf/psm.urdf').read_text()
    for name in (*JOINTS, JAW):
        assert f'<joint name="{name}"' in description


@pytest.mark.parametrize('name', FILES)
def test_parameter_file_holds_every_parameter_with_its_default(name):
    text = resource(f'config/{name}.yaml').read_text()
    assert text == parameter_file(name), 'python test/node/test_configuration.py config'


def parameter_file(name: str) -> str:
    """Write what config/<name>.yaml must be."""
    lines = [
        f'# Parameters of a {name}, as `parameters:=` of the launch files takes them. Those of a',
        '# group of the plan go before the plan of the directory: keep what you mean to change.',
    ]
    for executable, node in FILES[name].items():
        lines += [f'/**/{executable}:', '  ros__parameters:']
        common = {each.name for each in NodeSettings.describe()}
        for setting in node.own.describe():
            if setting.name not in common:
                lines += described(setting, '    ')
        groups = {each: Plan.groups()[each] for each in node.groups} | node.further
        for group, settings in groups.items():
            lines.append(f'    {group}:')
            for setting in settings.describe():
                lines += described(setting, '      ')
    return '\n'.join(lines) + '\n'


def described(setting: Setting, indent: str) -> list[str]:
    """Return the comment and the line of one parameter."""
    value = yaml.safe_dump(setting.default, default_flow_style=True).splitlines()[0]
    comment = f'{setting.description}: {setting.expected()}'
    return [f'{indent}# {comment}', f'{indent}{setting.name}: {value}']


if __name__ == '__main__':
    for each in FILES:
        (Path(sys.argv[1]) / f'{each}.yaml').write_text(parameter_file(each), 'utf-8')
