# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What each launch file starts, out of its arguments as texts, and what it refuses before.

`ros2 launch` and `fdrl launch` both do what these functions return.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Final, TypeVar

from fdrl_ros.crypto.keys.keystore import KEY_FILE
from fdrl_ros.crypto.keys.roster import SERVERS
from fdrl_ros.deployment.bringup import (
    BringupSettings,
    check_participants,
    FederationArguments,
    frames_graph,
    hospital_graph,
    HospitalArguments,
    idle_sections,
    NodeSpec,
    PATIENTS_APART,
    robot_graph,
    RobotArguments,
    RoomArguments,
    server_graph,
    warnings,
)
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.live.running import page_words, PageArguments
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import KeyFileError, PolicyError, ResourceError, SettingError
from fdrl_ros.resources import executable, PACKAGE
from fdrl_ros.segmentation.network.segmenter_file import load_segmenter
from fdrl_ros.settings import named_among, Setting, Settings, Value
from fdrl_ros.surgery.gym.measured_operation import OperationPlan

S = TypeVar('S', bound=Settings)

FILES: Final[Mapping[str, tuple[type[Settings], ...]]] = {
    'federation': (FederationArguments, RoomArguments, PageArguments, BringupSettings),
    'hospital': (HospitalArguments, BringupSettings),
    'robot': (RobotArguments, PageArguments, BringupSettings),
    'server': (BringupSettings,),
}
"""The launch files, and the settings that are their arguments."""

_MEANT: Final = {('robot', 'hospital'): 'home'}
"""Argument that is meant by one of another launch file."""

_SWITCHES: Final = {'description': 'robot_state_publisher', 'rviz': 'rviz2'}
"""Arguments that start a node of another package, and that package."""


def names(file: str) -> list[str]:
    """Return the names of a launch file's arguments."""
    return [each.name for kind in FILES[file] for each in kind.describe()]


def described(file: str) -> str:
    """Return the arguments of a launch file with default and range, as `ros2 launch -s` does."""
    lines = [f"Arguments of {file} (pass arguments as '<name>:=<value>'):"]
    for each in (each for kind in FILES[file] for each in kind.describe()):
        lines += ['', f"    '{each.name}':", f'        {each.description}: {each.expected()}']
        lines += [f"        (default: '{as_text(each.default)}')"]
    return '\n'.join(lines)


def chosen(kind: type[S], texts: Mapping[str, str]) -> S:
    """
    Read some of a launch file's arguments.

    :param texts: arguments by name; those of other settings too. One that is missing has its
        default.
    :raises SettingError: if one cannot be.
    """
    values = {
        each.name: _value(each, texts[each.name]) for each in kind.describe() if each.name in texts
    }
    return kind.from_mapping(values)


def parties(texts: Mapping[str, str]) -> list[tuple[str, dict[str, str]]]:
    """
    Return the launch files that make up a federation, and the arguments of each.

    :param texts: arguments of the federation, which each gets besides.
    :raises SettingError: if several robots would each make the time of all.
    """
    arguments, room = chosen(FederationArguments, texts), chosen(RoomArguments, texts)
    if room.use_sim_time and room.env and arguments.robots > 1:
        raise SettingError('use_sim_time', True, 'one robot: each env makes its own /clock')
    if room.frame_prefix and arguments.robots > 1:
        expected = 'none for several robots: start each with robot.launch.py and its own'
        raise SettingError('frame_prefix', room.frame_prefix, expected)
    found: list[tuple[str, dict[str, str]]] = [('server', {})]
    found += [('hospital', {'hospital': name}) for name in arguments.hospital_names]
    for number, name in enumerate(arguments.robot_names):
        shown = room.rviz and name == 'robot_1'  # one of them
        own = {
            'robot': name,
            'rviz': as_text(shown),
            'page': as_text(False),  # one of the whole federation
            'first_patient': as_text(number * PATIENTS_APART),
        }
        found.append(('robot', own))
    return found


def graph(file: str, texts: Mapping[str, str]) -> tuple[NodeSpec, ...]:
    """
    Return the nodes that a launch file starts.

    :param texts: its arguments, by name.
    :raises SettingError: if an argument, or the parameter file that one names, cannot be.
    """
    settings = chosen(BringupSettings, texts)
    match file:
        case 'server':
            return server_graph(settings)
        case 'hospital':
            return hospital_graph(settings, chosen(HospitalArguments, texts).hospital)
        case 'robot':
            room = chosen(RobotArguments, texts)
            own = robot_graph(
                settings,
                room.robot,
                room.operations,
                room,
                first_patient=room.first_patient,
                plan=room.plan,
            )
            return (*own, *frames_graph(settings, room.robot, room))
    return tuple(
        spec for part, given in parties(texts) for spec in graph(part, {**texts, **given})
    )


def page(file: str, texts: Mapping[str, str]) -> list[str]:
    """Return the words after `fdrl` of the page that a launch file serves; none if it does not."""
    if file not in ('federation', 'robot') or not (asked := chosen(PageArguments, texts)).page:
        return []
    if file == 'robot':
        robots = [chosen(RobotArguments, texts).robot]
    else:
        robots = list(chosen(FederationArguments, texts).robot_names)
    return page_words(chosen(BringupSettings, texts), asked.page_port, robots)


