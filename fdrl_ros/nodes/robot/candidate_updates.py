# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Policies of a selector, from latched topics and the disk, under the surgeon's supervision."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
import math
import time
from typing import Any, cast, TypeVar

from builtin_interfaces.msg import Time
from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.deployment.namespaces import beside
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.public_value import fitted_with
from fdrl_ros.deployment.robot.robot_policies import value_for_robot
from fdrl_ros.deployment.robot.safety_test import basis
from fdrl_ros.errors import (
    LastingError,
    MessageError,
    PolicyError,
    StoreBusyError,
    SupervisionError,
)
from fdrl_ros.federation.protocol.message import GlobalPolicy, HospitalPolicy, Order, shortened
from fdrl_ros.federation.protocol.orders import check_hand_back, HAND_BACK
from fdrl_ros.federation.protocol.party import worth_logging
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.deferred_answer import answer_later, Answered
from fdrl_ros.nodes.common.managed_node import ManagedNode, PATIENCE
from fdrl_ros.nodes.parties.conversion import envelope_from_ros, from_ros
from fdrl_ros.nodes.parties.weights_topic import PolicyReader
from fdrl_ros.nodes.robot.policy_assessment import tested, valued
from fdrl_ros.nodes.robot.supervision_queue import SupervisionQueue, SupervisionRequest
from fdrl_ros.policy import Policy
from fdrl_ros.policy.network import Network
from fdrl_ros.runtime.backoff import Backoff
from fdrl_ros.runtime.subprocess_runner import KeptProcess
from fdrl_ros.runtime.worker_thread import Worker
from fdrl_ros.selector.candidates.candidate import HOLD
from fdrl_ros.selector.candidates.decision_time import decision_time, DecisionTime
from fdrl_ros.selector.candidates.policy_files import PolicyFiles
from fdrl_ros.selector.candidates.registry import (
    PolicyRegistry,
    Released,
    Status,
    Values,
    Version,
)
from fdrl_ros.selector.candidates.safety_limits import SafetyReport
from fdrl_ros.selector.candidates.supervision import (
    BY_TOPIC,
    Command,
    command_named,
    Driver,
    Supervision,
    SUPERVISION_FILE,
    URGENT,
)
from fdrl_ros.selector.control.loop import ControlLoop
from fdrl_ros.selector.value.model import ValueModel
import fdrl_ros.srv as srv
from std_msgs.msg import String

Tested = tuple[SafetyReport, DecisionTime | None]
"""What the test of a policy found, and how long it takes for an action if it passed."""

Request = TypeVar('Request')

CHECKED = 16
"""Policies that may wait for the check of their signatures."""

WAITING = 1000
"""Things that may wait to be written."""

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0
"""After which what could not be valued is tried once more, second; it doubles each time."""


