# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""With use_sim_time the env makes time: it is played, paused, stepped, reset, slow or fast."""

from typing import Any

from builtin_interfaces.msg import Time
from fdrl_ros.deployment.bringup import robot_graph, RoomArguments
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.robot_messages import pose, quaternion, seconds
from fdrl_ros.nodes.arm.simulation_clock import (
    FEATURES,
    GetSimulationState,
    GetSimulatorFeatures,
    ResetSimulation,
    Result,
    SetSimulationState,
    SimulationState,
    StepSimulation,
)
from fdrl_ros.nodes.common import qos
from fdrl_ros.runtime.simulated_time import START
from fdrl_ros.surgery.arm.kinematics import HOME
import numpy as np
import pytest
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rosgraph_msgs.msg import Clock
from support.foreign_robot import released
from support.operating_room import Room
from support.surgeon import env_alone, Surgeon

STOPPED, PLAYING, PAUSED = (
    SimulationState.STATE_STOPPED,
    SimulationState.STATE_PLAYING,
    SimulationState.STATE_PAUSED,
)
CYCLE = 10_000_000


class Simulated:
    """Somebody who uses the services of the simulation, and looks at the clock."""

    def __init__(self, room: Room) -> None:
        self.room = room
        room.hear(Clock, '/clock', qos.EVENT)

    @property
    def times(self) -> list[int]:
        """Return all times told so far, ns."""
        told = [each.clock for _, each in self.room.heard['/clock']]
        return [each.sec * 1_000_000_000 + each.nanosec for each in told]

    def set(self, state: int) -> Any:
        request = SetSimulationState.Request(state=SimulationState(state=state))
        return self.room.ask(SetSimulationState, 'env/set_simulation_state', request).result

    def state(self) -> int:
        request = GetSimulationState.Request()
        return self.room.ask(GetSimulationState, 'env/get_simulation_state', request).state.state

    def step(self, steps: int) -> Any:
        request = StepSimulation.Request(steps=steps)
        return self.room.ask(StepSimulation, 'env/step_simulation', request).result

    def reset(self, scope: int, result: int = Result.RESULT_OK) -> None:
        request = ResetSimulation.Request(scope=scope)
        answer = self.room.ask(ResetSimulation, 'env/reset_simulation', request)
        assert answer.result.result == result

    def standing(self) -> int:
        """Return the time once it was told to be the same three times since now."""
        count = len(self.times)
        self.room.wait(lambda: len(self.times) >= count + 3)
        self.room.wait(lambda: len(set(self.times[-3:])) == 1)
        return self.times[-1]


@pytest.fixture
def env(runner, room, settings):
    runner.start([env_alone(settings, use_sim_time=True)])
    made = Simulated(room)
    room.wait(lambda: len(made.times) > 5)
    return made


