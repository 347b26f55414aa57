# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The action `~/operate`: a goal is one operation, and ends as the operation ends."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from fdrl_ros.action import Operate
from fdrl_ros.errors import FdrlError, StateError
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.managed_node import ManagedNode
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import INDEX
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.action.server import ServerGoalHandle

_DONE = INDEX['done']


class _Server(ActionServer):
    """
    An action server that leaves an accepted goal to the node, which ends it.

    A coroutine that waited for the end of the operation would keep a core busy: EventsExecutor
    calls it again and again.
    """

    def add_future(self, future: object) -> None:
        """Keep a result from the executor, which would send it when this server may be gone."""

    def remove_future(self, future: object) -> None:
        """Do nothing: the executor has none."""

    def notify_execute(self, goal: ServerGoalHandle, execute: Callable[..., Any] | None) -> None:
        """Run nothing when a goal begins; what ends it, and sends the result, at once."""
        if execute is not None:
            with suppress(StopIteration):
                self._execute_goal(execute, goal).send(None)


class OperateAction:
    """
    Accepts one goal at a time, reports its operation, and ends it with the outcome.

    :param node: whose action it is, until the present transition is undone.
    :param bring: has a patient brought, given procedure and index; the goal is rejected if it
        raises FdrlError.
    :param stop: aborts the operation of the goal, or sends the patient away before it begins.
    """

    def __init__(
        self,
        node: ManagedNode,
        operation: Operation,
        bring: Callable[[str, int], None],
        stop: Callable[[], None],
    ) -> None:
        self._node, self._operation = node, operation
        self._bring, self._stop = bring, node.guarded(stop)
        self._goal: ServerGoalHandle | None = None
        self._chosen = ros.SelectedAction()
        self._server = _Server(
            node,
            Operate,
            '~/operate',
            lambda goal: Operate.Result(),
            goal_callback=self._judge,
            handle_accepted_callback=self._accept,
            cancel_callback=self._cancel,
        )
        node.keep(self._server.destroy)
        node.hear(ros.SelectedAction, 'action', self._receive_action, qos.SENSOR)

    @property
    def has_goal(self) -> bool:
        """Whether a goal is not done."""
        return self._goal is not None

    def report(self, on_table: bool) -> None:
        """
        Publish how the operation of the goal goes; call it ten times a second.

        :param on_table: whether the patient is there already.
        """
        if self._goal is None:
            return
        told, operation = Operate.Feedback(), self._operation
        if on_table:
            told.patient = operation.patient.name
            told.progress = float(operation.values()[_DONE])
            told.time, told.force = operation.time, operation.measured_force
            told.peak_force = max(operation.greatest_force, operation.peak_force)
            if self._chosen.patient == told.patient:
                told.policy, told.reason = self._chosen.policy, self._chosen.reason
        self._goal.publish_feedback(told)

    def end(self, outcome: ros.Outcome) -> None:
        """End the goal, if there is one, with the outcome of its operation."""
        goal, self._goal = self._goal, None
        if goal is None:
            return
        if outcome.success:
            goal.succeed()
        elif goal.is_cancel_requested:
            goal.canceled()
        else:
            goal.abort()
        self._server.notify_execute(goal, lambda _: Operate.Result(outcome=outcome))

    def _judge(self, goal: Operate.Goal) -> GoalResponse:
        try:
            if self._goal is not None:
                raise StateError('another goal is not done')
            self._bring(goal.procedure, goal.index)
        except FdrlError as error:
            self._node.get_logger().warning(f'goal rejected: {error}')
        except Exception as error:
            self._node.fail(error)
        else:
            return GoalResponse.ACCEPT
        return GoalResponse.REJECT

    def _accept(self, goal: ServerGoalHandle) -> None:
        self._goal = goal
        goal.execute()

    def _cancel(self, goal: ServerGoalHandle) -> CancelResponse:
        """Accept, and stop the operation once the goal is known to be canceled."""
        self._node.post(partial(self._stop_goal, goal))
        return CancelResponse.ACCEPT

    def _stop_goal(self, goal: ServerGoalHandle) -> None:
        if self._goal is goal:
            self._stop()

    def _receive_action(self, source: ros.SelectedAction) -> None:
        self._chosen = source
