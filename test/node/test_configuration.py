# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The files in config/ say what the nodes say: topics and types, parameters and defaults."""

from pathlib import Path
import sys

from fdrl_ros.deployment.bringup import (
    BringupSettings,
    hospital_graph,
    robot_graph,
    RoomArguments,
    server_graph,
)
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.nodes.aggregator import AggregatorNode
from fdrl_ros.nodes.arm.arm_readings import READINGS
from fdrl_ros.nodes.arm.endoscope_view import IMAGES
from fdrl_ros.nodes.arm.markers import NAMESPACE
from fdrl_ros.nodes.common.managed_node import ManagedNode, NodeSettings
from fdrl_ros.nodes.env import EnvNode
from fdrl_ros.nodes.key_authority import KeyAuthorityNode
from fdrl_ros.nodes.monitor import MonitorNode
from fdrl_ros.nodes.segmenter import SegmenterNode
from fdrl_ros.nodes.selector import SelectorNode
from fdrl_ros.nodes.trainer import TrainerNode
from fdrl_ros.resources import resource
from fdrl_ros.settings import Setting, Value
from fdrl_ros.surgery.arm.readings import BASE, TIP
from fdrl_ros.surgery.render.camera import FRAME_ID
import pytest
import yaml

FILES: dict[str, dict[str, type[ManagedNode]]] = {
    'server': {'aggregator': AggregatorNode, 'key_authority': KeyAuthorityNode},
    'hospital': {'trainer': TrainerNode},
    'robot': {
        'env': EnvNode,
        'monitor': MonitorNode,
        'segmenter': SegmenterNode,
        'selector': SelectorNode,
    },
}
GRAPHS = {
    'server': server_graph(BringupSettings()),
    'hospital': hospital_graph(BringupSettings(), 'hospital_1'),
    'robot': (
        *robot_graph(BringupSettings(), 'robot_1'),
        *robot_graph(BringupSettings(), 'robot_1', room=RoomArguments(env=False), plan='a.yaml'),
        *robot_graph(BringupSettings(), 'robot_1', room=RoomArguments(segmenter='a.npz')),
    ),
}
DISPLAYED = {
    'rviz_default_plugins/Image': 'Image',
    'rviz_default_plugins/MarkerArray': 'MarkerArray',
    'rviz_default_plugins/Pose': 'PoseStamped',
    'rviz_default_plugins/Wrench': 'WrenchStamped',
}
PUBLISHED = (
    {name: kind.__name__ for name, (kind, _) in READINGS.items()}
    | {f'endoscope/{name}': 'Image' for name in IMAGES}
    | {'markers': 'MarkerArray', 'segmenter/overlay': 'Image'}
)


def test_rviz_shows_topics_that_are_published_with_their_type():
    shown = yaml.safe_load(resource('config/robot.rviz').read_text())
    displays = shown['Visualization Manager']['Displays']
    topics = [each for each in displays if 'Topic' in each]
    for each in topics:
        name = each['Topic']['Value']
        assert not name.startswith('/'), 'rviz runs in the namespace of the robot'
        assert PUBLISHED[name] == DISPLAYED[each['Class']]
    named = {each['Topic']['Value'] for each in topics}
    assert {'markers', 'endoscope/image_raw', 'body/measured_cf', 'setpoint_cp'} <= named
    assert 'segmenter/overlay' in named
    frames = resource('urdf/psm.urdf').read_text()
    fixed = shown['Visualization Manager']['Global Options']['Fixed Frame']
    for frame in (fixed, 'table', BASE, TIP, FRAME_ID):
        assert f'<link name="{frame}"' in frames


def test_rviz_shows_every_marker_and_the_arm_by_its_description():
    shown = yaml.safe_load(resource('config/robot.rviz').read_text())
    displays = {each['Class']: each for each in shown['Visualization Manager']['Displays']}
    for each in shown['Visualization Manager']['Displays']:
        topic = each.get('Topic', {}).get('Value', '')
        assert not (each['Enabled'] and topic.startswith(('endoscope', 'segmenter'))), (
            'it is off by default'
        )
    markers = displays['rviz_default_plugins/MarkerArray']
    assert markers['Enabled'] and markers['Namespaces'] == {NAMESPACE: True}
    arm = displays['rviz_default_plugins/RobotModel']
    assert arm['Enabled'] and arm['Description Topic']['Value'] == 'robot_description'


def test_joint_states_name_the_joints_of_the_urdf():
    from fdrl_ros.surgery.arm.kinematics import JAW, JOINTS

    description = resource('urdf/psm.urdf').read_text()
    for name in (*JOINTS, JAW):
        assert f'<joint name="{name}"' in description


@pytest.mark.parametrize('name', FILES)
def test_parameter_file_holds_every_parameter_with_its_default(name):
    text = resource(f'config/{name}.yaml').read_text()
    assert text == parameter_file(name), 'python test/node/test_configuration.py config'


@pytest.mark.parametrize('name', FILES)
def test_shipped_parameter_file_changes_nothing_that_the_graph_says(name):
    sections = yaml.safe_load(resource(f'config/{name}.yaml').read_text())
    for spec in GRAPHS[name]:
        said = sections[f'/**/{spec.executable}']['ros__parameters']
        own = {key for key, value in said.items() if not isinstance(value, dict)}
        assert not own & spec.parameters.keys()


def parameter_file(name: str) -> str:
    """Write what config/<name>.yaml must be."""
    lines = [
        f'# Parameters of a {name}, for `parameters:=` of the launch files. They override the',
        '# plan and what the launch files set: delete every line that you do not change. A line',
        '# that is commented out has its value from the launch files.',
    ]
    for executable, node in FILES[name].items():
        said = {each for spec in GRAPHS[name] for each in spec.parameters}
        lines += [f'/**/{executable}:', '  ros__parameters:']
        common = {each.name for each in NodeSettings.describe()}
        for setting in node.own.describe():
            if setting.name not in common:
                comment, line = described(setting, '    ', setting.default)
                mark = '    # ' if setting.name in said else '    '
                lines += [comment, mark + line.strip()]
        groups = {each: Plan.groups()[each] for each in node.groups} | node.further
        defaults = Plan().of_task()
        for group, settings in groups.items():
            lines.append(f'    {group}:')
            usual = getattr(defaults, group, settings())
            for setting in settings.describe():
                lines += described(setting, '      ', getattr(usual, setting.name))
    return '\n'.join(lines) + '\n'


def described(setting: Setting, indent: str, value: Value) -> list[str]:
    """Return the comment and the line of one parameter."""
    text = yaml.safe_dump(value, default_flow_style=True).splitlines()[0]
    comment = f'{setting.description}: {setting.expected()}'
    return [f'{indent}# {comment}', f'{indent}{setting.name}: {text}']


if __name__ == '__main__':
    for each in FILES:
        (Path(sys.argv[1]) / f'{each}.yaml').write_text(parameter_file(each), 'utf-8')
