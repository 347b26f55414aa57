# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""States, actions, constants and the files they come from."""

import math
from pathlib import Path
import subprocess
import sys

from fdrl_ros import resources
from fdrl_ros.errors import ResourceError, StateError
from fdrl_ros.surgery.constants import constant, constants
from fdrl_ros.surgery.gym.actions import (
    ACTION_COUNT,
    ACTIONS,
    displacement,
    DISPLACEMENTS,
    MAXIMUM_SPEED,
    STAY,
    TICK,
)
from fdrl_ros.surgery.gym.state import (
    OPERATION_FIELDS,
    PATIENT_FIELDS,
    scale,
    SCALES,
    STATE_BOUND,
    STATE_FIELDS,
    STATE_SIZE,
    unscale,
)
import numpy as np
import pytest


def test_fifteen_actions_in_the_agreed_order():
    assert [each.name for each in ACTIONS] == [
        f'{size} {sign}{axis}' for size in ('coarse', 'fine') for axis in 'xyz' for sign in '-+'
    ] + ['stay', 'open jaw', 'close jaw']
    assert ACTION_COUNT == 15
    assert STAY == 12
    assert displacement(4) == (0.0, 0.0, -0.0025)
    assert displacement(7) == (0.0005, 0.0, 0.0)
    assert not DISPLACEMENTS.flags.writeable


def test_no_action_is_faster_than_fifty_millimetres_a_second():
    assert TICK == pytest.approx(0.05)
    assert pytest.approx(0.05) == MAXIMUM_SPEED
    assert np.abs(DISPLACEMENTS).sum(axis=1).max() / TICK <= MAXIMUM_SPEED + 1e-12


NO_ACTIONS = [-1, 15, 0.5, 3.0, math.nan, math.inf, 'x', '3', None, True, np.True_, [3], (), 1j]
NO_ACTIONS += [np.array([1, 2]), np.array([1]), np.array(1.0), np.float64(2.0)]


@pytest.mark.parametrize('wrong', NO_ACTIONS, ids=repr)
def test_actions_that_do_not_exist_are_refused(wrong):
    with pytest.raises(StateError, match='expected a whole number from 0 to 14'):
        displacement(wrong)


@pytest.mark.parametrize('kind', [int, np.int64, np.uint8, np.array])
def test_whole_numbers_of_any_kind_are_actions(kind):
    assert [displacement(kind(each)) for each in range(15)] == [e.displacement for e in ACTIONS]


def test_fields_have_names_units_and_scales_in_two_parts():
    assert STATE_FIELDS == OPERATION_FIELDS + PATIENT_FIELDS
    assert len({each.name for each in STATE_FIELDS}) == STATE_SIZE
    assert all(each.scale > 0 and each.unit and each.description for each in STATE_FIELDS)
    hidden = [each for each in STATE_FIELDS if each.name != 'felt_stiffness']
    assert not any('stiffness' in each.name or 'modulus' in each.name for each in hidden)


def test_unscale_undoes_scale():
    values = np.linspace(-3.0, 3.0, 2 * STATE_SIZE).reshape(2, STATE_SIZE) * SCALES
    state = scale(values)
    assert state.dtype == np.float32
    assert np.allclose(unscale(state), values, rtol=1e-6, atol=1e-9)


def test_what_a_policy_sees_is_bounded():
    for sign in (1.0, -1.0):
        assert scale(np.full(STATE_SIZE, sign * 1e9)).tolist() == [sign * STATE_BOUND] * STATE_SIZE


def test_states_of_the_wrong_size_or_not_finite_are_refused():
    with pytest.raises(StateError, match='shape'):
        scale([0.0] * (STATE_SIZE - 1))
    with pytest.raises(StateError, match='shape'):
        unscale(np.zeros(STATE_SIZE + 1, np.float32))
    with pytest.raises(StateError, match='finite'):
        unscale(np.full(STATE_SIZE, np.nan, np.float32))


def test_every_constant_has_a_unit_and_a_source():
    assert len(constants()) > 50
    assert constant('physiology.hypotension') == 65.0
    with pytest.raises(ResourceError, match='nothing.here'):
        constant('nothing.here')


LISTENER = """
import importlib, pkgutil
from fdrl_ros.surgery import constants

asked, real = set(), constants.constant
constants.constant = lambda name: asked.add(name) or real(name)
import fdrl_ros.surgery
for each in pkgutil.walk_packages(fdrl_ros.surgery.__path__, 'fdrl_ros.surgery.'):
    importlib.import_module(each.name)
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.patient.conditions import Conditions
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES

from fdrl_ros.surgery.render.view import tissue_colour

tissue_colour(1.0)
operation = Operation(WorldSettings(mode='kinematic'))
for name in PROCEDURE_NAMES:
    cohort = Cohort(0, 3, 1.0, 0, procedures=(name,), conditions=Conditions(1.0, True))
    operation.reset(cohort.patient(0))
    operation.advance(12)
    operation.tick()
print(*sorted(constants.constants().keys() - asked))
"""


def test_every_constant_is_asked_for():
    found = subprocess.run(
        [sys.executable, '-c', LISTENER], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == ''


def test_files_are_found_in_the_source_a_wheel_and_an_ament_prefix(tmp_path, monkeypatch):
    assert resources.resource('urdf/psm.urdf').is_file()
    module = tmp_path / 'site' / 'fdrl_ros' / 'resources.py'
    module.parent.mkdir(parents=True)
    monkeypatch.setattr(resources, '__file__', str(module))
    monkeypatch.setenv('AMENT_PREFIX_PATH', f'/nowhere:{tmp_path / "install"}')
    with pytest.raises(ResourceError, match='/nowhere/share/fdrl_ros'):
        resources.resource('urdf/psm.urdf')
    for place in ('install/share/fdrl_ros', 'site/fdrl_ros/_share'):
        path = tmp_path / place / 'urdf' / 'psm.urdf'
        path.parent.mkdir(parents=True)
        path.touch()
        assert resources.resource('urdf/psm.urdf') == Path(path)
