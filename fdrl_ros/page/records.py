# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What was recorded: runs with their rounds, and bags of robots, as the page replays them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
import json
import math
from pathlib import Path
from typing import Any, Final

from fdrl_ros.deployment.events import OperationEnded
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import errors_named, RecordsError
from fdrl_ros.page.state import bound, number, RobotState
from fdrl_ros.runtime.durable import is_held
from fdrl_ros.surgery.data.bag import (
    ARM_STATE,
    ARM_STATE_KINDS,
    has_end,
    recorded,
    TOPICS,
    VISIBILITY,
    VISIBILITY_KIND,
)
from fdrl_ros.surgery.data.log import ACTION, OPERATION, OUTCOME, PATIENT
from fdrl_ros.surgery.gym.actions import TICK
import yaml

DEPTH: Final = 3
"""Folders below the one of the records that are searched."""

MOST: Final = 500
"""Records that are listed, the newest."""

MOST_FRAMES: Final = 12_000
"""Of a bag that are sent: ten minutes."""

BETWEEN: Final = 0.999 * TICK
"""Least time between two frames, second."""

_BROKEN: Final = (
    *(OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError),
    *(RecursionError, OverflowError),
)
"""What comes of reading a damaged file."""
_METADATA, _ROUNDS = 'metadata.yaml', 'rounds.json'
_POINTS = ('measured_cp', 'setpoint_cp')
_JOINTS, _FORCE = 'joint_states', 'spatial/measured_cf'
_SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    **{
        topic: (TOPICS[topic],)
        for topic in (OPERATION, PATIENT, ACTION, OUTCOME, _JOINTS, _FORCE, *_POINTS)
    },
    ARM_STATE: ARM_STATE_KINDS,
    VISIBILITY: (VISIBILITY_KIND,),
}
_CHOICE = ('policy', 'reason', 'veto', 'action', 'value', 'uncertainty', 'expected_risk')
_OUTCOME = ('patient', 'procedure', 'success', 'failure', 'steps', 'peak_force', 'damage')


@dataclass(frozen=True)
class _Found:
    """
    One record.

    :param id: its path below the folder, and the robot where there is one.
    :param when: seconds since 1970 (UTC), of the file.
    :param title: for people; it says what is wrong with a record that cannot be read.
    """

    id: str
    kind: str
    path: Path
    title: str
    when: float
    seconds: float | None = None
    robot: str = ''
    broken: bool = False


