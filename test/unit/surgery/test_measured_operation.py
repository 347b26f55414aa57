# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The state made of measurements and a plan is the simulated operation's own."""

from dataclasses import asdict

from fdrl_ros.errors import SettingError, StateError
from fdrl_ros.resources import resource
from fdrl_ros.surgery.gym.actions import ACTIONS, TICK
from fdrl_ros.surgery.gym.measured_operation import Measured, MeasuredOperation, OperationPlan
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import INDEX, OPERATION_FIELDS, OPERATION_SIZE
from fdrl_ros.surgery.patient.cohort import public_cohort
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.expert import expert
from fdrl_ros.surgery.tasks.procedures import PROCEDURE_NAMES
import numpy as np
import pytest
import yaml

WORLD = WorldSettings(mode='kinematic')
SPREAD = (2, 3, 2, 3, 2)
"""Sub-steps between five measurements of one tick."""


def plan_of(patient):
    """Return the plan that a hospital would have of a simulated patient."""
    return OperationPlan(
        procedure=patient.procedure.name,
        patient=patient.name,
        goal=patient.goal,
        destination=patient.destination,
        phase=patient.breathing_phase,
    )


def measure(operation):
    height, rise = operation.tissue.surface(operation.ticks * TICK)
    return Measured(
        operation.target,
        operation.arm.position,
        operation.measured_force,
        operation.jaw.opening,
        operation._told,
        (height, rise),
    )


@pytest.mark.parametrize('procedure', PROCEDURE_NAMES)
def test_the_state_of_every_procedure_is_that_of_the_simulated_operation(procedure):
    patient = public_cohort(5, 0.0, (procedure,)).patient(3)
    operation, monitor = Operation(WORLD), MeasuredOperation(plan_of(patient))
    operation.reset(patient)
    monitor.begin(100.0)
    states, differences = [], []
    while not operation.done:
        operation.act(ACTIONS[int(expert(operation.state(), patient, WORLD)[0])])
        for part, substeps in enumerate(SPREAD):
            operation.advance(substeps)
            if part == len(SPREAD) - 1:
                operation.tick()
            time = 100.0 + TICK * (operation.ticks if part == 4 else operation.ticks + 0.2 * part)
            found = monitor.take(measure(operation), time)
        states.append(operation.values()[:OPERATION_SIZE])
        differences.append(np.abs(np.subtract(found, states[-1])))
    assert len(states) > 10 and operation.outcome.success and monitor.over
    worst = dict(
        zip([each.name for each in OPERATION_FIELDS], np.max(differences, 0), strict=True)
    )
    # Contact is found between two measurements: no farther than the tip goes in one of them.
    assert worst.pop('depth') <= 0.0006
    surface = abs(patient.registration_error) + 1e-9
    assert worst.pop('felt_stiffness') < 0.2
    assert max(worst.values()) <= surface, worst


def test_time_begins_with_the_first_command_and_ends():
    plan = OperationPlan('reach', 'a', (0.0, 0.0, -0.12), time=1.0)
    operation, now = MeasuredOperation(plan), Measured((0.0, 0.0, -0.1), (0.0, 0.0, -0.1), 0.0)
    left = INDEX['time_left']
    assert operation.take(now, 5.0)[left] == 1.0 and not operation.over
    operation.begin(7.0)
    operation.begin(99.0)
    assert operation.take(now, 7.5)[left] == pytest.approx(0.5)
    assert operation.take(now, 7.4)[left] == pytest.approx(0.5), 'time never goes back'
    assert operation.take(now, 60.0)[left] == 0.0 and operation.over
    with pytest.raises(StateError, match='not finite'):
        operation.take(now._replace(force=float('nan')), 8.0)


def test_the_plan_that_ships_can_be_read():
    plan = OperationPlan.read(resource('config/operation_plan.yaml'))
    assert plan.procedure == 'palpation'
    assert OperationPlan.read(resource('config/operation_plan.yaml')) == plan


@pytest.mark.parametrize(
    ('changes', 'told'),
    [
        ({'procedure': 'tonsillectomy'}, 'one of reach'),
        ({'goal': [0.0, 0.0]}, 'goal = .* expected three numbers'),
        ({'goal': [0.0, 0.0, float('nan')]}, 'three numbers'),
        ({'goal': [0.0, 0.0, -3.0]}, 'within the room'),
        ({'goal': None}, 'given in the plan'),
        ({'patient': ''}, 'a name'),
        ({'target_force': -1}, 'at least 0'),
        ({'procedure': 'reach', 'target_force': 1.0}, 'no hover holds one'),
        ({'gaol': [0, 0, 0]}, r'plan.yaml: gaol = \[0, 0, 0\]: expected .*did you mean goal'),
    ],
)
def test_a_plan_that_nobody_can_carry_out_is_refused(tmp_path, changes, told):
    good = {'procedure': 'palpation', 'patient': 'a', 'goal': [0.0, 0.0, -0.12]}
    path = tmp_path / 'plan.yaml'
    path.write_text(yaml.safe_dump(good))
    assert asdict(OperationPlan.read(path))['goal'] == (0.0, 0.0, -0.12)
    path.write_text(yaml.safe_dump({**good, **changes}))
    with pytest.raises(SettingError, match=told):
        OperationPlan.read(path)


def test_a_plan_that_is_none_is_refused(tmp_path):
    with pytest.raises(SettingError, match='No such file'):
        OperationPlan.read(tmp_path / 'none.yaml')
    (tmp_path / 'broken.yaml').write_text('{')
    with pytest.raises(SettingError, match='readable YAML'):
        OperationPlan.read(tmp_path / 'broken.yaml')
