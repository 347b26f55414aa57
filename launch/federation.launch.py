# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A whole federation on this host: prepare its directory, then servers, hospitals and robots.

Simulated, for research: not a medical device.
"""

from pathlib import Path

from fdrl_ros.deployment.bringup import BringupSettings, FederationArguments, RoomArguments
from fdrl_ros.errors import StoreError
from fdrl_ros.nodes.common.launching import chosen, declare, preparation
from launch import LaunchContext, LaunchDescription
from launch.actions import (
    IncludeLaunchDescription,
    OpaqueFunction,
    RegisterEventHandler,
)
from launch.event_handlers import OnProcessExit
from launch.launch_description_entity import LaunchDescriptionEntity
from launch.launch_description_sources import PythonLaunchDescriptionSource

HERE = Path(__file__).parent


def include(name: str, **arguments: object) -> IncludeLaunchDescription:
    return IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(HERE / f'{name}.launch.py')),
        launch_arguments=[(key, str(value)) for key, value in arguments.items()],
    )


def start(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    settings = chosen(context, BringupSettings)
    arguments = chosen(context, FederationArguments)
    room = chosen(context, RoomArguments)
    prepare = preparation(settings, arguments)
    nodes = [
        include('server'),
        *(include('hospital', hospital=each) for each in arguments.hospital_names),
        *(
            include(
                'robot',
                robot=each,
                operations=arguments.operations,
                # One of them shows itself and makes the time of all.
                rviz=room.rviz and each == 'robot_1',
                publish_clock=room.publish_clock and each == 'robot_1',
            )
            for each in arguments.robot_names
        ),
    ]

    def prepared(event, context: LaunchContext) -> list[LaunchDescriptionEntity]:
        if event.returncode:
            # An error, unlike the event Shutdown, makes launch end with exit code 1.
            raise StoreError(f'{settings.directory} could not be prepared: see above')
        return nodes

    return [RegisterEventHandler(OnProcessExit(target_action=prepare, on_exit=prepared)), prepare]


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription(
        [
            *declare(FederationArguments, RoomArguments, BringupSettings),
            OpaqueFunction(function=start),
        ]
    )
