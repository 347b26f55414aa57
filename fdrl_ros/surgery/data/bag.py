# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Bags of a robot (rosbag2, MCAP or SQLite): write a dataset as one, and read one.

`ros2 bag play` shows each operation, which is replayed for what the dataset leaves out: joints
and forces. The bag has the topics of a robot, once a tick, and `episode` besides. A recording
becomes a dataset again; the log of a live arm becomes its transitions.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
import math
from pathlib import Path
import shutil
from types import ModuleType
from typing import Any, TYPE_CHECKING

from fdrl_ros.errors import errors_named, RecordsError, ResourceError, SettingError
from fdrl_ros.resources import resource
from fdrl_ros.surgery.arm.frame_tree import FrameTree, text_message, transforms_message
from fdrl_ros.surgery.arm.kinematics import JAW, JOINTS
from fdrl_ros.surgery.arm.mount import Mount
from fdrl_ros.surgery.arm.readings import BASE, read, Readings, TIP
from fdrl_ros.surgery.arm.rotations import to_quaternion
from fdrl_ros.surgery.data.dataset import Dataset, from_document, to_document
from fdrl_ros.surgery.data.log import (
    ACTION,
    FIELDS,
    LoggedOperation,
    LogReader,
    Message,
    OPERATION,
    OUTCOME,
    PATIENT,
)
from fdrl_ros.surgery.data.recording import Progress, repeat, replay, silent
from fdrl_ros.surgery.gym.actions import displacement, TICK
from fdrl_ros.surgery.gym.episode import Episode
from fdrl_ros.surgery.gym.state import (
    Field,
    OPERATION_FIELDS,
    OPERATION_LAYOUT,
    OPERATION_SIZE,
    PATIENT_FIELDS,
    PATIENT_LAYOUT,
    unscale,
)
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.settings import WorldSettings
import numpy as np

if TYPE_CHECKING:
    from rosbags.interfaces import Connection, Qos
    from rosbags.rosbag2 import Reader, Writer
    from rosbags.typesys.store import Typestore

EPISODE = 'episode'
OURS = {
    OPERATION: 'OperationState',
    PATIENT: 'PatientState',
    ACTION: 'SelectedAction',
    OUTCOME: 'Outcome',
}
"""Topics with messages of this package that every log of a robot has."""
ARM_STATE = 'operating_state'
ARM_STATE_KINDS = ('fdrl_ros/msg/OperatingState', 'crtk_msgs/msg/OperatingState')
"""CRTK's operating state, which an arm may publish: of two types with the same fields."""

VISIBILITY = 'visibility'
VISIBILITY_KIND = 'fdrl_ros/msg/Visibility'
"""What a segmenter sees of the instrument, by which a robot with `needs_visibility` decides."""

