# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A dataset as a bag (rosbag2, MCAP or SQLite), so that `ros2 bag play` shows each operation.

Every operation is gone through again for what the dataset leaves out: joints and forces. The bag
has the topics of a robot, once a tick, and `episode` besides.
"""

from collections.abc import Callable
import json
from pathlib import Path
import shutil
from typing import Any

from fdrl_ros.errors import RecordsError, SettingError
from fdrl_ros.surgery.arm.kinematics import JAW, JOINTS
from fdrl_ros.surgery.arm.readings import BASE, read, Readings, TIP
from fdrl_ros.surgery.arm.rotations import to_quaternion
from fdrl_ros.surgery.data.bag_types import (
    ACTION,
    bags,
    EPISODE,
    message_types,
    OPERATION,
    OUTCOME,
    PATIENT,
    TOPICS,
)
from fdrl_ros.surgery.data.dataset import Dataset
from fdrl_ros.surgery.data.identity import identity
from fdrl_ros.surgery.data.json_dataclasses import to_plain
from fdrl_ros.surgery.data.replaying import replay
from fdrl_ros.surgery.gym.actions import displacement, TICK
from fdrl_ros.surgery.gym.episode import Episode
from fdrl_ros.surgery.gym.state import OPERATION_FIELDS, OPERATION_SIZE, PATIENT_FIELDS, unscale
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
import numpy as np

Progress = Callable[[int, int], None]
"""How many of how many are done."""

Contents = dict[str, dict[str, Any]]
"""Fields of messages, by topic."""

STORAGES = ('mcap', 'sqlite3')
PAUSE = 2.0
"""Between two operations, s."""

_VERSION = 9  # of rosbag2's metadata: what ROS 2 Jazzy and Kilted write and read
_START = 1_000_000_000  # ns; a stamp of zero would be none
_TICK = round(TICK * 1e9)


def write_bag(
    dataset: Dataset,
    path: Path,
    *,
    robot: str = 'robot_1',
    storage: str = 'mcap',
    progress: Progress = lambda done, count: None,
) -> None:
    """
    Write all operations, one after the other, as the folder that rosbag2 calls a bag.

    :param path: of the folder; it must not exist.
    :param robot: namespace of the topics.
    :param progress: told after each operation.
    :raises RecordsError: if an operation does not replay, or the bag cannot be written.
    :raises SettingError: on another storage, or a namespace that is none.
    """
    if storage not in STORAGES:
        raise SettingError('storage', storage, 'one of ' + ', '.join(STORAGES))
    if not robot.isidentifier():
        raise SettingError('robot', robot, 'a name of letters, digits and underscores')
    if path.exists():
        raise RecordsError(f'{path} exists already and is not written over')
    library = bags()
    part = path.with_name(path.name + '.part')
    if part.exists():
        shutil.rmtree(part)
    plugin = library.StoragePlugin[storage.upper()]
    try:
        with library.Writer(part / path.name, version=_VERSION, storage_plugin=plugin) as writer:
            _Pen(writer, robot).write(dataset, progress)
        (part / path.name).rename(path)
    except OSError as error:
        raise RecordsError(f'cannot write {path}: {error.strerror}') from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


class _Pen:
    """Makes messages and writes them with their stamps."""

    def __init__(self, writer: Any, robot: str) -> None:
        self._store = message_types()
        self._writer = writer
        self._connections = {
            topic: writer.add_connection(f'/{robot}/{topic}', kind, typestore=self._store)
            for topic, kind in TOPICS.items()
        }
        self._now = _START

    def write(self, dataset: Dataset, progress: Progress) -> None:
        env = SurgeryEnv(settings=dataset.world)
        try:
            for index, episode in enumerate(dataset.episodes):
                self._say(EPISODE, data=episode_document(dataset, index))
                self._operation(episode, _gone_through(dataset, index, env))
                self._now += round(PAUSE * 1e9)
                progress(index + 1, len(dataset))
        finally:
            env.close()

    def _operation(self, episode: Episode, seen: list[Readings]) -> None:
        values = unscale(episode.states)
        for tick, (row, now) in enumerate(zip(values, seen, strict=True)):
            for topic, contents in self._told(now).items():
                self._say(topic, **contents)
            self._states(episode, row)
            if tick == episode.length:
                break
            action = int(episode.actions[tick])
            self._say(
                ACTION,
                header=self._header(),
                patient=episode.patient.name,
                policy='recorded',
                action=action,
                displacement=np.array(displacement(action)),
                value=float('nan'),
                uncertainty=float('nan'),
                expected_risk=float('nan'),
                reason='recorded',
                proposed=action,
                veto='',
                predicted_force=float('nan'),
            )
            self._now += _TICK
        self._say(
            OUTCOME,
            header=self._header(),
            patient=episode.patient.name,
            procedure=episode.patient.procedure.name,
            success=bool(episode.success),
            failure=episode.failure,
            steps=episode.length,
            peak_force=float(episode.forces.max()),
            damage=float(episode.damages[-1]),
        )

    def _states(self, episode: Episode, row: np.ndarray) -> None:
        for topic, listed, part in (
            (PATIENT, PATIENT_FIELDS, row[OPERATION_SIZE:]),
            (OPERATION, OPERATION_FIELDS, row[:OPERATION_SIZE]),
        ):
            contents = {
                'header': self._header(),
                'patient': episode.patient.name,
                'names': [each.name for each in listed],
                'values': part,
                'scales': np.array([each.scale for each in listed]),
            }
            if topic == OPERATION:
                contents['procedure'] = episode.patient.procedure.name
            self._say(topic, **contents)

    def _told(self, now: Readings) -> Contents:
        """Return what CRTK calls measured and setpoint, by topic."""
        jaw = np.array([now.jaw])
        return {
            'measured_js': self._joints(JOINTS, now.joints),
            'setpoint_js': self._joints(JOINTS, now.setpoint),
            'jaw/measured_js': self._joints((JAW,), jaw),
            'joint_states': self._joints((*JOINTS, JAW), np.concatenate((now.joints, jaw))),
            'measured_cp': self._pose(now.position, now.rotation),
            'setpoint_cp': self._pose(*now.setpoint_pose()),
            'body/measured_cf': self._wrench(TIP, now.body_force(), np.zeros(3)),
            'spatial/measured_cf': self._wrench(BASE, now.force, now.spatial_torque()),
        }

    def _joints(self, names: tuple[str, ...], position: np.ndarray) -> dict[str, Any]:
        nothing = np.zeros(0)
        return {
            'header': self._header(BASE),
            'name': list(names),
            'position': position,
            'velocity': nothing,
            'effort': nothing,
        }

    def _pose(self, position: np.ndarray, rotation: np.ndarray) -> dict[str, Any]:
        x, y, z, w = to_quaternion(rotation)
        pose = self._made(
            'geometry_msgs/msg/Pose',
            position=self._xyz('Point', position),
            orientation=self._made('geometry_msgs/msg/Quaternion', x=x, y=y, z=z, w=w),
        )
        return {'header': self._header(BASE), 'pose': pose}

    def _wrench(self, frame: str, force: np.ndarray, torque: np.ndarray) -> dict[str, Any]:
        wrench = self._made(
            'geometry_msgs/msg/Wrench',
            force=self._xyz('Vector3', force),
            torque=self._xyz('Vector3', torque),
        )
        return {'header': self._header(frame), 'wrench': wrench}

    def _xyz(self, kind: str, values: np.ndarray) -> Any:
        x, y, z = values.tolist()
        return self._made(f'geometry_msgs/msg/{kind}', x=x, y=y, z=z)

    def _header(self, frame: str = '') -> Any:
        seconds, rest = divmod(self._now, 1_000_000_000)
        stamp = self._made('builtin_interfaces/msg/Time', sec=seconds, nanosec=rest)
        return self._made('std_msgs/msg/Header', stamp=stamp, frame_id=frame)

    def _made(self, kind: str, **contents: Any) -> Any:
        return self._store.types[kind](**contents)

    def _say(self, topic: str, **contents: Any) -> None:
        kind = TOPICS[topic]
        data = self._store.serialize_cdr(self._made(kind, **contents), kind)
        self._writer.write(self._connections[topic], self._now, data)


def _gone_through(dataset: Dataset, index: int, env: SurgeryEnv) -> list[Readings]:
    """Return what is read in each of T + 1 states."""
    seen: list[Readings] = []
    replay(dataset, index, env, lambda operation: seen.append(read(operation)))
    return seen


def episode_document(dataset: Dataset, index: int) -> str:
    """Return as JSON what a replay of an operation needs besides its actions."""
    return json.dumps(
        {
            **identity(),
            'world': to_plain(dataset.world),
            'note': dataset.note,
            'seed': dataset.seeds[index],
            'patient': to_plain(dataset.episodes[index].patient),
        }
    )
