# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The node graph for `ros2 launch`: declared actions whose values are read out of the node specs.

Which nodes there are, with what, and what their end means is said in fdrl_ros.deployment.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
import os
from pathlib import Path
import signal
import threading
from typing import Any

from fdrl_ros.deployment.bringup import (
    BringupSettings,
    environment,
    FederationArguments,
    NodeSpec,
)
from fdrl_ros.deployment.launch_files import (
    as_text,
    check,
    chosen,
    FILES,
    full_graph,
    graph,
    notices,
    parties,
)
from fdrl_ros.deployment.launch_files import (
    page as page_words,
)
from fdrl_ros.deployment.live.running import page_variables
from fdrl_ros.deployment.security.variables import is_on
from fdrl_ros.deployment.supervision import Ending, RESPAWN_DELAY
from fdrl_ros.errors import FdrlError, StoreError
from fdrl_ros.resources import PACKAGE, resource
from fdrl_ros.runtime.environment_variables import with_variables
from fdrl_ros.runtime.orphans import LAUNCHER, WITH_LAUNCHER
from fdrl_ros.settings import Value
from launch import Action, LaunchContext, Substitution
from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    ExecuteProcess,
    GroupAction,
    IncludeLaunchDescription,
    OpaqueFunction,
    PopLaunchConfigurations,
    PushLaunchConfigurations,
    RegisterEventHandler,
)
from launch.conditions import IfCondition
from launch.event_handlers import OnProcessExit, OnProcessStart, OnShutdown
from launch.events import IncludeLaunchDescription as Included
from launch.events import matches_action
from launch.events.process import ProcessExited, ProcessStarted, ShutdownProcess
from launch.launch_description_entity import LaunchDescriptionEntity
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.logging import get_logger
from launch.substitutions import LaunchConfiguration, TextSubstitution
from launch_ros.actions import LifecycleNode, Node
from launch_ros.parameter_descriptions import Parameter, ParameterValue
from launch_ros.substitutions import ExecutableInPackage
import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

_WATCHES = 'fdrl_ros_watches'


def arguments(file: str) -> list[Action]:
    """
    Declare every setting of a launch file as an argument, then refuse what cannot be.

    Each has its default, sentence and range. Declare further arguments before these.
    """
    declared = [
        DeclareLaunchArgument(
            each.name,
            default_value=as_text(each.default),
            description=f'{each.description}: {each.expected()}',
        )
        for kind in FILES[file]
        for each in kind.describe()
    ]
    return [*declared, OpaqueFunction(function=partial(_check, file))]


def nodes(file: str) -> list[Action]:
    """Return an action for each node that a launch file can start."""
    return [_action(file, spec) for spec in full_graph(file)]


def federation() -> list[Action]:
    """Prepare the directory, then include the launch files of all parties."""
    kept: dict[str, str] = {}

    def keep(context: LaunchContext) -> None:
        kept.update(context.launch_configurations)

    def prepared(context: LaunchContext) -> None:
        if context.locals.event.returncode:
            # An error, unlike the event Shutdown, makes launch end with exit code 1.
            directory = chosen(BringupSettings, kept).directory
            raise StoreError(f'{directory} could not be prepared: see above')
        # The group of actions that this file was included in has ended by now.
        context.launch_configurations.update(kept)

    prepare = _Preparation()
    then = [
        PushLaunchConfigurations(),
        OpaqueFunction(function=prepared),
        *(IncludeEach(file) for file in ('server', 'hospital', 'robot')),
        page('federation'),
        PopLaunchConfigurations(),
    ]
    return [
        OpaqueFunction(function=keep),
        RegisterEventHandler(OnProcessExit(target_action=prepare, on_exit=then)),
        prepare,
    ]


def texts(context: LaunchContext) -> dict[str, str]:
    """Return the arguments by name; `namespace` includes what a PushRosNamespace around says."""
    found = dict(context.launch_configurations)
    names = (found.get('ros_namespace', ''), found.get('namespace', ''))
    return {**found, 'namespace': '/'.join(each.strip('/') for each in names if each.strip('/'))}


def _check(file: str, context: LaunchContext) -> None:
    """
    Refuse what cannot be, and warn of what may not do.

    Launch itself ignores unknown arguments: `evn:=false` would start the simulated arm beside a
    real one. A launch file that includes ours may take arguments that it does not declare.
    """
    event = context.locals.event
    source = resource(f'launch/{file}.launch.py').resolve()
    given = None
    if isinstance(event, Included) and any(
        isinstance(each, IncludeLaunchDescription)
        and Path(each.launch_description_source.location).resolve() == source
        for each in event.launch_description.entities
    ):
        words = (word.partition(':=') for word in context.argv)
        ours = ('launch-prefix', 'launch-prefix-filter')
        given = {name: value for name, _, value in words if name not in ours}
    check(file, texts(context), given)
    for warning in notices(file, texts(context)):
        get_logger(PACKAGE).warning(warning)


