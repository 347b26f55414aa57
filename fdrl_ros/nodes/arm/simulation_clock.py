# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The source of /clock: it lets simulated time pass, at which pace, and answers who stops it.

Its services are those of simulation_interfaces, or ours of the same fields where that package was
not found when this one was built.
"""

from typing import Any, Final, Protocol

from fdrl_ros.errors import StateError
from fdrl_ros.nodes.arm.robot_messages import stamp
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.deferred_answer import answer_later, Answered
from fdrl_ros.nodes.common.foreign_messages import definitions
from fdrl_ros.nodes.common.managed_node import ManagedNode
from fdrl_ros.runtime.simulated_time import SimulatedTime, Simulation
from rclpy.clock import Clock, ClockType
from rclpy.time_source import TimeSource
from rosgraph_msgs.msg import Clock as ClockMessage

_FOUND = definitions('simulation_interfaces', 'SimulationState')
Result = _FOUND.msg.Result
SimulationState = _FOUND.msg.SimulationState
SimulatorFeatures = _FOUND.msg.SimulatorFeatures
GetSimulationState = _FOUND.srv.GetSimulationState
GetSimulatorFeatures = _FOUND.srv.GetSimulatorFeatures
ResetSimulation = _FOUND.srv.ResetSimulation
SetSimulationState = _FOUND.srv.SetSimulationState
StepSimulation = _FOUND.srv.StepSimulation

FEATURES: Final = (
    SimulatorFeatures.SIMULATION_RESET,
    SimulatorFeatures.SIMULATION_RESET_TIME,
    SimulatorFeatures.SIMULATION_RESET_STATE,
    SimulatorFeatures.SIMULATION_STATE_GETTING,
    SimulatorFeatures.SIMULATION_STATE_SETTING,
    SimulatorFeatures.SIMULATION_STATE_PAUSE,
    SimulatorFeatures.STEP_SIMULATION_SINGLE,
    SimulatorFeatures.STEP_SIMULATION_MULTIPLE,
)

PATIENCE = 0.5
"""How long the next cycle waits for who answered the one before, second of the steady clock."""

QUICKEST = 0.001
"""Shortest time of a cycle that follows an answer, second of the steady clock."""

STANDING = 0.1
"""How often the time is told while it stands, second of the steady clock."""


class Room(Protocol):
    """What lives in simulated time."""

    def pass_cycle(self) -> None:
        """Let a cycle pass; the clock was set already."""

    def is_free(self) -> bool:
        """Say whether nobody's answer to this cycle counts."""

    def return_to_start(self) -> None:
        """Be as it was when it was activated."""

    def follow_clock_back(self) -> None:
        """Go on after the clock was set back."""