def test_time_stands_is_stepped_and_goes_back_when_told(env, room):
    surgeon = Surgeon(room)
    surgeon.watch()
    features = room.ask(
        GetSimulatorFeatures, 'env/get_simulator_features', GetSimulatorFeatures.Request()
    )
    assert set(features.features.features) == set(FEATURES)
    assert env.state() == PLAYING
    assert env.set(PLAYING).result == SetSimulationState.Response.ALREADY_IN_TARGET_STATE
    refused = env.step(1)
    assert refused.result == Result.RESULT_OPERATION_FAILED
    assert 'expected paused' in refused.error_message
    assert set(np.diff(env.times)) == {CYCLE}, 'each cycle is told, one after the other'

    assert env.set(PAUSED).result == Result.RESULT_OK and env.state() == PAUSED
    stood = env.standing()
    readings = len(room.heard['measured_js'])
    start, rotation = surgeon.tip()
    goal = start + [0.0, 0.0, 0.01]
    surgeon.send('move_cp', pose(Time(), goal, quaternion(rotation)))
    surgeon.wait(lambda: room.last('operating_state').is_busy)
    assert env.standing() == stood
    assert len(room.heard['measured_js']) == readings, 'nothing moves'
    for steps in (1, 7):
        assert env.step(steps).result == Result.RESULT_OK
        assert env.standing() == stood + steps * CYCLE
        stood += steps * CYCLE
        readings += steps
        room.wait(lambda count=readings: len(room.heard['measured_js']) == count)
    stamp = room.last('measured_js').header.stamp
    assert seconds(stamp) == pytest.approx(1e-9 * stood), 'stamps are of that time'
    assert 0.0 < surgeon.tip()[0][2] - start[2] < 0.01

    assert env.set(PLAYING).result == Result.RESULT_OK
    surgeon.wait(lambda: np.allclose(surgeon.tip()[0], goal, atol=1e-9))
    assert np.diff(env.times).min() >= 0, 'never back'
    fixed = room.ask(
        SetParameters,
        'env/set_parameters',
        SetParameters.Request(
            parameters=[
                Parameter(
                    name='use_sim_time',
                    value=ParameterValue(type=ParameterType.PARAMETER_BOOL, bool_value=False),
                )
            ]
        ),
    ).results[0]
    assert not fixed.successful and 'clean it up first' in fixed.reason

    for scope in (ResetSimulation.Request.SCOPE_TIME, ResetSimulation.Request.SCOPE_DEFAULT):
        before, at_goal = len(env.times), surgeon.tip()[0]
        env.reset(scope)
        room.wait(lambda count=before: min(env.times[count:], default=START + 1) == START)
        room.wait(lambda: START < env.times[-1] < START + 10 * 1_000_000_000)
        if scope == ResetSimulation.Request.SCOPE_TIME:
            assert np.allclose(surgeon.settle()[2], HOME[2] - 0.01), 'the arm stays'
            assert np.allclose(surgeon.tip()[0], at_goal, atol=1e-9)
    assert np.allclose(surgeon.settle(), HOME, atol=1e-6), 'the arm is back'

    for scope in (ResetSimulation.Request.SCOPE_SPAWNED, 9):
        env.reset(scope, Result.RESULT_FEATURE_UNSUPPORTED)
    assert env.set(PAUSED).result == Result.RESULT_OK
    waiting = room.operate('palpation', 3)  # nobody comes while time stands
    env.reset(ResetSimulation.Request.SCOPE_STATE)
    assert room.outcome_of(waiting)[1].failure == 'aborted', 'who waits is sent away'
    assert env.set(PLAYING).result == Result.RESULT_OK

    patient = surgeon.begin()
    assert env.set(STOPPED).result == Result.RESULT_OK
    room.wait(lambda: room.heard['outcome'])
    assert (room.last('outcome').patient, room.last('outcome').failure) == (patient, 'aborted')
    assert env.standing() == START, 'stopped is back at the start'
    assert env.set(SimulationState.STATE_QUITTING).result == Result.RESULT_FEATURE_UNSUPPORTED
    no_way = env.set(SimulationState.STATE_NO_WORLD)
    assert no_way.result == SetSimulationState.Response.INCORRECT_TRANSITION


def test_same_commands_give_the_same_outcome_at_any_pace(runner, room, settings):
    surgeon, outcomes = Surgeon(room), []
    for count, factor in enumerate((1.0, 4.0, 0.0), 1):
        spec = env_alone(
            settings, use_sim_time=True, real_time_factor=factor, **{'world.horizon': 40}
        )
        runner.start([spec])
        surgeon.begin('palpation', index=2)
        start, rotation = surgeon.tip()
        down = pose(Time(), start + [0.0, 0.0, -0.03], quaternion(rotation))
        surgeon.send('move_cp', down)
        surgeon.wait(lambda c=count: len(room.heard['outcome']) == c)
        told = room.last('outcome')
        outcomes.append((told.patient, told.failure, told.steps, told.peak_force, told.damage))
        assert set(runner.stop().values()) == {0}
        room.wait(lambda: not room.takes_goals)
        for topic in list(room.heard):
            if topic != 'outcome':
                room.heard[topic].clear()
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert outcomes[0][3] > 0.0, 'there was contact'


def test_selector_goes_on_with_its_case_after_a_pause_and_begins_another_after_a_reset(
    runner, room, settings, directory
):
    env = Simulated(room)
    for kind, topic in (
        (ros.Outcome, 'outcome'),
        (ros.Risk, 'risk'),
        (ros.SelectedAction, 'action'),
        (ros.OperationState, 'operation_state'),
    ):
        room.hear(kind, topic, qos.EVENT)
    policy = room.node.create_publisher(ros.GlobalPolicy, '/federation/policy', qos.LATCHED)
    policy.publish(released(directory))
    specs = robot_graph(
        settings, 'robot_1', -1, RoomArguments(use_sim_time=True, real_time_factor=4.0)
    )
    runner.start(specs)
    room.wait(lambda: len(room.heard['risk']) > 10)
    first = room.last('risk')
    assert env.set(PAUSED).result == Result.RESULT_OK
    stood = env.standing()
    for _ in range(4):
        assert env.standing() == stood
    assert env.set(PLAYING).result == Result.RESULT_OK
    count = len(room.heard['risk'])
    room.wait(lambda: len(room.heard['risk']) > count + 5)
    after = room.last('risk')
    assert (after.patient, after.cases) == (first.patient, first.cases), 'the same case'
    assert after.case_steps > first.case_steps
    env.reset(ResetSimulation.Request.SCOPE_ALL)
    room.wait(lambda: room.heard['outcome'])
    assert room.last('outcome').failure == 'aborted'
    count = len(room.heard['risk'])
    room.wait(lambda: len(room.heard['risk']) > count + 10)
    assert seconds(room.last('risk').header.stamp) < 30.0
    assert set(runner.stop().values()) == {0}
