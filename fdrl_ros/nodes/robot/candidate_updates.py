# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Policies of a selector, from latched topics and the disk, under the surgeon's supervision."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
import math
import time
from typing import cast, TypeVar

from builtin_interfaces.msg import Time
from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.robot_policies import values_fitted_with
from fdrl_ros.deployment.robot.safety_test import basis
from fdrl_ros.errors import (
    LastingError,
    MessageError,
    PolicyError,
    StoreBusyError,
    SupervisionError,
)
from fdrl_ros.federation.protocol.message import GlobalPolicy, HospitalPolicy
from fdrl_ros.federation.protocol.party import worth_logging
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.deferred_answer import answer_later, Answered
from fdrl_ros.nodes.common.managed_node import ManagedNode, PATIENCE
from fdrl_ros.nodes.parties.conversion import from_ros
from fdrl_ros.nodes.parties.weights_topic import PolicyReader
from fdrl_ros.nodes.robot.policy_assessment import assess
from fdrl_ros.nodes.robot.supervision_queue import SupervisionQueue, SupervisionRequest
from fdrl_ros.policy import Policy
from fdrl_ros.policy.network import Network
from fdrl_ros.runtime.backoff import Backoff
from fdrl_ros.runtime.worker_thread import Worker
from fdrl_ros.selector.candidates.candidate import HOLD
from fdrl_ros.selector.candidates.decision_time import decision_time, DecisionTime
from fdrl_ros.selector.candidates.policy_files import PolicyFiles
from fdrl_ros.selector.candidates.registry import PolicyRegistry, Released, Status, Version
from fdrl_ros.selector.candidates.safety_limits import SafetyReport
from fdrl_ros.selector.candidates.supervision import (
    BY_TOPIC,
    Command,
    command_named,
    Supervision,
    SUPERVISION_FILE,
    URGENT,
)
from fdrl_ros.selector.control.loop import ControlLoop
from fdrl_ros.selector.value.model import ValueModel
import fdrl_ros.srv as srv
from std_msgs.msg import String

