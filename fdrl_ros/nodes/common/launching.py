# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The node graph for `ros2 launch`: arguments out of settings, actions out of node specs."""

from collections.abc import Callable, Iterable
import os
from pathlib import Path
import shlex
from typing import TypeVar

from fdrl_ros.deployment.bringup import (
    BringupSettings,
    environment,
    FederationArguments,
    NodeSpec,
    PLAN_FILE,
)
from fdrl_ros.errors import SettingError
from fdrl_ros.resources import resource
from fdrl_ros.runtime.orphans import LAUNCHER
from fdrl_ros.settings import named_among, Setting, Settings, Value
from launch import LaunchContext
from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    IncludeLaunchDescription,
    OpaqueFunction,
)
from launch.events import IncludeLaunchDescription as Included
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.substitutions import ExecutableInPackage

PACKAGE = 'fdrl_ros'

S = TypeVar('S', bound=Settings)


def declare(*kinds: type[Settings]) -> list[DeclareLaunchArgument | OpaqueFunction]:
    """
    Declare every setting as an argument with its default, sentence and range.

    What comes with them refuses all undeclared arguments: declare further ones before these.
    """
    declared = [
        DeclareLaunchArgument(
            each.name,
            default_value=_text(each.default),
            description=f'{each.description}: {each.expected()}',
        )
        for kind in kinds
        for each in kind.describe()
    ]
    return [*declared, OpaqueFunction(function=_refuse_unknown)]


def _refuse_unknown(context: LaunchContext) -> None:
    """
    Refuse unknown arguments of `ros2 launch`, if it was given one of our files.

    Launch itself ignores them: `evn:=false` would start the simulated arm beside a real one. A
    launch file that includes ours may take arguments that it does not declare.

    :raises SettingError: naming the first.
    """
    event = context.locals.event
    if not isinstance(event, Included):
        return
    given, ours = event.launch_description, resource('launch/robot.launch.py').resolve().parent
    if not any(
        isinstance(each, IncludeLaunchDescription)
        and Path(each.launch_description_source.location).resolve().parent == ours
        for each in given.entities
    ):
        return
    known = [each.name for each in given.get_launch_arguments()]
    for name, _, value in (word.partition(':=') for word in context.argv):
        if name not in (*known, 'launch-prefix', 'launch-prefix-filter'):
            raise SettingError(name, value, named_among(name, 'arguments', known))


def chosen(context: LaunchContext, kind: type[S]) -> S:
    """
    Read the arguments back.

    :raises SettingError: if one cannot be; the launch then ends with its reason.
    """
    values = {
        each.name: _value(each, LaunchConfiguration(each.name).perform(context))
        for each in kind.describe()
    }
    return kind.from_mapping(values)


def graph(specs: Callable[[LaunchContext, BringupSettings], Iterable[NodeSpec]]) -> OpaqueFunction:
    """Start the nodes that a function of the arguments names."""

    def start(context: LaunchContext) -> list[Node]:
        settings = chosen(context, BringupSettings)
        nodes = [action(settings, spec) for spec in specs(context, settings)]
        if not Path(settings.directory, PLAN_FILE).exists():
            expected = 'one that `fdrl prepare` or `fdrl run` made, such as runs/latest/federation'
            raise SettingError('directory', settings.directory, expected)
        return nodes

    return OpaqueFunction(function=start)


def action(settings: BringupSettings, spec: NodeSpec) -> Node:
    """Turn a node's data into what launch starts."""
    return Node(
        package=PACKAGE,
        executable=spec.executable,
        namespace=spec.namespace,
        name=spec.name,
        # The site's file last, so that what it says counts: above all that an arm is not armed.
        parameters=[dict(spec.parameters), *filter(None, [spec.parameter_file])],
        additional_env=environment(settings, spec.domain),
        output='both',
        sigterm_timeout='15',
        sigkill_timeout='5',
    )


def preparation(settings: BringupSettings, arguments: FederationArguments) -> ExecuteProcess:
    """Return the process that makes the directory ready; it has the learning stack."""
    return ExecuteProcess(
        cmd=[
            ExecutableInPackage('fdrl', PACKAGE),
            'prepare',
            settings.directory,
            '--hospitals',
            str(arguments.hospitals),
            '--rounds',
            str(arguments.rounds),
            *shlex.split(arguments.options),
        ],
        additional_env={LAUNCHER: str(os.getpid())},
        output='screen',
    )


def _text(default: Value) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def _value(each: Setting, text: str) -> Value:
    """Read an argument in its setting's type; what cannot be read is left for the check."""
    if each.type is bool:
        return {'true': True, 'false': False}.get(text.lower(), text)
    if text.lower() in each.choices:
        return text.lower()
    try:
        return each.type(text)
    except ValueError:
        return text
