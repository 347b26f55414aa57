# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Definitions of messages: every word is a constant, every length has a bound, changes count."""

from collections.abc import Iterator
from dataclasses import fields
import hashlib
from pathlib import Path

from fdrl_ros.federation.protocol.message import DeclineReason, Fault, KINDS, Phase
from fdrl_ros.federation.protocol.orders import ADDRESSEES
from fdrl_ros.learner.learner import Stage
from fdrl_ros.learner.settings import PrivacySettings
from fdrl_ros.nodes.env import ABORTED, NOT_BEGUN
from fdrl_ros.segmentation.camera_check import CameraFault
from fdrl_ros.selector import Reason
from fdrl_ros.selector.candidates.candidate import GLOBAL, HOLD, HOME
from fdrl_ros.selector.candidates.registry import Status
from fdrl_ros.selector.candidates.supervision import Command, Driver
from fdrl_ros.selector.control.observation import MOST_FIELDS
from fdrl_ros.shield.action_bounds import Veto
from fdrl_ros.surgery.arm.operating_state import COMMANDS, State
from fdrl_ros.surgery.gym.state import OPERATION_LAYOUT, PATIENT_LAYOUT
from fdrl_ros.surgery.render.parts import PARTS as PARTS_SEEN
from fdrl_ros.surgery.tasks.outcome import FAILURES
from fdrl_ros.surgery.tasks.procedures import PROCEDURE_NAMES
import pytest
from rosidl_adapter.parser import (
    MessageSpecification,
    parse_action_file,
    parse_message_file,
    parse_service_file,
)

ROOT = Path(__file__).parents[2]
FILES = sorted(each for kind in ('action', 'msg', 'srv') for each in (ROOT / kind).iterdir())
UNITS = next(each.choices for each in PrivacySettings.describe() if each.name == 'unit')

WORDS = {
    ('HospitalPolicy', 'unit'): UNITS,
    ('OperatingState', 'state'): State,
    ('OperationState', 'procedure'): PROCEDURE_NAMES,
    ('Order', 'action'): ADDRESSEES,
    ('Outcome', 'failure'): (*FAILURES, ABORTED, NOT_BEGUN),
    ('Policies', 'driver'): Driver,
    ('PolicyStatus', 'status'): Status,
    ('Privacy', 'unit'): UNITS,
    ('Progress', 'stage'): Stage,
    ('SelectedAction', 'policy'): (GLOBAL, HOME, HOLD),
    ('SelectedAction', 'reason'): Reason,
    ('SelectedAction', 'veto'): [each for each in Veto if each is not Veto.NONE],
    ('StringStamped', 'string'): COMMANDS,
    ('Supervise', 'command'): Command,
    ('Visibility', 'reason'): CameraFault,
}
"""Words that a field may have, besides none; the constant of one is FIELD_WORD."""

NUMBERS = {'Blame': Fault, 'Decline': DeclineReason, 'RoundStatus': Phase}
OTHERS = {
    'InterfaceVersion': {'CURRENT'},
    'OperationState': {'LAYOUT'},
    'PatientState': {'LAYOUT'},
    'Visibility': {each.upper() for each in PARTS_SEEN},
}

OF_OTHERS = {
    'crtk_msgs': {
        *('OperatingState', 'StringStamped'),
        *('QueryForwardKinematics', 'QueryInverseKinematics'),
    },
    'simulation_interfaces': {
        *('GetSimulationState', 'GetSimulatorFeatures', 'ResetSimulation', 'Result'),
        *('SetSimulationState', 'SimulationState', 'SimulatorFeatures', 'StepSimulation'),
    },
}
"""Packages whose definitions stand in ours where they are not found: fields have no bounds."""

VERSIONS = {
    1: 'dc4bd2ef46c42d8c',
    2: '26bd212d970f326f',
    3: 'e091fab10d6669c3',
}
"""
Hash of the definitions in each version of the set.

Whoever changes a definition raises CURRENT in msg/InterfaceVersion.msg, adds a line here, and says
in CHANGELOG.rst under Forthcoming what becomes of others ("interface version N").
"""