class CandidateUpdates:
    """
    Keeps the candidates of one selector up to date, and applies the surgeon's supervision to it.

    What is written goes through a thread of its own: the control loop waits for no disk.
    """

    def __init__(
        self,
        node: ManagedNode,
        plan: Plan,
        roster: Roster,
        start: tuple[Network, Policy],
        kept: int,
        hospital: str = '',
    ) -> None:
        """
        Make the publisher, while the node is configured.

        :param start: the network of this robot's policies, and the public start.
        :param kept: versions of each policy that are kept.
        :param hospital: that the robot is of; empty for none.
        """
        self._node = node
        self._hospital = hospital
        self.plan, self.roster = plan, roster
        self._network, self._start = start
        self._kept = kept
        robot = node.layout.party(node.place)
        self.files = PolicyFiles(robot)
        self._elsewhere = KeptProcess()
        self._supervision_file = robot / SUPERVISION_FILE
        self._publisher = node.publisher(ros.Policies, 'policies', qos.LATCHED)
        self._writer: Worker | None = None
        self._active = False
        # They outlast deactivation, so that whoever waits then is answered.
        answer_later(node, srv.PinPolicy, '~/pin_policy', self._if_active(self._pin))
        answer_later(node, srv.Supervise, '~/supervise', self._if_active(self._supervise))
        self.refused = 0
        self.problem = ''

    def begin(self, loop: ControlLoop) -> None:
        """
        Have the candidates of before stand at once, then listen, while the node is activated.

        :raises StoreError: if another process has these files, or the supervision is damaged.
        :raises PolicyError: if what was pinned cannot stand.
        """
        node = self._node
        self._loop = loop
        self._taken = time.time()  # no order from before hands this arm back
        self._assessing = ''
        self._checking = 0
        self._failed = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._known: tuple[Policy, ...] | None = None
        self.problem = ''
        self._lock_files()
        self._queue = SupervisionQueue(
            node, self._supervision_file, self._submit, self._supervision_changed
        )
        limits, tests = self.plan.safety, basis(self.plan)
        self.registry = PolicyRegistry(
            self.roster,
            self._network,
            limits,
            kept=self._kept,
            basis=tests,
            hospital=self._hospital,
        )
        values = partial(fitted_with, self.plan, self._start)
        for each in self.files.load(self.registry, self.supervision, values):
            node.get_logger().warning(each)
        self._time_passed()
        self.registry.check_pins(self.supervision)
        self._writer = Worker(f'{node.get_name()} writer', node.post, WAITING)
        node.keep(self._end)
        self._active = True
        self._subscribe()
        node.answer(srv.ListPolicies, '~/list_policies', self._list_policies)
        node.hear(String, 'supervise', self._receive_command, qos.EVENT)
        self._supervision_changed()
        node.every(1.0, self.assess_next)

    @property
    def supervision(self) -> Supervision:
        """The supervision in force."""
        return self._queue.supervision

    def _subscribe(self) -> None:
        size, hear = 4 * self._start.n_parameters, self._node.hear
        reader = PolicyReader(size, self._policy_receiver(GlobalPolicy))
        federation = self._node.federation_namespace
        reader.subscribe(hear, ros.GlobalPolicy, f'{federation}/policy')
        topics = [f'{beside(federation, each.name)}/policy' for each in self.roster.hospitals]
        if self._hospital:
            topics.append(f'{beside(federation, self._hospital)}/home')
        for topic in topics:
            reader = PolicyReader(size, self._policy_receiver(HospitalPolicy))
            reader.subscribe(hear, ros.HospitalPolicy, topic)

    def _lock_files(self) -> None:
        """Keep others from these files, for as long as anything here may write them."""
        try:
            held = self.files.lock()
        except StoreBusyError as error:
            if self._writer is None or self._writer.ended:
                raise
            raise StoreBusyError(
                'the disk does not answer: what was written before the deactivation is still on '
                'its way; activate once more when it does'
            ) from error
        self._writer = None

        def release() -> None:
            if self._writer is None:
                held.close()
            else:
                self._writer.when_ended(held.close)

        self._node.keep(release)

    def _end(self) -> None:
        """Stop writing once the last supervision is written."""
        self._active = False
        assert self._writer is not None
        ended = self._writer.close(PATIENCE)
        self._queue.close(ended)

    # Policies that come.

    def _policy_receiver(
        self, kind: type[GlobalPolicy] | type[HospitalPolicy]
    ) -> Callable[[ros.GlobalPolicy, bytes | None], None]:
        def take(source: ros.GlobalPolicy, weights: bytes | None) -> None:
            apart = {} if weights is None else {'weights': weights}

            def check() -> tuple[Released, Policy]:
                message: Released = from_ros(source, kind, **apart)
                return message, self.registry.check(message)

            if self._checking == CHECKED:
                self._refuse_message(f'{CHECKED} policies wait for their check already')
                return
            self._checking += 1
            # Five million weights take 0.1 s, in which the control loop goes on.
            self._submit(check, partial(self._checked, time.time()))

        return take

    def _checked(self, came: float, found: object) -> None:
        """
        Keep a policy that was checked.

        :param found: its message and the policy, or why it is refused.
        """
        self._checking -= 1
        try:
            if isinstance(found, Exception):
                raise found
            message, policy = cast('tuple[Released, Policy]', found)
            version = self.registry.add(message, policy, came)
        except MessageError as error:
            self._refuse_message(str(error))
            return
        if version is not None:
            self._write_in_background(lambda: self.files.save(version))
            self._update_candidates()
            self.assess_next()

    def _refuse_message(self, reason: str) -> None:
        self.refused += 1
        if worth_logging(self.refused):
            self._node.get_logger().warning(f'refused: {reason}')

    def assess_next(self) -> None:
        """Test or value the next policy on the worker, one at a time."""
        registry, waiting = self.registry, self._failed.waiting(self._node.now)
        version = registry.pending(self.supervision, waiting)
        if self._assessing:
            return
        if version is not None and version.report is None:
            self._test(version)
        elif registry.hold_pending:
            # Holding is a candidate like the others: no other value compares with anything.
            if HOLD not in waiting:
                self._value(None)
        elif version is not None:
            self._value(version)

    def _test(self, version: Version) -> None:
        self._assess(f'testing the {version.name} policy of round {version.round}')
        policy, plan, files = version.policy, self.plan, self.files
        elsewhere = self._elsewhere

        def find_out(report: object, stopped: Callable[[], bool]) -> Tested:
            found = tested(policy, plan, files, stopped, elsewhere)
            return found, None if found.refusal(plan.safety) else self._timed(policy)

        accept = partial(self._accept_test, version)
        self._node.submit(find_out, partial(self._assessed, version, accept))

    def _value(self, version: Version | None) -> None:
        """
        Value a policy.

        :param version: None for holding.
        """
        self._assess(f'valuing the {version.name} policy' if version else 'valuing to hold')
        plan, start, files, values = self.plan, self._start, self.files, self.registry.newer_values
        policy, elsewhere = version.policy if version else None, self._elsewhere

        def find_out(report: object, stopped: Callable[[], bool]) -> ValueModel:
            return valued(policy, plan, start, values.known, files, stopped, elsewhere)

        accept = partial(self._accept_model, version, values)
        self._node.submit(find_out, partial(self._assessed, version, accept))

    def _assess(self, what: str) -> None:
        """Tell what begins."""
        self._assessing = what
        self._node.get_logger().info(what)

    @property
    def absence(self) -> str:
        """Why no policy may act, where none does."""
        if self._assessing:
            return self._assessing
        return 'none of those received may act' if self.registry.versions else 'none was received'

    def _timed(self, policy: Policy) -> DecisionTime:
        """
        Return how long a policy takes for an action; it has loaded then what it needs.

        :raises LastingError: if it is too slow, or answers with no action.
        """
        try:
            found = decision_time(policy)
            found.check(self.plan.selector.answer_timeout)
        except PolicyError as error:
            raise LastingError(str(error)) from error
        return found

    def _time_passed(self) -> None:
        """Time all that may stand, before the control loop begins."""
        for version in self.registry.versions:
            try:
                if version.passed:
                    version.decision = self._timed(version.policy)
            except LastingError as error:
                self._refuse(version, error)

    def _assessed(
        self, version: Version | None, accept: Callable[[Any], None], result: object
    ) -> None:
        """
        Take in what was found; without it the robot goes on with the candidates it has.

        A policy that is a candidate already, and holding, keep the value that they have.

        :param version: None for holding.
        :param accept: takes in a result.
        """
        self._assessing = ''
        registry = self.registry
        stands = registry.ready(version) if version else HOLD in registry.values.models
        try:
            if isinstance(result, Exception):
                raise result
            accept(result)
        except Exception as error:  # whatever it is, the arm must not lose its control loop
            passing = isinstance(result, Exception) and not isinstance(result, LastingError)
            if stands or passing:
                self._retry_later(version, error)
            else:
                self._refuse_for_good(version, error)
        self.assess_next()

    def _retry_later(self, version: Version | None, error: Exception) -> None:
        """Try once more later: a full disk or a killed process may have been the reason."""
        pause = self._failed.fail(version.digest if version else HOLD, self._node.now)
        words = f'the {version.name} policy' if version else 'holding'
        self.report_problem(f'{words} could not be valued: {error}; once more in {pause:g} s')
        if version:
            version.setback = self.problem
            self.publish()

    def _accept_test(self, version: Version, found: Tested) -> None:
        report, version.decision = found
        self._failed.forget(version.digest)
        if self.problem == version.setback:
            self.problem = ''
        version.setback = ''
        self.registry.add_report(version, report)
        if version.refusal:
            self.problem = f'the {version.name} policy is refused: {version.refusal}'
            self._node.get_logger().warning(f'{self.problem} (round {version.round})')
        self._update_candidates()

    def _accept_model(self, version: Version | None, values: Values, model: ValueModel) -> None:
        """
        Take in a value model.

        :param version: None for holding.
        :param values: among which it was fitted.
        """
        self.registry.add_model(version, model, values)
        self._failed.forget(version.digest if version else HOLD)
        if version:
            version.setback = ''
        self._update_candidates()
        pending = self.registry.pending(self.supervision)
        self.problem = pending.setback if pending else ''
        if version:
            limit, took = self.plan.selector.answer_timeout, version.decision
            words = f'; its action takes {took.words(limit)}' if took else ''
            waits = 'valued, and waits until the others are valued anew'
            state = 'a candidate' if self.registry.ready(version) else waits
            self._node.get_logger().info(f'the {version.name} policy is {state}{words}')

    def _refuse_for_good(self, version: Version | None, error: Exception) -> None:
        """Ask no more for what cannot be found out; another version has its turn."""
        if version is None:
            self._failed.give_up(HOLD)
            self.report_problem(
                f'holding cannot be valued: {error}; so no policy can, until the selector is '
                'activated again'
            )
            return
        self._refuse(version, error)
        self._update_candidates()

    def _refuse(self, version: Version, error: Exception) -> None:
        version.refusal = str(error)
        words = f'the {version.name} policy of round {version.round}'
        self.report_problem(f'{words} cannot stand, and is not tried again: {error}')

    def report_problem(self, problem: str) -> None:
        """Tell of a problem, in the log and in the node's health."""
        self.problem = problem
        self._node.get_logger().error(problem)

    def _update_candidates(self) -> None:
        """Hand all candidates over at once, tell of them, and forget the oldest versions."""
        registry, supervision = self.registry, self.supervision
        value_for_robot(self.plan, self._start, registry, supervision)
        registry.use_newer_values(supervision)
        self._loop.selector.set_candidates(registry.candidates(supervision))
        known = registry.values.known
        if known is not self._known:
            self._known = known
            self._write_in_background(lambda: self.files.save_known(known))
        gone = registry.prune(supervision)
        if gone:
            left = registry.versions
            for each in gone:
                self._failed.forget(each.digest)
            self._write_in_background(lambda: self.files.remove(gone, left))
        self.publish()

    # Supervision.

    def _supervision_changed(self) -> None:
        """Apply the supervision that is in force to the control loop."""
        self._loop.selector.lock(self.supervision.locked or None)
        if self.supervision.surgeon and not self._loop.selector.surgeon:
            self._loop.take_over()
        elif not self.supervision.surgeon and self._loop.selector.surgeon:
            self._loop.hand_back()
        self._update_candidates()
        self.assess_next()

    def _carry_out(self, text: str, name: str, answered: Answered) -> None:
        """
        Carry out a command.

        :raises SupervisionError: if it cannot be obeyed.
        """
        command, known = command_named(text), self.registry.names
        if command is Command.TAKE_OVER:
            self._taken = max(self._taken, time.time())
        names = [each.name for each in self._loop.selector.candidates]
        self.supervision.ordered(command, name, known)
        if command is Command.LOCK and name not in names:
            raise SupervisionError(f'{name} is no candidate here: it cannot act alone')
        words = f'{command} {name}'.rstrip()
        change = partial(Supervision.ordered, command=command, name=name, known=known)
        self._queue.submit(SupervisionRequest(change, words, command in URGENT, answered))

    def _if_active(
        self, obey: Callable[[Request, Answered], None]
    ) -> Callable[[Request, Answered], None]:
        def take(request: Request, answered: Answered) -> None:
            if not self._active:
                answered(False, 'the selector is not active')
                return
            try:
                obey(request, answered)
            except SupervisionError as error:
                answered(False, str(error))

        return take

    def _supervise(self, request: srv.Supervise.Request, answered: Answered) -> None:
        if request.command == Command.HAND_BACK:
            self._check_hand_back(request)
        self._carry_out(request.command, request.name, answered)

    def _check_hand_back(self, request: srv.Supervise.Request) -> None:
        """
        Refuse to drive again unless an operator signed it.

        :raises SupervisionError: if so.
        """
        robot = self._node.place
        try:
            envelope = envelope_from_ros(request.envelope)
            order = Order(envelope, robot, HAND_BACK, request.name, 0)
            signed = check_hand_back(order, self.roster, robot, self._taken, time.time())
        except MessageError as error:
            raise SupervisionError(f'an operator has to sign {HAND_BACK}: {error}') from error
        self._taken = signed

    def _pin(self, request: srv.PinPolicy.Request, answered: Answered) -> None:
        name, text = request.name, request.version
        if name not in self.registry.names:
            known = ', '.join(sorted(self.registry.names))
            raise SupervisionError(f'pin {name!r}: expected one of {known}')
        digest = self.registry.to_pin(name, text).digest if text else ''
        words = f'pin {name} to {digest[:12]}' if digest else f'unpin {name}'
        change = partial(Supervision.with_pin, name=name, digest=digest)
        self._queue.submit(SupervisionRequest(change, words, False, answered))

    def _receive_command(self, source: String) -> None:
        """Obey a pedal or a console, which may only take over."""
        try:
            if (command := command_named(source.data)) not in BY_TOPIC:
                raise SupervisionError(f'{command} needs the service: a topic gives no answer')
            self._carry_out(command, '', lambda success, words: None)
        except SupervisionError as error:
            self._refuse_message(str(error))

    # What is told and written.

    def _write_in_background(self, work: Callable[[], None]) -> None:
        def done(result: object) -> None:
            if isinstance(result, Exception):
                self.report_problem(f'not written: {result}')

        self._submit(work, done)

    def _submit(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        """Have the writer do something; its result, or exception, comes back to this thread."""
        guarded = self._node.guarded(done)
        assert self._writer is not None
        self._writer.submit(lambda report, stopped: work(), guarded, guarded)

    def _list_policies(
        self, request: srv.ListPolicies.Request, response: srv.ListPolicies.Response
    ) -> None:
        response.policies = self.policies_message()
        response.message = shortened(self.supervision.in_words())
        response.success = True

    def publish(self) -> None:
        """Publish the policies and the supervision."""
        self._publisher.publish(self.policies_message())

    def policies_message(self) -> ros.Policies:
        """Describe all policies and the supervision."""
        supervision = self.supervision
        message = ros.Policies(
            driver=Driver.SURGEON if supervision.surgeon else Driver.SELECTOR,
            locked=supervision.locked,
            vetoed=sorted(supervision.vetoed),
            policies=[
                policy_status(
                    each,
                    self.registry.values.models.get(each.digest),
                    self.registry.status(each, supervision),
                    supervision,
                )
                for each in self.registry.versions
            ],
        )
        return self._node.stamped(message)


_NUMBERS = (
    'force_share',
    'workspace_share',
    'one_action_share',
    'mean_return',
    'hold_return',
    'success_share',
    'force_failures',
)


def policy_status(
    version: Version, model: ValueModel | None, status: Status, supervision: Supervision
) -> ros.PolicyStatus:
    """
    Describe a version; what nobody measured yet is NaN.

    :param model: the estimate of its return that is in use.
    :param status: of it.
    :param supervision: in force.
    """
    report = version.report
    seconds, rest = divmod(version.came, 1.0)
    found = asdict(report) if report else {}
    estimates = model.estimates.values() if model else ()
    numbers = {name: float(found.get(name, math.nan)) for name in _NUMBERS}
    return ros.PolicyStatus(
        name=version.name,
        sender=version.message.envelope.sender,
        round=version.round,
        digest=version.policy.digest,
        n_parameters=version.policy.n_parameters,
        came=Time(sec=int(seconds), nanosec=int(rest * 1e9)),
        status=str(status),
        reason=shortened(version.refusal or version.setback),
        pinned=supervision.pinned.get(version.name) == version.digest,
        locked=supervision.locked == version.name,
        value_misfit=max((each.conformal_error for each in estimates), default=math.nan),
        value_noise=max((each.noise for each in estimates), default=math.nan),
        decision_time=version.decision.p99 if version.decision else math.nan,
        **numbers,
    )