Findings = tuple[SafetyReport | None, ValueModel | None, DecisionTime | None]
"""What the test and the valuation of a policy found, and how long it takes for an action."""

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
        self._supervision_file = robot / SUPERVISION_FILE
        self._publisher = node.publisher(ros.Policies, 'policies', qos.LATCHED)
        self._writer: Worker | None = None
        self._active = False
        # They outlast deactivation, so that whoever waits then is answered.
        answer_later(node, srv.PinPolicy, 'selector/pin_policy', self._if_active(self._pin))
        answer_later(node, srv.Supervise, 'selector/supervise', self._if_active(self._supervise))
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
        self._assessing = False
        self._checking = 0
        self._failed = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
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
        for each in self.files.load(self.registry, self._values_fitted_with):
            node.get_logger().warning(each)
        self._time_valued()
        self.registry.check_pins(self.supervision)
        self._writer = Worker(f'{node.get_name()} writer', node.post, WAITING)
        node.keep(self._end)
        self._active = True
        self._subscribe()
        node.answer(srv.ListPolicies, 'selector/list_policies', self._list_policies)
        node.hear(String, 'supervise', self._receive_command, qos.EVENT)
        self._supervision_changed()
        node.every(1.0, self.assess_next)

    @property
    def supervision(self) -> Supervision:
        """The supervision in force."""
        return self._queue.supervision

    def _values_fitted_with(self) -> str:
        return values_fitted_with(self.plan, self._start, self.registry)

    def _subscribe(self) -> None:
        size, hear = 4 * self._start.n_parameters, self._node.hear
        reader = PolicyReader(size, self._policy_receiver(GlobalPolicy))
        reader.subscribe(hear, ros.GlobalPolicy, f'{self._node.settings.federation}/policy')
        topics = [f'/{member.name}/policy' for member in self.roster.hospitals]
        if self._hospital:
            topics.append(f'/{self._hospital}/home')
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
                self._refuse(f'{CHECKED} policies wait for their check already')
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
            self._refuse(str(error))
            return
        if version is not None:
            self._write_in_background(lambda: self.files.save(version))
            self.registry.fitted_with = self._values_fitted_with()
            self._update_candidates()
            self.assess_next()

    def _refuse(self, reason: str) -> None:
        self.refused += 1
        if worth_logging(self.refused):
            self._node.get_logger().warning(f'refused: {reason}')

    def assess_next(self) -> None:
        """Test and value the next policy on the worker, one at a time."""
        waiting = self._failed.waiting(self._node.now)
        version = self.registry.pending(self.supervision, waiting)
        if self._assessing:
            return
        # Holding is a candidate like the others: it is valued as soon as there is another.
        registry = self.registry
        stale = registry.held_with != registry.fitted_with
        if registry.hold is None or (version is None and stale):
            if not registry.versions or HOLD in waiting:
                return
            version = None
        elif version is None:
            return
        self._assessing = True
        plan, start, files = self.plan, self._start, self.files
        policy = version.policy if version else None
        known = [each.policy for each in registry.calibrated]

        def find_out(report: object, stopped: Callable[[], bool]) -> Findings:
            found, model = assess(policy, plan, start, known, files, stopped)
            return found, model, self._timed(policy) if policy and model else None

        self._node.submit(find_out, partial(self._assessed, version, registry.fitted_with))

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

    def _time_valued(self) -> None:
        """Time all that may stand, before the control loop begins."""
        for version in self.registry.versions:
            try:
                if version.ready:
                    version.decision = self._timed(version.policy)
            except LastingError as error:
                self._refuse_for_good(version, error)

    def _assessed(
        self, version: Version | None, settings: str, result: Findings | Exception
    ) -> None:
        """
        Take in what was found; without it the robot goes on with the candidates it has.

        :param version: None for holding.
        :param settings: hash over all that its model was fitted with.
        """
        self._assessing = False
        if isinstance(result, Exception) and not isinstance(result, LastingError):
            self._retry_later(version, result)
        else:
            try:
                if isinstance(result, LastingError):
                    raise result
                self._accept(version, settings, *result)
            except Exception as error:  # whatever it is, the arm must not lose its control loop
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

    def _accept(
        self,
        version: Version | None,
        settings: str,
        report: SafetyReport | None,
        model: ValueModel | None,
        decision: DecisionTime | None,
    ) -> None:
        self._failed.forget(version.digest if version else HOLD)
        if version is None:
            self.registry.hold, self.registry.held_with = model, settings
            self._update_candidates()
            self.problem = ''
            return
        version.setback = ''
        assert report is not None
        self.registry.add_report(version, report)
        if model is not None:
            self.registry.add_model(version, model, settings)
        version.decision = decision
        self._update_candidates()
        if version.refusal:
            self.problem = f'the {version.name} policy is refused: {version.refusal}'
            self._node.get_logger().warning(f'{self.problem} (round {version.round})')
        else:
            waits = self.registry.pending(self.supervision)
            self.problem = waits.setback if waits else ''
            limit = self.plan.selector.answer_timeout
            words = f'; its action takes {decision.words(limit)}' if decision else ''
            self._node.get_logger().info(f'the {version.name} policy is a candidate{words}')

    def _refuse_for_good(self, version: Version | None, error: Exception) -> None:
        """Ask no more for what cannot be found out; another version has its turn."""
        if version is None:
            self.registry.hold = None
            self._failed.give_up(HOLD)
            self.report_problem(
                f'holding cannot be valued: {error}; so no policy can, until the selector is '
                'activated again'
            )
            return
        version.refusal = str(error)
        words = f'the {version.name} policy of round {version.round}'
        self.report_problem(f'{words} cannot stand, and is not tried again: {error}')
        self.publish()

    def report_problem(self, problem: str) -> None:
        """Tell of a problem, in the log and in the node's health."""
        self.problem = problem
        self._node.get_logger().error(problem)

    def _update_candidates(self) -> None:
        """Hand all candidates over at once, tell of them, and forget the oldest versions."""
        self._loop.selector.set_candidates(self.registry.candidates(self.supervision))
        gone = self.registry.prune(self.supervision)
        if gone:
            left = self.registry.versions
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
        self._carry_out(request.command, request.name, answered)

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
        """Obey a pedal or a console, which may only take over and hand back."""
        try:
            if (command := command_named(source.data)) not in BY_TOPIC:
                raise SupervisionError(f'{command} needs the service: a topic gives no answer')
            self._carry_out(command, '', lambda success, words: None)
        except SupervisionError as error:
            self._node.get_logger().warning(f'refused: {error}')

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
        response.message = self.supervision.in_words()
        response.success = True

    def publish(self) -> None:
        """Publish the policies and the supervision."""
        self._publisher.publish(self.policies_message())

    def policies_message(self) -> ros.Policies:
        """Describe all policies and the supervision."""
        supervision = self.supervision
        message = ros.Policies(
            driver='surgeon' if supervision.surgeon else 'selector',
            locked=supervision.locked,
            vetoed=sorted(supervision.vetoed),
            policies=[
                policy_status(each, self.registry.status(each, supervision), supervision)
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


def policy_status(version: Version, status: Status, supervision: Supervision) -> ros.PolicyStatus:
    """
    Describe a version; what nobody measured yet is NaN.

    :param status: of it.
    :param supervision: in force.
    """
    report, model = version.report, version.model
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
        reason=version.refusal or version.setback,
        pinned=supervision.pinned.get(version.name) == version.digest,
        locked=supervision.locked == version.name,
        value_misfit=max((each.conformal_error for each in estimates), default=math.nan),
        value_noise=max((each.noise for each in estimates), default=math.nan),
        decision_time=version.decision.p99 if version.decision else math.nan,
        **numbers,
    )