class RunRecords:
    """
    Runs and bags below a folder. Only what it lists can be read.

    :param folder: such as `runs`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def listed(self) -> list[dict[str, Any]]:
        """Return all records, the newest first; a broken one says so in its title."""
        return [
            {
                'id': each.id,
                'kind': each.kind,
                'title': each.title,
                'when': each.when,
                'seconds': each.seconds,
                'robot': each.robot or None,
                'broken': each.broken,
            }
            for each in self._search()
        ]

    def read(self, name: str) -> dict[str, Any]:
        """
        Return a record with all that is replayed.

        :raises FdrlError: if it is not there, or cannot be read.
        """
        found = next((each for each in self._search() if each.id == name), None)
        if found is None:
            raise RecordsError(f'there is no record {name[:80]!r}')
        if found.broken:
            raise RecordsError(found.title)
        read = _read_run if found.kind == 'run' else _read_bag
        return {'kind': found.kind, 'title': found.title, 'robot': found.robot} | read(found)

    def _search(self) -> list[_Found]:
        found = [each for folder in _folders(self._folder, DEPTH) for each in self._look(folder)]
        return sorted(found, key=lambda each: -each.when)[:MOST]

    def _look(self, folder: Path) -> Iterator[_Found]:
        """Yield the records that a folder is."""
        name = str(folder.relative_to(self._folder))
        for file, look in ((_ROUNDS, _look_at_run), (_METADATA, _look_at_bag)):
            path = folder / file
            try:
                when = path.stat().st_mtime
            except OSError:
                continue
            try:
                yield from look(folder, name, when)
            except _BROKEN:
                kind = 'run' if file == _ROUNDS else 'bag'
                words = f'{name}: {file} is cut off or damaged'
                yield _Found(name, kind, folder, words, when, broken=True)


def _folders(folder: Path, depth: int) -> Iterator[Path]:
    """Yield a folder and those below it; links are not followed."""
    yield folder
    if depth == 0:
        return
    try:
        inner = sorted(each for each in folder.iterdir() if each.is_dir())
    except OSError:
        return
    for each in inner:
        if not each.is_symlink() and not each.name.startswith('.'):
            yield from _folders(each, depth - 1)


def _seconds(told: float) -> float:
    if not math.isfinite(told):
        raise ValueError('a time is not finite')
    return round(told, 1)


def _look_at_run(folder: Path, name: str, when: float) -> Iterator[_Found]:
    notes = json.loads((folder / _ROUNDS).read_text('utf-8'))
    seconds = _seconds(sum(float(each['seconds']) for each in notes))
    yield _Found(name, 'run', folder, f'{name}, {len(notes)} rounds', when, seconds)


def _look_at_bag(folder: Path, name: str, when: float) -> Iterator[_Found]:
    told = yaml.safe_load((folder / _METADATA).read_text('utf-8'))['rosbag2_bagfile_information']
    seconds = _seconds(1e-9 * float(told['duration']['nanoseconds']))
    files = [str(each) for each in told['relative_file_paths']]
    cut = ', '.join(each for each in files if not has_end(folder / each))
    for each in told['topics_with_message_count']:
        topic = str(each['topic_metadata']['name'])
        if topic.endswith(f'/{OPERATION}'):
            robot = topic.removesuffix(f'/{OPERATION}').strip('/')
            title = f'{name}, {robot}'
            id = f'{name}:{robot}'
            if cut:
                title += f': {cut} is cut off or damaged'
                yield _Found(id, 'bag', folder, title, when, robot=robot, broken=True)
            else:
                yield _Found(id, 'bag', folder, title, when, seconds, robot)


def _read_run(found: _Found) -> dict[str, Any]:
    """Return what a federation was after each round of a run."""
    notes = json.loads((found.path / _ROUNDS).read_text('utf-8'))
    layout = Layout.find_whole(found.path)
    plan = Plan.read(layout.plan)
    snapshots: list[dict[str, Any]] = []
    blames: list[list[Any]] = []
    roll_backs: list[list[Any]] = []
    success: list[dict[str, Any]] = []
    time = 0.0
    with errors_named(RecordsError, found.id):
        try:
            for note in notes:
                time += float(note['seconds'])
                if note['rolled_back']:
                    roll_backs.append([time, f'round {note["round"]} was rolled back'])
                blames += [[time, who, str(fault)] for who, fault in note['blamed'].items()]
                if (share := note.get('public_success')) is not None:
                    tested = {'round': note['round'], 'policy': 'global'}
                    success.append(tested | {'success': number(share), 'procedures': {}})
                pasts: dict[str, list[Any]] = {
                    'blames': blames,
                    'roll_backs': roll_backs,
                    'success': success,
                }
                snapshots.append(_after(note, plan, time, pasts))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RecordsError(f'{_ROUNDS} is of another form: {error!r}') from error
    return {'duration': time, 'procedures': [], 'frames': [], 'rounds': snapshots}


def _after(
    note: Mapping[str, Any],
    plan: Plan,
    time: float,
    pasts: Mapping[str, list[Any]],
) -> dict[str, Any]:
    """
    Return the snapshot of a federation after a round.

    :param pasts: what happened until then, by field of the snapshot.
    """
    contributors = list(note['contributors'])
    hospitals = {
        name: {
            'round': note['round'],
            'epsilon': bound(note['epsilon'].get(name, float('nan'))),
            'budget': number(plan.privacy.budget),
            'delta': plan.privacy.delta,
            'unit': plan.privacy.unit,
            'secure': plan.federation.noise == 'secure',
            'pays_for': None,
            'alive': name in contributors,
            **dict.fromkeys(('stage', 'step', 'steps')),
        }
        for name in plan.hospitals
    }
    return {
        't': time,
        'namespace': '',
        'round': note['round'],
        'rounds': plan.rounds.rounds,
        'attempt': None,
        'phase': 'RELEASED' if contributors else 'FAILED',
        'reason': note['ended'],
        'time_left': None,
        'members': contributors,
        'survivors': contributors,
        'missing': {
            name: note['blamed'].get(name, 'it has no part in the policy of this round')
            for name in plan.hospitals
            if name not in contributors
        },
        'refusals': [],
        'hospitals': hospitals,
        'age': None,
        **{name: list(past) for name, past in pasts.items()},
    }


def _read_bag(found: _Found) -> dict[str, Any]:
    """Return what a robot told, a frame for each state of the operation."""
    now = 0.0
    state, procedures = RobotState(lambda: now), dict[str, None]()
    frames: list[dict[str, Any]] = []
    begin: float | None = None
    with errors_named(RecordsError, found.id):
        messages = recorded(found.path, found.robot, _SHOWN, (OPERATION,))
    for logged_at, topic, message in messages:
        now = 1e-9 * logged_at
        begin = now if begin is None else begin
        try:
            _take(state, topic, message, found.robot)
        except (AttributeError, TypeError, ValueError) as error:
            raise RecordsError(f'{found.id}: {topic} is of another form: {error}') from error
        at = round(now - begin, 3)
        if topic == OPERATION and (not frames or at - frames[-1]['t'] >= BETWEEN):
            procedures[message.procedure] = None
            shown = state.snapshot()
            del shown['timeline'], shown['policies']  # these would be in every frame
            frames.append({'t': at, **shown})
            if len(frames) == MOST_FRAMES:
                break
    if not frames:
        raise RecordsError(f'{found.id} has no state of an operation')
    duration = frames[-1]['t']
    return {'duration': duration, 'procedures': [*procedures], 'frames': frames, 'rounds': []}


def _take(state: RobotState, topic: str, message: Any, robot: str) -> None:
    """Feed what is shown with a message of a bag."""
    match topic:
        case 'operation_state':
            state.receive_operation(
                _stamp(message),
                message.procedure,
                message.patient,
                message.layout,
                message.values.tolist(),
            )
        case 'patient_state':
            state.receive_patient(message.layout, message.values.tolist())
        case 'action':
            values = {name: getattr(message, name) for name in (*_CHOICE, 'predicted_force')}
            values['action'] = int(values['action'])
            state.receive_action(_stamp(message), **values)
        case 'outcome':
            told = {name: getattr(message, name) for name in _OUTCOME}
            told['success'] = bool(told['success'])
            state.receive_outcome(OperationEnded(robot, **told))
        case 'joint_states':
            pairs = zip(message.name, message.position.tolist(), strict=False)
            state.receive_arm(joints=dict(pairs))
        case 'measured_cp':
            state.receive_arm(tip=_xyz(message.pose.position))
        case 'setpoint_cp':
            state.receive_arm(setpoint=_xyz(message.pose.position))
        case 'spatial/measured_cf':
            state.receive_arm(force=_xyz(message.wrench.force))
        case 'operating_state':
            state.receive_arm_state(message.state, bool(message.is_homed))
        case 'visibility':
            state.receive_visibility(bool(message.seen), message.reason, message.share.tolist())


def _stamp(message: Any) -> float:
    stamp = message.header.stamp
    return float(stamp.sec) + 1e-9 * float(stamp.nanosec)


def _xyz(told: Any) -> tuple[float, float, float]:
    return told.x, told.y, told.z


def records_beside(directory: Path) -> Path:
    """
    Return the folder of the records of a run, or of a federation.

    :param directory: such as `runs/latest`, `runs/latest/federation` or `runs/federation`.
    """
    run = _run_of(directory)
    return directory.resolve() if run is None else run.parent


def run_ended(directory: Path) -> bool:
    """
    Return whether a directory is of a run whose command has ended, such as `fdrl run`.

    Somebody may have started nodes of it since; whoever hears them knows better.

    :param directory: as of :func:`records_beside`.
    """
    run = _run_of(directory)
    return run is not None and not is_held(run)


def _run_of(directory: Path) -> Path | None:
    """Return the run that a directory is, or is in."""
    place = directory.resolve()
    found = (each for each in (place, place.parent) if (each / 'federation').is_dir())
    return next(filter(_is_run, found), None)


def _is_run(folder: Path) -> bool:
    return (folder / 'policies').is_dir() or (folder / _ROUNDS).is_file()