def full_graph(file: str) -> tuple[NodeSpec, ...]:
    """Return all nodes that a launch file can start, with the defaults of its arguments."""
    shown = dict.fromkeys(_SWITCHES, 'true')
    real = {**shown, 'env': 'false', 'plan': 'plan.yaml', 'segmenter': 'segmenter.npz'}
    specs = (*graph(file, shown), *graph(file, real))
    return tuple({each.label: each for each in specs}.values())


def notices(file: str, texts: Mapping[str, str]) -> list[str]:
    """
    Return what a person should be told before the nodes of a launch file start.

    :raises SettingError: as :func:`graph`, or if the parameter file means to disarm a selector
        and does not.
    """
    settings = chosen(BringupSettings, texts)
    told = warnings(settings)
    # What a federation includes is a part of the nodes that its parameter file is for.
    included = file != 'federation' and 'hospitals' in texts
    if file in ('robot', 'federation'):
        room = chosen(RoomArguments, texts)
        if room.env and not room.commands and texts.get('operations', '-1') != '0':
            told.append('the selector is not armed: patients wait until somebody commands the arm')
    idle = idle_sections(settings, graph(file, texts))
    return told if included else told + idle


def check(file: str, texts: Mapping[str, str], given: Mapping[str, str] | None = None) -> None:
    """
    Refuse what cannot be, before any node starts.

    :param texts: arguments of the launch file, by name.
    :param given: those that a person wrote, all of which must be known; None to trust them.
    :raises SettingError: if an argument is unknown or cannot be, the directory is not prepared,
        the hospital is not in its roster, or security is on and a node has no enclave.
    :raises ResourceError: if a node of another package is asked for that is not installed.
    :raises FdrlError: if a file of the directory is missing or damaged, or a plan of operation, or
        the file of a segmenter.
    """
    known = names(file)
    for name, value in (given or {}).items():
        if name not in known:
            meant = _MEANT.get((file, name))
            near = [meant] if meant else get_close_matches(name, known, 3)
            hint = f'did you mean {" or ".join(near)}?' if near else '--show-args lists them'
            expected = f'one of the {len(known)} arguments of {file}; {hint}'
            raise SettingError(name, value, expected)
    specs, settings = graph(file, texts), chosen(BringupSettings, texts)
    notices(file, texts)
    if settings.security and any(each.package == _SWITCHES['rviz'] for each in specs):
        raise SettingError('rviz', True, 'false with security: RViz has no enclave')
    for spec in specs:
        if spec.package != PACKAGE:
            _check_installed(spec)
        elif spec.executable == 'segmenter':
            load_segmenter(Path(str(spec.parameters['file'])))
    if file == 'federation':
        check_participants(settings, specs)
        settings.check_enclaves(specs)
        return
    directory = settings.directory
    layout = Layout(Path(directory))
    if not layout.plan.exists():
        expected = 'one that `fdrl prepare` or `fdrl run` made, such as runs/latest/federation'
        raise SettingError('directory', directory, expected)
    _check_directory(layout, file, texts)
    settings.check_enclaves(specs)


def _check_directory(layout: Layout, file: str, texts: Mapping[str, str]) -> None:
    """
    Refuse a directory whose files the nodes could not use, or that has no such hospital.

    :raises FdrlError: naming the first.
    """
    plan = Plan.read(layout.plan)
    if file == 'robot' and not plan.task.robot:
        words = f'one whose task has a robot: {plan.task.name} has none'
        raise SettingError('directory', str(layout.directory), words)
    if not layout.pretrained.exists():
        raise PolicyError(f'{layout.pretrained} is not there: prepare the directory again')
    hospitals = [each.name for each in layout.roster().hospitals]
    asked = {}
    if file == 'hospital':
        asked['hospital'] = chosen(HospitalArguments, texts).hospital
    if file == 'robot':
        room = chosen(RobotArguments, texts)
        if room.home:
            asked['home'] = room.home
        if room.plan:
            OperationPlan.read(Path(room.plan))
        if room.robot in (*hospitals, *layout.others):
            raise SettingError('robot', room.robot, 'a name that no hospital or server has')
    for setting, name in asked.items():
        if name not in hospitals:
            expected = named_among(name, 'hospitals in the roster', hospitals)
            raise SettingError(setting, name, expected)
    for name in {'server': SERVERS, 'hospital': tuple(asked.values())}.get(file, ()):
        key = layout.keys / name / KEY_FILE
        if not key.exists():
            raise KeyFileError(f'{key} is not there: the host of {name} has it')


def _check_installed(spec: NodeSpec) -> None:
    switch = next(name for name, package in _SWITCHES.items() if package == spec.package)
    try:
        executable(spec.package, spec.executable)
    except ResourceError as error:
        raise ResourceError(f'{error}; install it or say {switch}:=false') from error


def as_text(value: Value) -> str:
    """Return a value as an argument of a launch file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


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