class SimulationClock:
    """
    Makes the time of a room, and tells it as /clock.

    With a factor of 0 the next cycle comes as soon as somebody has commanded the arm in answer to
    the one before; at once while nobody is operated on; and else in real time.

    :param node: whose topic and services these are; made while it is configured.
    :param room: that lives in this time.
    :param period: of a cycle, s.
    :param factor: simulated seconds in a second; 0 for as fast as answers come.
    """

    def __init__(self, node: ManagedNode, room: Room, period: float, factor: float) -> None:
        self._node, self._room = node, room
        self._period, self._factor = period, factor
        self.time = SimulatedTime(round(1e9 * period))
        clock = Clock(clock_type=ClockType.ROS_TIME)
        self._source = TimeSource()  # of no node: what others publish as /clock does not count
        self._source.ros_time_is_active = True
        self._source.attach_clock(clock)
        self.clock = clock
        """The node's clock."""
        self._topic = node.publisher(ClockMessage, '/clock', qos.CLOCK)
        self._source.clock_callback(self._message)

    def begin(self) -> None:
        """Let time pass, until the node is deactivated."""
        node = self._node
        self._answered = self._follows = False
        self._passed_at = node.now
        self._stepped: Answered | None = None
        if _FOUND.own:
            node.get_logger().warning(
                'built without simulation_interfaces: ~/set_simulation_state and the others have '
                'types of fdrl_ros, which tools of others do not understand'
            )
        node.answer(GetSimulationState, '~/get_simulation_state', self._get_state)
        node.answer(SetSimulationState, '~/set_simulation_state', self._set_state)
        node.answer(ResetSimulation, '~/reset_simulation', self._reset)
        node.answer(GetSimulatorFeatures, '~/get_simulator_features', self._get_features)
        answer_later(node, StepSimulation, '~/step_simulation', self._step, _fill_result)
        node.keep(self._end)
        node.every(self._period / self._factor if self._factor else QUICKEST, self._pass_if_due)
        node.every(STANDING, self._tell_standing)

    def note_command(self) -> None:
        """Take in that somebody commanded the arm, in answer to the newest cycle."""
        self._answered = self._follows = True

    def in_words(self) -> str:
        """Say what time does, and how fast."""
        pace = f'{self._factor:g} times real time' if self._factor else 'as fast as answers come'
        return f'{self.time.state.name.lower()}, {pace}'

    # Time.

    def _pass_if_due(self) -> None:
        """Let a cycle pass if its time has come by the steady clock."""
        if not self.time.passes or not (self._factor or self._is_awaited()):
            return
        self.time.advance()
        self._answered, self._passed_at = False, self._node.now
        self._set()
        self._room.pass_cycle()
        if self._stepped is not None and not self.time.steps:
            self._end_steps(True, '')

    def _is_awaited(self) -> bool:
        """Say whether there is nobody left whose answer the next cycle has to wait for."""
        if self._answered or self._room.is_free():
            return True
        waited = self._node.now - self._passed_at
        if self._follows and waited >= PATIENCE:
            self._follows = False
        return waited >= (PATIENCE if self._follows else self._period)

    def _set(self) -> None:
        """Set the node's clock, and tell the time."""
        self._source.clock_callback(self._message)
        self._topic.publish(self._message)

    def _tell_standing(self) -> None:
        if not self.time.passes:
            self._topic.publish(self._message)

    @property
    def _message(self) -> ClockMessage:
        return ClockMessage(clock=stamp(self.time.nanoseconds))

    def _end(self) -> None:
        self._end_steps(False, 'the node is deactivated')

    # Services.

    def _get_state(self, request: Any, response: Any) -> None:
        response.state.state = int(self.time.state)
        response.result.result = Result.RESULT_OK

    def _set_state(self, request: Any, response: Any) -> None:
        wanted, now, result = request.state.state, self.time.state, response.result
        if wanted == now:
            result.result = SetSimulationState.Response.ALREADY_IN_TARGET_STATE
        elif wanted == SimulationState.STATE_QUITTING:
            result.result = Result.RESULT_FEATURE_UNSUPPORTED
            result.error_message = 'the node ends by SIGINT, SIGTERM or its lifecycle'
        elif wanted in tuple(Simulation):
            self._change(Simulation(wanted))
            result.result = Result.RESULT_OK
        else:
            result.result = SetSimulationState.Response.INCORRECT_TRANSITION
            result.error_message = f'state {wanted}: expected stopped, playing or paused (0, 1, 2)'

    def _change(self, state: Simulation) -> None:
        self.time.change(state)
        self._end_steps(False, f'the simulation is {state.name.lower()} now')
        if state is Simulation.STOPPED:
            self._return(ResetSimulation.Request.SCOPE_ALL)
        self._node.get_logger().info(f'simulated time: {self.in_words()}')

    def _step(self, request: Any, answered: Answered) -> None:
        try:
            self.time.step(request.steps)
        except StateError as error:
            answered(False, str(error))
            return
        self._stepped = answered

    def _end_steps(self, done: bool, message: str) -> None:
        """Answer who waits for the last step."""
        if self._stepped is not None:
            answered, self._stepped = self._stepped, None
            answered(done, message)

    def _reset(self, request: Any, response: Any) -> None:
        scope, kinds = request.scope, ResetSimulation.Request
        offered = kinds.SCOPE_TIME | kinds.SCOPE_STATE
        if scope != kinds.SCOPE_ALL and scope & ~offered:
            response.result.result = Result.RESULT_FEATURE_UNSUPPORTED
            expected = 'time (1), state (2), both (3) or all (0, 255)'
            response.result.error_message = f'scope {scope}: expected {expected}'
            return
        self._return(scope or kinds.SCOPE_ALL)
        response.result.result = Result.RESULT_OK

    def _return(self, scope: int) -> None:
        """Take back to the start what a scope names; nothing is spawned."""
        if scope & ResetSimulation.Request.SCOPE_TIME:
            self.time.reset()
            self._set()
            self._room.follow_clock_back()
        if scope & ResetSimulation.Request.SCOPE_STATE:
            self._room.return_to_start()
        self._node.get_logger().info(f'simulation reset, scope {scope}')

    def _get_features(self, request: Any, response: Any) -> None:
        response.features.features = list(FEATURES)
        response.features.custom_info = (
            f'steps of {1000.0 * self._period:g} ms; real_time_factor {self._factor:g}'
        )


def _fill_result(response: Any, done: bool, message: str) -> None:
    response.result.result = Result.RESULT_OK if done else Result.RESULT_OPERATION_FAILED
    response.result.error_message = message