def parts_of(path: Path) -> list[MessageSpecification]:
    """Return the parts of a definition: of a message one, of a service two, of an action three."""
    if path.suffix == '.msg':
        return [parse_message_file('fdrl_ros', str(path))]
    if path.suffix == '.srv':
        service = parse_service_file('fdrl_ros', str(path))
        return [service.request, service.response]
    action = parse_action_file('fdrl_ros', str(path))
    return [action.goal, action.result, action.feedback]


PARTS = {path.stem: parts_of(path) for path in FILES}


def constants_of(name: str) -> dict[str, object]:
    return {each.name: each.value for part in PARTS[name] for each in part.constants}


@pytest.mark.parametrize('name', sorted(PARTS.keys() - OF_OTHERS['simulation_interfaces']))
def test_constants_are_the_words_and_numbers_of_the_code_and_no_others(name):
    expected = {each.name: int(each) for each in NUMBERS.get(name, ())}
    for (owner, field), words in WORDS.items():
        if owner == name:
            expected |= {f'{field}_{each}'.upper().replace(' ', '_'): str(each) for each in words}
    found = constants_of(name)
    others = OTHERS.get(name, set())
    assert {key: each for key, each in found.items() if key not in others} == expected
    assert others <= found.keys()


def test_the_layouts_in_the_messages_are_those_of_the_state():
    assert constants_of('OperationState')['LAYOUT'] == OPERATION_LAYOUT
    assert constants_of('PatientState')['LAYOUT'] == PATIENT_LAYOUT


def test_the_parts_in_visibility_are_those_of_the_label_picture():
    found = constants_of('Visibility')
    assert {name: found[name.upper()] for name in PARTS_SEEN} == {
        name: number for number, name in enumerate(PARTS_SEEN)
    }
    sizes = {each.type.array_size for each in PARTS['Visibility'][0].fields if each.type.is_array}
    assert sizes == {len(PARTS_SEEN)}


def unbounded(part: MessageSpecification) -> Iterator[str]:
    for each in part.fields:
        kind = each.type
        if kind.type == 'string' and kind.string_upper_bound is None:
            yield each.name
        elif kind.is_array and kind.array_size is None:
            yield each.name


def test_every_text_and_sequence_has_a_bound_or_a_reason():
    found = {name for name, parts in PARTS.items() if any(any(unbounded(each)) for each in parts)}
    assert found <= set().union(*OF_OTHERS.values()) <= PARTS.keys()


@pytest.mark.parametrize('name', sorted(set(KINDS) & set(PARTS)))
def test_bounds_are_those_of_the_protocol(name):
    types = {each.name: each.type for each in PARTS[name][0].fields}
    for each in fields(KINDS[name]):
        if most := each.metadata.get('most'):
            kind = types[each.name]
            assert most == (kind.array_size if kind.is_array else kind.string_upper_bound)


def test_the_reader_of_fields_has_the_bound_of_their_message():
    assert {each.type.array_size for each in PARTS['StateFields'][0].fields[2:]} == {MOST_FIELDS}


def definitions() -> str:
    """Return all definitions without comments and spaces that mean nothing."""
    lines = []
    for path in FILES:
        lines.append(f'{path.parent.name}/{path.name}')
        for line in path.read_text('utf-8').splitlines():
            if words := line.partition('#')[0].split():
                lines.append(' '.join(words))
    return '\n'.join(lines)


def test_a_change_of_any_definition_is_a_new_version_and_told():
    current = int(constants_of('InterfaceVersion')['CURRENT'])
    assert current == max(VERSIONS)
    found = hashlib.sha256(definitions().encode()).hexdigest()[:16]
    assert VERSIONS[current] == found, 'definitions changed: see VERSIONS for what to do'
    assert f'nterface version {current}' in (ROOT / 'CHANGELOG.rst').read_text('utf-8')