class OfNode(Substitution):
    """
    A value of a node in the graph that the arguments ask for.

    :param read: returns the value.
    :param what: the value is.
    """

    def __init__(self, file: str, name: str, what: str, read: Callable[[NodeSpec], Value]) -> None:
        """Keep what to read."""
        super().__init__()
        self._file, self._name, self._what, self._read = file, name, what, read

    def describe(self) -> str:
        """Say it as launch shows it."""
        return f'{self._name}.{self._what}'

    def perform(self, context: LaunchContext) -> str:
        """Return the value as a text."""
        return as_text(self._read(find(self._file, self._name, context)))


class InGraph(OfNode):
    """Whether the graph that the arguments ask for has a node."""

    def __init__(self, file: str, name: str) -> None:
        """Keep which node."""
        super().__init__(file, name, 'wanted', bool)

    def perform(self, context: LaunchContext) -> str:
        """Return 'true' or 'false'."""
        specs = graph(self._file, texts(context))
        return as_text(any(each.name == self._name for each in specs))


def find(file: str, name: str, context: LaunchContext) -> NodeSpec:
    """Return a node of the graph that the arguments ask for."""
    return next(each for each in graph(file, texts(context)) if each.name == name)


class ForeignNode(Node):
    """A node of another package, such as robot_state_publisher, beside ours."""

    def __init__(self, file: str, spec: NodeSpec, **named: Any) -> None:
        """Keep which node of which launch file this is."""
        super().__init__(**named)
        self._find = partial(find, file, spec.name)

    def execute(self, context: LaunchContext) -> list[Action] | None:
        """Start the node with the variables of its domain."""
        _end_late_starts(self, context)
        with with_variables(_variables(context, self._find(context))):
            started: list[Action] | None = super().execute(context)
            return started


class OurNode(LifecycleNode):
    """
    A node of ours, whose lifecycle events bind in whatever DDS domain it lives.

    launch_ros has one ROS node for all lifecycle nodes, in the domain of the launch; this gives
    it one in the node's own domain. Where DDS Security is on, the launch has no keys and joins no
    domain: the node starts all the same, and those events bind to nothing.
    """

    def __init__(self, file: str, spec: NodeSpec, **named: Any) -> None:
        """Keep which node of which launch file this is."""
        super().__init__(**named)
        self._find = partial(find, file, spec.name)

    def execute(self, context: LaunchContext) -> list[Action] | None:
        """Start the node with the variables of its domain and the site's parameters."""
        spec = self._find(context)
        self._perform_substitutions(context)
        if spec.parameter_file:
            # Last, so that what the site says counts: above all that an arm is not armed.
            words = ('--params-file', os.path.abspath(spec.parameter_file))
            self.cmd.extend([TextSubstitution(text=word)] for word in words)
        _end_late_starts(self, context)
        with with_variables(_variables(context, spec)):
            if is_on(os.environ):
                get_logger(PACKAGE).warning(
                    f'DDS Security is on: events do not bind to {spec.full_name}, call its '
                    'lifecycle services with the enclave of an operator'
                )
                unbound: list[Action] | None = Node.execute(self, context)
                return unbound
            watch = _watch(context, spec.domain)
            context._push_locals()
            try:
                # launch_ros looks here for its ROS node.
                context.extend_locals({'ros_adapter': watch})
                started: list[Action] | None = super().execute(context)
            finally:
                context._pop_locals()
        return started


class DomainWatch:
    """
    A ROS node of the launch in one DDS domain, where launch_ros expects its adapter.

    :param domain: to be in, by the middleware's variables of this very moment.
    """

    def __init__(self, domain: int) -> None:
        """Make the node, and spin it in a thread."""
        self._context = rclpy.Context()
        rclpy.init(args=[], context=self._context, domain_id=domain)
        self.ros_node = rclpy.create_node(f'launch_ros_{os.getpid()}', context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.ros_node)
        self._thread = threading.Thread(target=self._spin, name=f'domain {domain}')
        self._thread.start()

    def _spin(self) -> None:
        with suppress(ExternalShutdownException):
            self._executor.spin()

    def close(self) -> None:
        """End the thread, then the node."""
        self._context.try_shutdown()
        self._thread.join()
        self._executor.shutdown()
        self.ros_node.destroy_node()


class IncludeEach(Action):
    """Include a launch file once for each party of a federation that its arguments ask for."""

    def __init__(self, file: str, **named: Any) -> None:
        """Keep which file."""
        super().__init__(**named)
        self._file = file

    def __repr__(self) -> str:
        """Say it as launch shows it."""
        return f'IncludeEach({self._file}.launch.py, once for each that the arguments ask for)'

    def execute(self, context: LaunchContext) -> list[Action]:
        """Return the inclusions."""
        source = str(resource(f'launch/{self._file}.launch.py'))
        return [
            GroupAction(
                [
                    IncludeLaunchDescription(
                        PythonLaunchDescriptionSource(source), launch_arguments=given.items()
                    )
                ]
            )
            for file, given in parties(context.launch_configurations)
            if file == self._file
        ]


def page(file: str) -> Action:
    """Return the page of a launch file, which is served if its arguments ask for it."""
    return _Page(file)


