# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Files of ROS parameters: for which nodes their sections are."""

from fdrl_ros.deployment.parameter_files import flattened, given_by_wildcards, may_be_of, sections
import pytest

NODE = '/north/robot_1/selector'


@pytest.fixture
def file(tmp_path):
    """Return who writes a parameter file."""

    def write(text: str) -> str:
        path = tmp_path / 'site.yaml'
        path.write_text(text)
        return str(path)

    return write


def test_nested_sections_and_parameters_are_read_by_their_full_names(file):
    path = file('north: {robot_1: {selector: {ros__parameters: {limiter: {speed_limit: 0.05}}}}}')
    ((node, values),) = sections(path)
    assert node == NODE and flattened(values) == {'limiter.speed_limit': 0.05}


@pytest.mark.parametrize('section', ['/**', '/*/*/*', '/north/**', '/north/robot_1/*', '/**/*'])
def test_what_many_nodes_are_given_may_be_for_others(file, section):
    path = file(f'{section}: {{ros__parameters: {{rate: 5, camera: {{width: 9}}}}}}')
    words = ['selector', '--ros-args', '--params-file', path]
    assert given_by_wildcards(words, NODE) == {'rate', 'camera.width'}
    for named in (['-p', 'rate:=5'], ['--param', 'selector:rate:=5']):
        assert given_by_wildcards([*words, *named], NODE) == {'camera.width'}
    assert given_by_wildcards([*words, '--', '-p', 'rate:=5'], NODE) == {'rate', 'camera.width'}


@pytest.mark.parametrize('section', ['/**/selector', NODE, '/north/*/selector'])
def test_what_a_node_is_given_by_its_name_is_for_it(file, section):
    path = file(f'{section}: {{ros__parameters: {{rate: 5}}}}')
    words = ['--ros-args', '--params-file', path]
    assert given_by_wildcards(words, NODE) == set()
    path = file(
        f'/**: {{ros__parameters: {{rate: 5}}}}\n{section}: {{ros__parameters: {{rate: 5}}}}'
    )
    assert given_by_wildcards(words, NODE) == set()


@pytest.mark.parametrize('section', ['/robot_1/*', '/*', '/*/*', '/**/env', '/north/robot_1'])
def test_sections_of_others_give_a_node_nothing(file, section):
    path = file(f'{section}: {{ros__parameters: {{rate: 5}}}}')
    assert given_by_wildcards(['--ros-args', '--params-file', path], NODE) == set()


def test_section_may_be_of_a_node_by_its_name_or_a_wildcard_wherever_it_is():
    assert all(may_be_of(each, 'selector') for each in ('/**', '/robot_1/*', '/any/selector'))
    assert not any(may_be_of(each, 'selector') for each in ('/env', '/selector/env', '/**/camera'))
