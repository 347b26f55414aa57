# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Topics of a robot in a bag (rosbag2: MCAP or SQLite) and their messages, read from msg/*.msg."""

from functools import lru_cache
from typing import Any

from fdrl_ros.errors import ResourceError
from fdrl_ros.resources import resource

OPERATION, PATIENT = 'operation_state', 'patient_state'
ACTION, OUTCOME, EPISODE = 'action', 'outcome', 'episode'

OURS = {
    OPERATION: 'OperationState',
    PATIENT: 'PatientState',
    ACTION: 'SelectedAction',
    OUTCOME: 'Outcome',
}
"""Topics with messages of this package."""
ARM_STATE = 'operating_state'
ARM_STATE_KINDS = ('fdrl_ros/msg/OperatingState', 'crtk_msgs/msg/OperatingState')
"""CRTK's operating state, which an arm may tell: of two types with the same fields."""

TOPICS: dict[str, str] = {
    **{topic: f'fdrl_ros/msg/{kind}' for topic, kind in OURS.items()},
    'measured_js': 'sensor_msgs/msg/JointState',
    'setpoint_js': 'sensor_msgs/msg/JointState',
    'jaw/measured_js': 'sensor_msgs/msg/JointState',
    'joint_states': 'sensor_msgs/msg/JointState',
    'measured_cp': 'geometry_msgs/msg/PoseStamped',
    'setpoint_cp': 'geometry_msgs/msg/PoseStamped',
    'body/measured_cf': 'geometry_msgs/msg/WrenchStamped',
    'spatial/measured_cf': 'geometry_msgs/msg/WrenchStamped',
    EPISODE: 'std_msgs/msg/String',
}
"""
Every topic that is written, below the robot's namespace.

`episode` is of recordings alone: what no robot measures, and a replay needs, as JSON.
"""


def bags() -> Any:
    """
    Return the library that reads and writes bags, which not all users need.

    :raises ResourceError: if it is not installed.
    """
    try:
        import rosbags.rosbag2
    except ImportError as error:
        raise ResourceError(
            f'bags need the rosbags library ({error}): pip install "fdrl_ros[bags]"'
        ) from error
    return rosbags.rosbag2


@lru_cache(maxsize=1)
def message_types() -> Any:
    """
    Return the store of all message types: those of ROS 2 Kilted, and ours out of msg/*.msg.

    :raises ResourceError: if the library or a definition is missing.
    """
    bags()
    from rosbags.typesys import get_types_from_msg, get_typestore, Stores

    store = get_typestore(Stores.ROS2_KILTED)
    for name in OURS.values():
        text = resource(f'msg/{name}.msg').read_text('utf-8')
        store.register(get_types_from_msg(text, f'fdrl_ros/msg/{name}'))
    text = resource('msg/OperatingState.msg').read_text('utf-8')
    for kind in ARM_STATE_KINDS:
        store.register(get_types_from_msg(text, kind))
    return store