class _Page(ExecuteProcess):
    """The page: a process that looks on; whatever happens to it, the nodes go on."""

    def __init__(self, file: str) -> None:
        super().__init__(
            cmd=[ExecutableInPackage('fdrl', PACKAGE)],
            output='screen',
            condition=IfCondition(LaunchConfiguration('page')),
        )
        self._file = file

    def execute(self, context: LaunchContext) -> list[LaunchDescriptionEntity] | None:
        """Start it with the words that the arguments make."""
        given = texts(context)
        self.cmd.extend([TextSubstitution(text=word)] for word in page_words(self._file, given))
        with with_variables(page_variables(chosen(BringupSettings, given))):
            started: list[LaunchDescriptionEntity] | None = super().execute(context)
        return started


class _Preparation(ExecuteProcess):
    """The process that makes the directory ready; it has the learning stack."""

    def __init__(self) -> None:
        command = [ExecutableInPackage('fdrl', PACKAGE)]
        variables = {LAUNCHER: str(os.getpid())}
        super().__init__(cmd=command, additional_env=variables, output='screen')

    def execute(self, context: LaunchContext) -> list[LaunchDescriptionEntity] | None:
        """Start it with the words that the arguments make."""
        given = context.launch_configurations
        directory = chosen(BringupSettings, given).directory
        words = chosen(FederationArguments, given).prepare_words(directory)
        self.cmd.extend([TextSubstitution(text=word)] for word in words)
        started: list[LaunchDescriptionEntity] | None = super().execute(context)
        return started


def _action(file: str, spec: NodeSpec) -> Action:
    """Declare a node: which one is known now, its values when it starts."""

    def read(what: str, value: Callable[[NodeSpec], Value]) -> OfNode:
        return OfNode(file, spec.name, what, value)

    def parameter(name: str) -> OfNode:
        return read(name, lambda found: found.parameters[name])

    def argument(place: int) -> OfNode:
        return read(f'arguments[{place}]', lambda found: found.arguments[place])

    def remapping(place: int) -> tuple[str, OfNode]:
        name = spec.remappings[place][0]
        return name, read(name, lambda found: found.remappings[place][1])

    ours = spec.package == PACKAGE
    given = spec.parameters.items()
    return (OurNode if ours else ForeignNode)(
        file,
        spec,
        package=spec.package,
        executable=spec.executable,
        namespace=read('namespace', lambda found: found.namespace),
        name=spec.name,
        # Ours as `-p`, like the plain runner: a site's file then means the same to both.
        parameters=(
            [Parameter(name, parameter(name), value_type=type(each)) for name, each in given]
            if ours
            else [{name: ParameterValue(parameter(name), value_type=type(e)) for name, e in given}]
        ),
        arguments=[argument(place) for place in range(len(spec.arguments))],
        ros_arguments=[
            *('--log-level', LaunchConfiguration('log_level')),
            *('--enclave', read('enclave', lambda found: found.full_name)),
        ],
        remappings=[remapping(place) for place in range(len(spec.remappings))],
        respawn=read('respawn', lambda found: found.respawn),
        respawn_delay=RESPAWN_DELAY,
        on_exit=partial(_ended, ours),
        output='both',
        sigterm_timeout='15',
        sigkill_timeout='5',
        condition=IfCondition(InGraph(file, spec.name)),
        **({} if ours else {'prefix': ' '.join(WITH_LAUNCHER)}),
    )


def _ended(ours: bool, event: ProcessExited, context: LaunchContext) -> EmitEvent | None:
    """Leave a node ended that was told to, and end the launch if it cannot begin."""
    if context.is_shutdown:
        return None
    match Ending.of(event.returncode, ours=ours):
        case Ending.STOPPED:
            return EmitEvent(event=ShutdownProcess(process_matcher=matches_action(event.action)))
        case Ending.REFUSED:
            # An error, unlike the event Shutdown, makes launch end with exit code 1.
            raise FdrlError(f'{event.action.node_name} cannot begin: see above')
    return None


def _end_late_starts(action: Action, context: LaunchContext) -> None:
    """
    End a node at once that is started while the launch ends.

    When a shutdown meets a respawn, launch signals the process before and waits for the new one.
    """

    def end(event: ProcessStarted, context: LaunchContext) -> None:
        if context.is_shutdown:
            with suppress(ProcessLookupError):
                os.kill(event.pid, signal.SIGTERM)

    context.register_event_handler(OnProcessStart(target_action=action, on_start=end))


def _variables(context: LaunchContext, spec: NodeSpec) -> Mapping[str, str]:
    """Return the environment variables that a node runs with."""
    return environment(chosen(BringupSettings, texts(context)), spec.domain)


def _watch(context: LaunchContext, domain: int) -> DomainWatch:
    """Return the launch's ROS node in a domain, the same one for all nodes there."""
    watches: dict[int, DomainWatch] = context.get_locals_as_dict().get(_WATCHES, {})
    if domain not in watches:
        watch = watches[domain] = DomainWatch(domain)
        context.extend_globals({_WATCHES: watches})
        context.register_event_handler(OnShutdown(on_shutdown=lambda *_: watch.close()))
    return watches[domain]