TOPICS: dict[str, str] = {
    **{topic: f'fdrl_ros/msg/{kind}' for topic, kind in OURS.items()},
    FIELDS: 'fdrl_ros/msg/StateFields',
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

TF, TF_STATIC = '/tf', '/tf_static'
DESCRIPTION = 'robot_description'
TRANSFORMS = 'tf2_msgs/msg/TFMessage'
_OF_DESCRIPTION = {TF: TRANSFORMS, TF_STATIC: TRANSFORMS, DESCRIPTION: 'std_msgs/msg/String'}
"""Frames of the arm, at the root, and its URDF below the namespace: for programs that draw it."""

LATCHED = (FIELDS, ARM_STATE, OUTCOME, TF_STATIC[1:], DESCRIPTION)
"""Topics whose newest messages are for who comes late, too."""

STORAGES = ('mcap', 'sqlite3')
PAUSE = 2.0
"""Between two operations, s."""

BAG_VERSION = 9
"""Version of rosbag2's metadata that ROS 2 Jazzy and Kilted write and read."""

_MCAP_END, _SQLITE_BEGIN = b'\x89MCAP0\r\n', b'SQLite format 3\x00'
_SQLITE_HEADER = 100  # bytes

_SECOND = 1_000_000_000
_START = _SECOND  # ns; a stamp of zero would be none
_ORDER = (FIELDS, EPISODE, PATIENT, OPERATION, ACTION, OUTCOME)
"""Of messages with one stamp: a state comes before what is chosen in it."""


def bags() -> ModuleType:
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
def message_types() -> 'Typestore':
    """
    Return the store of all message types: those of ROS 2 Kilted, and ours out of msg/*.msg.

    :raises ResourceError: if the library or a definition is missing.
    """
    bags()
    from rosbags.typesys import get_types_from_msg, get_typestore, Stores

    store = get_typestore(Stores.ROS2_KILTED)
    for kind in _DEFINED_HERE:
        store.register(get_types_from_msg(_definition(kind), kind))
    return store


_DEFINED_HERE = (
    *(f'fdrl_ros/msg/{name}' for name in (*OURS.values(), 'StateFields', 'Visibility')),
    *ARM_STATE_KINDS,
)
"""Types whose definitions are in msg/."""

_NEXT_DEFINITION = '=' * 80 + '\n'


def _definition(kind: str) -> str:
    """Return the definition of a type in msg/."""
    return resource(f'msg/{kind.rpartition("/")[2]}.msg').read_text('utf-8')


def offered(latched: bool) -> 'list[Qos]':
    """Return the QoS with which a topic was published, if that is not the default of players."""
    from rosbags import interfaces as of

    never = of.QosTime(0, 0)
    newest = of.QosHistory.KEEP_LAST, 10, of.QosReliability.RELIABLE
    return [
        of.Qos(
            *newest,
            of.QosDurability.TRANSIENT_LOCAL,
            never,
            never,
            of.QosLiveliness.AUTOMATIC,
            never,
            False,
        )
    ] * latched


def add_topic(writer: 'Writer', topic: str, kind: str) -> 'Connection':
    """
    Add a topic to a bag, with a definition of its type that any tool can read.

    The one that the library makes lacks the quotes of text constants, and is refused by itself.
    """
    latched = offered(topic.rpartition('/')[2] in LATCHED)
    store = message_types()
    definition, _ = store.generate_msgdef(kind, ros_version=2)
    if kind in _DEFINED_HERE:
        _, *nested = definition.split(_NEXT_DEFINITION)
        definition = _NEXT_DEFINITION.join((_definition(kind), *nested))
    return writer.add_connection(
        topic,
        kind,
        msgdef=definition,
        rihs01=store.hash_rihs01(kind),
        offered_qos_profiles=latched,
    )


def write_bag(
    dataset: Dataset,
    path: Path,
    *,
    robot: str = 'robot_1',
    storage: str = 'mcap',
    progress: Progress = silent,
) -> None:
    """
    Write all operations, one after the other, as the folder that rosbag2 calls a bag.

    :param path: of the folder; it must not exist.
    :param robot: namespace of the topics.
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
        with (
            library.Writer(part / path.name, version=BAG_VERSION, storage_plugin=plugin) as writer,
            SurgeryEnv(settings=dataset.world) as env,
        ):
            bag = _BagWriter(writer, robot)
            bag.write_fields(OPERATION_LAYOUT, OPERATION_FIELDS)
            bag.write_fields(PATIENT_LAYOUT, PATIENT_FIELDS)
            bag.write_description()
            for index, episode in enumerate(dataset.episodes):
                bag.write(EPISODE, data=_episode_document(dataset, index))
                bag.write_operation(episode, _readings(dataset, index, env))
                progress(index + 1, len(dataset))
        (part / path.name).rename(path)
    except OSError as error:
        raise RecordsError(f'cannot write {path}: {error.strerror}') from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


_UNJUDGED = {
    **dict.fromkeys(('policy', 'reason'), 'recorded'),
    **dict.fromkeys(('value', 'uncertainty', 'expected_risk', 'predicted_force'), math.nan),
    'veto': '',
}
"""What an action has that no selector chose."""


class _BagWriter:
    """Makes messages and writes them with their stamps."""

    def __init__(self, writer: 'Writer', robot: str) -> None:
        self._store = message_types()
        self._writer = writer
        self._connections = {
            topic: add_topic(writer, f'/{robot}/{topic}', kind) for topic, kind in TOPICS.items()
        }
        self._connections |= {
            topic: add_topic(writer, topic if kind == TRANSFORMS else f'/{robot}/{topic}', kind)
            for topic, kind in _OF_DESCRIPTION.items()
        }
        self._urdf = Mount().urdf()
        self._frames = FrameTree(self._urdf)
        self._now = _START

    def write_fields(self, layout: str, fields: tuple[Field, ...]) -> None:
        """Write what the values of states of a layout are."""
        self.write(
            FIELDS,
            layout=layout,
            names=[each.name for each in fields],
            units=[each.unit for each in fields],
            scales=np.array([each.scale for each in fields]),
        )

    def write_description(self) -> None:
        """Write the URDF of arm and patient, and the frames in it that do not move."""
        self._write_encoded(DESCRIPTION, text_message(self._urdf))
        self._write_encoded(TF_STATIC, transforms_message(self._now, self._frames.fixed()))

    def write_operation(self, episode: Episode, readings: list[Readings]) -> None:
        """Write one operation and the pause after it."""
        patient = episode.patient.name
        who = {'patient': patient, 'procedure': episode.patient.procedure.name}
        halves = (
            (PATIENT, PATIENT_LAYOUT, slice(OPERATION_SIZE, None)),
            (OPERATION, OPERATION_LAYOUT, slice(OPERATION_SIZE)),
        )
        for tick, (values, now) in enumerate(zip(unscale(episode.states), readings, strict=True)):
            self._write_readings(now)
            for topic, layout, half in halves:
                self.write(topic, **who, layout=layout, values=values[half])
            if tick == episode.length:
                break
            action = int(episode.actions[tick])
            moves = {'action': action, 'displacement': np.array(displacement(action))}
            self.write(ACTION, patient=patient, **moves, proposed=action, **_UNJUDGED)
            self._now += round(TICK * _SECOND)
        end = {name: getattr(episode, name) for name in ('success', 'failure')}
        peak, damage = float(episode.forces.max()), float(episode.damages[-1])
        self.write(OUTCOME, **who, **end, steps=episode.length, peak_force=peak, damage=damage)
        self._now += round(PAUSE * _SECOND)

    def _write_readings(self, now: Readings) -> None:
        """Write what CRTK calls measured and setpoint."""
        jaw = np.array([now.jaw])
        joints = dict(zip((*JOINTS, JAW), (*now.joints.tolist(), now.jaw), strict=True))
        self._write_encoded(TF, transforms_message(self._now, self._frames.moving(joints)))
        for topic, names, positions in (
            ('measured_js', JOINTS, now.joints),
            ('setpoint_js', JOINTS, now.setpoint),
            ('jaw/measured_js', (JAW,), jaw),
            ('joint_states', (*JOINTS, JAW), np.concatenate((now.joints, jaw))),
        ):
            none = np.zeros(0)
            self.write(
                topic, BASE, name=list(names), position=positions, velocity=none, effort=none
            )
        for topic, (position, rotation) in (
            ('measured_cp', (now.position, now.rotation)),
            ('setpoint_cp', now.setpoint_pose()),
        ):
            turn = dict(zip('xyzw', to_quaternion(rotation), strict=True))
            self.write(topic, BASE, pose={'position': _xyz(position), 'orientation': turn})
        for topic, frame, force, torque in (
            ('body/measured_cf', TIP, now.body_force(), np.zeros(3)),
            ('spatial/measured_cf', BASE, now.force, now.spatial_torque()),
        ):
            self.write(topic, frame, wrench={'force': _xyz(force), 'torque': _xyz(torque)})

    def write(self, topic: str, frame: str = '', /, **contents: object) -> None:
        """Write one message: its fields, nested messages as dicts; others are left out."""
        seconds, rest = divmod(self._now, _SECOND)
        header = {'stamp': {'sec': seconds, 'nanosec': rest}, 'frame_id': frame}
        message = self._message(TOPICS[topic], {'header': header, **contents})
        self._write_encoded(topic, self._store.serialize_cdr(message, TOPICS[topic]))

    def _write_encoded(self, topic: str, data: bytes | memoryview) -> None:
        self._writer.write(self._connections[topic], self._now, data)

    def _message(self, kind: str, contents: Mapping[str, object]) -> object:
        """Make a message, and the messages within it of dicts."""
        _constants, fields = self._store.fielddefs[kind]
        values: dict[str, Any] = {name: contents[name] for name, _described in fields}
        for name, described in fields:
            if isinstance(inner := values[name], dict):
                values[name] = self._message(str(described[1]), inner)
        return self._store.types[kind](**values)


def _readings(dataset: Dataset, index: int, env: SurgeryEnv) -> list[Readings]:
    """Return what the arm tells at every state of an operation, by replaying it."""
    readings: list[Readings] = []
    replay(dataset, index, env, lambda operation: readings.append(read(operation)))
    return readings


def _xyz(values: np.ndarray) -> dict[str, float]:
    return dict(zip('xyz', values.tolist(), strict=True))


def _episode_document(dataset: Dataset, index: int) -> str:
    """Return as JSON what a replay of an operation needs besides its actions."""
    patient = dataset.episodes[index].patient
    recording = _Recording(dataset.world, dataset.note, dataset.seeds[index], patient)
    return to_document(recording)


def read_log(
    path: Path, robot: str | None = None, *, partial: bool = False
) -> list[LoggedOperation]:
    """
    Read the operations of one robot.

    A log holds states, actions and how an operation ended;
    :mod:`fdrl_ros.surgery.data.log_rewards` derives what it lacks.

    :param path: of the bag's folder, or of its one file.
    :param robot: namespace of its topics; needed where the bag is of several robots.
    :param partial: leave out what is broken off or has gaps, instead of refusing it.
    :raises RecordsError: if the bag is cut off, damaged, without operations, of several robots,
        or with a topic of another type; or, unless `partial`, if an operation has gaps or no end.
    """
    reader = LogReader(partial)
    for topic, message in _messages(path, robot, (FIELDS, *OURS)):
        reader.take(topic, message)
    return reader.finish()


def read_recording(
    path: Path, robot: str | None = None, *, progress: Progress = silent
) -> Dataset:
    """
    Read what :func:`write_bag` wrote, bit by bit.

    Rewards, damage and whatever else no topic has come from replaying each operation; its states
    must be those of the bag.

    :raises RecordsError: if the bag is broken, of another world, or is no recording of ours.
    """
    reader = LogReader(partial=False)
    documents = []
    for topic, message in _messages(path, robot, (FIELDS, *OURS, EPISODE)):
        if topic == EPISODE:
            documents.append(message.data)
        else:
            reader.take(topic, message)
    logged = reader.finish()
    if len(documents) != len(logged):
        raise RecordsError(
            f'{path}: {len(documents)} documents for {len(logged)} operations. The log of a live '
            'arm has none: its patients are not known, so it makes records, not a dataset'
        )
    recordings = []
    for index, document in enumerate(documents):
        with errors_named(RecordsError, f'{path}, episode {index}'):
            recordings.append(from_document(_Recording, document))
    first = recordings[0]
    episodes = []
    with SurgeryEnv(settings=first.world) as env:
        for index, (recording, log) in enumerate(zip(recordings, logged, strict=True)):
            with errors_named(RecordsError, f'{path}, episode {index}'):
                if (recording.world, recording.note) != (first.world, first.note):
                    raise RecordsError('of another recording than the first')
                episodes.append(_replayed(env, recording, log))
            progress(index + 1, len(logged))
    seeds = tuple(recording.seed for recording in recordings)
    return Dataset(first.world, tuple(episodes), seeds, first.note)


def is_recording(path: Path) -> bool:
    """
    Tell whether a bag is a recording of ours, which makes a dataset, or the log of an arm.

    :raises RecordsError: if it is no bag.
    """
    with opened(path) as reader:
        return any(connection.topic.split('/')[-1] == EPISODE for connection in reader.connections)


@dataclass(frozen=True)
class _Recording:
    """What a replay needs besides actions."""

    world: WorldSettings
    note: str
    seed: int | None
    patient: Patient


def _replayed(env: SurgeryEnv, recording: _Recording, log: LoggedOperation) -> Episode:
    """Replay an operation and compare it with the log."""
    patient = recording.patient
    if (log.patient, log.procedure) != (patient.name, patient.procedure.name):
        raise RecordsError(f'{log.procedure} on {log.patient}, but {patient.name}')
    found = repeat(env, log.actions, patient, recording.seed)
    same = (
        found.length == len(log.actions)
        and np.array_equal(found.states[:-1], log.states)
        and np.array_equal(found.states[-1], log.next_states[-1])
        and (found.success, found.failure) == (log.success, log.failure)
    )
    if not same:
        raise RecordsError('a replay gives other states or another end')
    return found


def has_end(file: Path) -> bool:
    """
    Return whether a file of a bag goes on to its end, by some bytes of it: not what is before.

    A file of MCAP ends with its magic; the header of SQLite says how many pages there are. Of
    other files, such as compressed ones, only whether there is something in them.

    :raises OSError: if it cannot be read.
    """
    if not file.is_file() or not (size := file.stat().st_size):
        return False
    if file.suffix not in ('.mcap', '.db3'):
        return True
    with file.open('rb') as data:
        if file.suffix == '.mcap':
            data.seek(max(0, size - len(_MCAP_END)))
            return data.read() == _MCAP_END
        header = data.read(_SQLITE_HEADER)
    if len(header) < _SQLITE_HEADER or not header.startswith(_SQLITE_BEGIN):
        return False
    if header[24:28] != header[92:96]:  # an old library wrote it: the number of pages is not valid
        return True
    page, pages = (int.from_bytes(each) for each in (header[16:18], header[28:32]))
    return size >= (65536 if page == 1 else page) * pages


def recorded(
    path: Path, robot: str | None, kinds: Mapping[str, Iterable[str]], needed: Iterable[str]
) -> list[tuple[int, str, Message]]:
    """
    Return messages of a robot in the order in which they were recorded.

    :param robot: namespace of its topics; needed where the bag is of several robots.
    :param kinds: types that each wanted topic may have.
    :param needed: topics that must be there.
    :returns: when each was recorded, ns; its topic below the namespace; the message.
    :raises RecordsError: if the bag is cut off, damaged, of several robots, without a needed
        topic, or with a topic of another type.
    """
    store = message_types()
    with opened(path) as reader:
        prefix = _namespace(path, [connection.topic for connection in reader.connections], robot)
        chosen = [
            connection
            for connection in reader.connections
            if connection.topic.startswith(prefix)
            and connection.topic.removeprefix(prefix) in kinds
        ]
        topics = {connection.topic: connection.topic.removeprefix(prefix) for connection in chosen}
        for connection in chosen:
            name, kind = connection.topic, connection.msgtype
            wanted = tuple(kinds[topics[name]])
            if kind not in wanted:
                raise RecordsError(f'{path}: {name} is a {kind}, expected {" or ".join(wanted)}')
            if connection.digest and connection.digest != store.hash_rihs01(kind):
                raise RecordsError(f'{path}: {name} was recorded with another version of {kind}')
        if missing := set(needed) - set(topics.values()):
            raise RecordsError(f'{path}: {prefix} has no {", ".join(sorted(missing))}')
        if not chosen:
            return []  # the library takes none of them for all
        try:
            return [
                (logged_at, topics[found.topic], store.deserialize_cdr(data, found.msgtype))
                for found, logged_at, data in reader.messages(connections=chosen)
            ]
        except Exception as error:  # the library, SQLite and decompressors raise many kinds
            raise RecordsError(f'{path} is cut off or damaged: {error}') from error


def _messages(
    path: Path, robot: str | None, wanted: Iterable[str]
) -> Iterator[tuple[str, Message]]:
    """Yield the robot's messages by topic, in the order of their stamps."""

    def order(entry: tuple[int, str, Message]) -> tuple[int, int]:
        logged_at, topic, message = entry
        if header := getattr(message, 'header', None):
            logged_at = int(header.stamp.sec) * _SECOND + int(header.stamp.nanosec)
        return logged_at, _ORDER.index(topic)

    found = recorded(path, robot, {topic: (TOPICS[topic],) for topic in wanted}, OURS)
    for _, topic, message in sorted(found, key=order):
        yield topic, message


@contextmanager
def opened(path: Path) -> Iterator['Reader']:
    """
    Open a bag and close it.

    :raises RecordsError: if it is none, or is cut off.
    """
    library = bags()
    if not path.exists():
        raise RecordsError(f'{path} does not exist')
    try:
        reader = library.Reader(path)
        reader.open()
    except Exception as error:  # the library, YAML, SQLite and the disk raise many kinds
        raise RecordsError(f'{path} is no bag, or cut off: {error}') from error
    with closing(reader):
        yield reader


def _namespace(path: Path, topics: list[str], robot: str | None) -> str:
    """Return the beginning of the robot's topics."""
    found = sorted(
        {topic.removesuffix(OPERATION) for topic in topics if topic.endswith(OPERATION)}
    )
    if robot is not None:
        prefix = f'/{robot.strip("/")}/'
        if prefix not in found:
            raise RecordsError(f'{path} has no {prefix}{OPERATION}; found {found}')
        return prefix
    if len(found) != 1:
        raise RecordsError(f'{path}: expected the {OPERATION} of one robot, found {found}')
    return found[0]
