# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The page's nodes, one in each DDS domain: they feed what is shown, and carry out what is asked.

Topics of 100 Hz are kept as bytes, and read when a state of the operation comes, or 20 times a
second while none does. Clients of services are held: to find a server takes hundreds of
milliseconds, to call it two.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
import threading
import time
from typing import Any, Final

from diagnostic_msgs.msg import DiagnosticArray
from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.deployment.bringup import BringupSettings
from fdrl_ros.deployment.events import Event, OperationEnded, PrivacySpent
from fdrl_ros.deployment.frame_settings import FrameSettings
from fdrl_ros.deployment.interfaces import WATCH
from fdrl_ros.deployment.namespaces import absolute, FEDERATION
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import FdrlError, OrderError, SupervisionError
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.orders import ADDRESSEES, sign_hand_back, sign_order
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.images import picture
from fdrl_ros.nodes.arm.robot_messages import OperatingState, seconds, StringStamped
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.listening import spin_once
from fdrl_ros.nodes.common.service_call import node_in
from fdrl_ros.nodes.observer import health_in, Observer
from fdrl_ros.nodes.parties.conversion import to_ros
from fdrl_ros.page.acts import (
    Act,
    ActJournal,
    Acts,
    JOURNAL,
    ORDERS,
    PINS,
    ROOM,
    SIGNED,
    STATE_COMMANDS,
    STOP_OPERATION,
    Unanswered,
)
from fdrl_ros.page.forecast import Forecast
from fdrl_ros.page.pictures import Picture, Pictures
from fdrl_ros.page.records import RunRecords
from fdrl_ros.page.server import Place, Server
from fdrl_ros.page.sessions import Session, Sessions
from fdrl_ros.page.state import FederationState, PageState
from fdrl_ros.runtime.closeable import Closeable
from fdrl_ros.selector.candidates.supervision import Command
import fdrl_ros.srv as srv
from geometry_msgs.msg import PoseStamped, WrenchStamped
from rclpy.clock import Clock, ClockType
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.experimental import EventsExecutor
from rclpy.node import Node
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image, JointState
from std_srvs.srv import Trigger

PATIENCE: Final = 5.0
"""Longest wait for the answer of a service, second."""

DISCOVERY: Final = 2.0
"""Longest wait for a service that is not found yet, second."""

Readings = tuple[Any, Any, Any, Any]
"""Joints, tip, set-point and force of an arm, each None if it is not new."""

_IDLE = 0.05  # s between two readings of an arm that does not operate
_LOOK = 1.0  # s between two looks whether there are pictures
_KINDS = (protocol.RoundStatus, protocol.GlobalPolicy, protocol.Blame)
_PICTURES = {'image': 'endoscope/image_raw', 'overlay': 'segmenter/overlay'}
_FAST: Final = {
    'joint_states': JointState,
    'measured_cp': PoseStamped,
    'setpoint_cp': PoseStamped,
    'spatial/measured_cf': WrenchStamped,
}
"""Topics of 100 Hz."""
_CHOICE = ('policy', 'reason', 'veto', 'action', 'value', 'uncertainty', 'expected_risk')
_RISK = ('risk', 'force', 'damage', 'critical', 'mitigation', 'case_mitigation')
_POLICY = (
    *('name', 'round', 'status', 'reason', 'pinned', 'success_share', 'mean_return'),
    *('hold_return', 'value_noise'),
)


class HeldClients:
    """
    Clients of services, made once and held.

    :param node: that an executor spins in another thread.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._clients: dict[str, Any] = {}

    def hold(self, kind: type[Any], name: str) -> None:
        """Make a client, so that it has found its server when it is needed."""
        self._clients[name] = self._node.create_client(kind, name)

    def call(self, name: str, request: Any) -> Any:
        """
        Call a service, and wait for its answer.

        :raises OrderError: if it is not there.
        :raises Unanswered: if no answer came in time.
        """
        client = self._clients[name]
        if not client.service_is_ready() and not client.wait_for_service(DISCOVERY):
            raise OrderError(f'{name} is not there: does its node run, and is it active?')
        done = threading.Event()
        future = client.call_async(request)
        future.add_done_callback(lambda _: done.set())
        if not done.wait(PATIENCE):
            client.remove_pending_request(future)
            raise Unanswered(f'{name} did not answer within {PATIENCE:g} s: look at the state')
        return future.result()


class FederationWatch(Observer):
    """
    Looks at a federation, and brings signed orders to its servers.

    :param state: that it feeds.
    :param forecast: asked, on the listening thread, with each report of what a hospital spent.
    """

    def __init__(
        self,
        state: PageState,
        roster: Roster,
        domain: int,
        *,
        namespace: str = '',
        n_parameters: int = 0,
        forecast: Callable[[PrivacySpent], None] = lambda event: None,
    ) -> None:
        """Join the domain."""
        self._state, self._forecast = state, forecast
        super().__init__(
            roster,
            domain,
            namespace=namespace,
            n_parameters=n_parameters,
            name=WATCH,
            kinds=_KINDS,
        )
        self._clients = HeldClients(self.federation)
        for server in sorted(set(ADDRESSEES.values())):
            self._clients.hold(srv.Order, self._order(server))

    def _queue_event(self, event: Event) -> None:
        self._state.receive(event)
        if isinstance(event, PrivacySpent):
            self._forecast(event)

    def _order(self, server: str) -> str:
        return self._topic(FEDERATION, f'{server}/order')

    def deliver(self, order: protocol.Order) -> str:
        """
        Bring an order to its server.

        :raises OrderError: if the server is not there, or refuses.
        :raises Unanswered: if it does not answer.
        """
        request = to_ros(order, srv.Order.Request())
        answer = self._clients.call(self._order(order.to), request)
        if not answer.received:
            raise OrderError(f'the {order.to} refused: {answer.reason}')
        return f'the {order.to} took it'


class RoomWatch(Closeable):
    """
    Looks at robots, and brings a surgeon's words to them. It joins the robots' domain.

    :param state: that it feeds.
    :param namespace: in front of those of the robots.
    """

    def __init__(self, state: PageState, domain: int, namespace: str = '') -> None:
        self._state, self._namespace = state, absolute(namespace)
        self._newest: dict[tuple[str, str], bytes] = {}
        self._stopping = threading.Event()
        with ExitStack() as joined:
            self._node = node = joined.enter_context(node_in(domain, WATCH))
            self._executor = EventsExecutor(context=node.context)
            self._executor.add_node(node)
            self._clients = HeldClients(node)
            self._commands = {}
            for robot in state.robots:
                place = absolute(namespace, robot)
                self._subscribe(robot, place)
                self._commands[robot] = node.create_publisher(
                    StringStamped, f'{place}/state_command', qos.EVENT
                )
                self._clients.hold(srv.Supervise, f'{place}/selector/supervise')
                self._clients.hold(srv.PinPolicy, f'{place}/selector/pin_policy')
                self._clients.hold(Trigger, f'{place}/env/reset')
            node.create_subscription(
                DiagnosticArray, '/diagnostics', self._receive_diagnostics, qos.EVENT
            )
            steady = Clock(clock_type=ClockType.STEADY_TIME)
            node.create_timer(_IDLE, self._read_idle_arms, clock=steady)
            # An executor that lives on would keep the node announced.
            joined.callback(self._executor.shutdown)
            joined.callback(self._executor.remove_node, node)
            thread = threading.Thread(target=self._listen, name=f'watch {domain}', daemon=True)
            joined.callback(thread.join, 5.0)
            joined.callback(self._stopping.set)
            thread.start()
            self._joined = joined.pop_all()

    def supervise(self, robot: str, command: str, name: str, signed: protocol.Order | None) -> str:
        """
        Say a surgeon's word to a robot's selector.

        :param signed: order of an operator, which a hand-back needs.
        :raises OrderError: if the selector is not there.
        :raises SupervisionError: if it refuses.
        :raises Unanswered: if it does not answer.
        """
        request = srv.Supervise.Request(command=command, name=name)
        if signed is not None:
            to_ros(signed.envelope, request.envelope)
        return self._ask(robot, 'selector/supervise', request)

    def pin(self, robot: str, name: str, version: str) -> str:
        """Pin a policy, or unpin it with an empty version; errors as of :meth:`supervise`."""
        request = srv.PinPolicy.Request(name=name, version=version)
        return self._ask(robot, 'selector/pin_policy', request)

    def stop_operation(self, robot: str) -> str:
        """Have the simulated env end the operation; errors as of :meth:`supervise`."""
        said = self._ask(robot, 'env/reset', Trigger.Request())
        return f'the operation has ended; next is {said}'

    def command(self, robot: str, word: str) -> str:
        """
        Publish a state command of CRTK, which nobody answers.

        :raises OrderError: if no arm listens.
        """
        publisher = self._commands[robot]
        if not publisher.get_subscription_count():
            raise OrderError(f'no arm listens to {publisher.topic_name}')
        message = StringStamped(string=word)
        message.header.stamp = self._node.get_clock().now().to_msg()
        publisher.publish(message)
        return f'{word} was sent; the state of the arm says what it did'

    def look(self, robot: str, kind: str, take: Callable[[Picture], None]) -> Callable[[], None]:
        """
        Subscribe to pictures of a robot, as fdrl_ros.page.pictures.Pictures asks for.

        :returns: what ends that.
        """
        topic = f'{absolute(self._namespace, robot)}/{_PICTURES[kind]}'
        held: list[Any] = []
        # The listening thread makes and destroys what it listens to.

        def receive(data: bytes) -> None:
            take(Picture(partial(_read_picture, bytes(data))))

        def begin() -> None:
            held.append(
                self._node.create_subscription(Image, topic, receive, qos.SENSOR, raw=True)
            )

        def end() -> None:
            self._node.destroy_subscription(held.pop())

        self._executor.create_task(begin)
        return lambda: self._executor.create_task(end) and None

    def close(self) -> None:
        """Leave the domain."""
        self._joined.close()

    def _ask(self, robot: str, name: str, request: Any) -> str:
        answer = self._clients.call(f'{absolute(self._namespace, robot)}/{name}', request)
        if not answer.success:
            raise SupervisionError(answer.message)
        return str(answer.message)

    def _listen(self) -> None:
        looked = 0.0
        while not self._stopping.is_set():
            spin_once(self._executor, self._node)
            if (now := time.monotonic()) - looked >= _LOOK:
                looked = now
                self._look_for_pictures()

    def _look_for_pictures(self) -> None:
        for robot in self._state.robots:
            place = absolute(self._namespace, robot)
            found = {
                {'image': 'picture'}.get(kind, kind): self._node.count_publishers(
                    f'{place}/{topic}'
                )
                > 0
                for kind, topic in _PICTURES.items()
            }
            with self._state.robot(robot) as shown:
                shown.shown |= found

    def _subscribe(self, robot: str, place: str) -> None:
        """Listen to all that is shown of a robot."""

        def hear(kind: type[Any], topic: str, receive: Callable[..., None], profile: Any) -> None:
            self._node.create_subscription(
                kind, f'{place}/{topic}', partial(receive, robot), profile
            )

        for topic, kind in _FAST.items():
            self._node.create_subscription(
                kind,
                f'{place}/{topic}',
                partial(self._keep, robot, topic),
                qos.SENSOR,
                raw=True,
            )
        hear(ros.OperationState, 'operation_state', self._receive_operation, qos.SENSOR)
        hear(ros.PatientState, 'patient_state', self._receive_patient, qos.SENSOR)
        hear(ros.SelectedAction, 'action', self._receive_action, qos.SENSOR)
        hear(ros.Risk, 'risk', self._receive_risk, qos.SENSOR)
        hear(ros.Policies, 'policies', self._receive_policies, qos.HEARD)
        hear(ros.Outcome, 'outcome', self._receive_outcome, qos.EVENT)
        hear(ros.Visibility, 'visibility', self._receive_visibility, qos.SENSOR)
        hear(OperatingState, 'operating_state', self._receive_arm_state, qos.SENSOR)
        # An arm that latches its state published it long ago.
        self._node.create_subscription(
            OperatingState,
            f'{place}/operating_state',
            partial(self._receive_arm_state, robot),
            qos.LATCHED,
            event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False),
        )

    def _keep(self, robot: str, topic: str, data: bytes) -> None:
        self._newest[robot, topic] = data

    def _taken(self, robot: str, topic: str) -> Any:
        """Return the newest message of a fast topic, once; None if there is none."""
        data = self._newest.pop((robot, topic), None)
        return None if data is None else deserialize_message(data, _FAST[topic])

    def _read_arm(self, robot: str) -> Readings | None:
        """Return what the arm measured since the last call; None if that is nothing."""
        joints, force = (
            self._taken(robot, 'joint_states'),
            self._taken(robot, 'spatial/measured_cf'),
        )
        tip, setpoint = (
            _point(self._taken(robot, topic)) for topic in ('measured_cp', 'setpoint_cp')
        )
        if joints is not None:
            joints = dict(zip(joints.name, joints.position, strict=False))
        if force is not None:
            told = force.wrench.force
            force = told.x, told.y, told.z
        found = joints, tip, setpoint, force
        return None if found == (None,) * 4 else found

    def _read_idle_arms(self) -> None:
        """Show what arms measure while no state of an operation comes."""
        for robot in self._state.robots:
            if self._state.operates(robot) or (found := self._read_arm(robot)) is None:
                continue
            with self._state.robot(robot, urgent=True) as shown:
                shown.receive_arm(*found)

    def _receive_operation(self, robot: str, source: ros.OperationState) -> None:
        found = self._read_arm(robot)
        with self._state.robot(robot, urgent=True) as shown:
            if found is not None:
                shown.receive_arm(*found)
            shown.receive_operation(
                seconds(source.header.stamp),
                source.procedure,
                source.patient,
                source.layout,
                source.values,
            )

    def _receive_patient(self, robot: str, source: ros.PatientState) -> None:
        with self._state.robot(robot) as shown:
            shown.receive_patient(source.layout, source.values)

    def _receive_action(self, robot: str, source: ros.SelectedAction) -> None:
        values = {name: getattr(source, name) for name in (*_CHOICE, 'predicted_force')}
        with self._state.robot(robot) as shown:
            shown.receive_action(seconds(source.header.stamp), **values)

    def _receive_risk(self, robot: str, source: ros.Risk) -> None:
        with self._state.robot(robot) as shown:
            shown.receive_risk(**{name: getattr(source, name) for name in _RISK})

    def _receive_policies(self, robot: str, source: ros.Policies) -> None:
        policies = ({name: getattr(each, name) for name in _POLICY} for each in source.policies)
        with self._state.robot(robot, urgent=True) as shown:
            said = shown.receive_policies(source.driver, source.locked, source.vetoed, policies)
        for words in said:
            self._state.note(f'{robot}: {words}')

    def _receive_outcome(self, robot: str, source: ros.Outcome) -> None:
        names = ('patient', 'procedure', 'success', 'failure', 'steps', 'peak_force', 'damage')
        event = OperationEnded(robot, **{name: getattr(source, name) for name in names})
        with self._state.robot(robot) as shown:
            shown.receive_outcome(event)
        ended = 'success' if event.success else f'failure: {event.failure}'
        self._state.note(f'{robot}: {event.procedure} of {event.patient} ended: {ended}')

    def _receive_visibility(self, robot: str, source: ros.Visibility) -> None:
        with self._state.robot(robot) as shown:
            shown.receive_visibility(source.seen, source.reason, source.share.tolist())

    def _receive_arm_state(self, robot: str, source: Any) -> None:
        with self._state.robot(robot) as shown:
            shown.receive_arm_state(source.state, source.is_homed)

    def _receive_diagnostics(self, source: DiagnosticArray) -> None:
        for event in health_in(source, self._namespace):
            self._state.receive(event)


class Performer:
    """
    Carries out acts, and signs with the operator's key what needs a signature.

    :param state: in which who took over is shown.
    :param room: None where no robot is looked at.
    :param federation: None where no federation is.
    :param operator: key of an operator, and the name of the federation.
    :param signed_in: tells whether a person still has a session here.
    """

    def __init__(
        self,
        state: PageState,
        room: RoomWatch | None,
        federation: FederationWatch | None,
        operator: tuple[Identity, str] | None,
        signed_in: Callable[[str], bool],
    ) -> None:
        self._state, self._room, self._federation = state, room, federation
        self._operator, self._signed_in = operator, signed_in

    def __call__(self, act: Act, session: Session) -> str:
        """
        Do an act.

        :returns: what holds then, in words.
        :raises FdrlError: if it was refused, or could not be brought to who does it.
        """
        if act.name in ADDRESSEES:
            if self._federation is None or self._operator is None:
                raise OrderError('no federation is looked at here, or no operator signs')
            identity, federation = self._operator
            order = sign_order(
                identity,
                federation,
                act.name,
                time.time(),
                hospital=act.hospital,
                to_round=act.to_round,
            )
            return self._federation.deliver(order)
        room = self._room
        if room is None:
            raise OrderError('no robot is looked at here')
        if act.name in STATE_COMMANDS:
            return room.command(act.robot, STATE_COMMANDS[act.name])
        if act.name == STOP_OPERATION:
            return room.stop_operation(act.robot)
        if act.name in PINS:
            return room.pin(act.robot, act.policy, act.version)
        signed = None
        if act.name == Command.HAND_BACK:
            if self._operator is None:
                raise OrderError('no operator signs here')
            identity, federation = self._operator
            signed = sign_hand_back(identity, federation, act.robot, time.time())
        if act.name not in (Command.TAKE_OVER, Command.HAND_BACK):
            return room.supervise(act.robot, act.name, act.policy, signed)
        before = self._claim(act, session.person.name)
        try:
            said = room.supervise(act.robot, act.name, act.policy, signed)
        except FdrlError:
            self._note_driver(act.robot, before)
            raise
        took = act.name == Command.TAKE_OVER
        self._note_driver(act.robot, session.person.name if took else None)
        return said

    def _claim(self, act: Act, name: str) -> str | None:
        """
        Take the arm for a person, unless somebody else of this page has it.

        :returns: who had it.
        :raises SupervisionError: if somebody else has it, and is signed in.
        """
        with self._state.robot(act.robot) as shown:
            before: str | None = shown.shown['taken_by']
            if before not in (None, name) and self._signed_in(before):
                raise SupervisionError(
                    f'{before} drives {act.robot}, and alone can hand back on this page, until '
                    'signed out; `fdrl policies hand-back` does it all the same'
                )
            if act.name == Command.TAKE_OVER:
                shown.shown['taken_by'] = name
        return before

    def _note_driver(self, robot: str, name: str | None) -> None:
        with self._state.robot(robot, urgent=True) as shown:
            shown.shown['taken_by'] = name


class Page(Closeable):
    """
    The page and its nodes, which join the domains.

    :param settings: domains and namespace.
    :param robots: names of the robots; none for the federation alone.
    :param home: folder of the journal of acts.
    :param lifetime: of a link, second.
    :param place: where the server is reached.
    :param roster: of the federation; None for robots alone.
    :param plan: of the federation, if it is here.
    :param signer: key of an operator, and the name of the federation; without it no act that
        needs a signature is offered.
    :param records: folder of runs and bags that are replayed; None for none.
    :param ended: tells whether the command has ended whose run is looked at.
    :raises FdrlError: if the journal cannot be written, or a domain not be joined.
    """

    def __init__(
        self,
        settings: BringupSettings,
        robots: tuple[str, ...],
        home: Path,
        *,
        lifetime: float,
        place: Place,
        roster: Roster | None = None,
        plan: Plan | None = None,
        signer: tuple[Identity, str] | None = None,
        records: Path | None = None,
        ended: Callable[[], bool] = lambda: False,
    ) -> None:
        federation = None
        if roster is not None:
            hospitals = [each.name for each in roster.hospitals]
            rounds = plan.rounds.rounds if plan else None
            at_home = plan is not None and plan.home.epochs > 0
            federation = FederationState(
                hospitals,
                settings.namespace,
                rounds,
                home=at_home,
                roster_digest=roster.digest_bytes,
            )
        self.state = state = PageState(robots, federation, ended=ended)
        self.sessions = Sessions(time.monotonic, lifetime)
        room = looks = None
        with ExitStack() as opened:
            journal = opened.enter_context(ActJournal(home / JOURNAL, time.time))
            if robots:
                room = RoomWatch(state, settings.robot_domain, settings.namespace)
                opened.enter_context(room)
            if roster is not None:
                looks = FederationWatch(
                    state,
                    roster,
                    settings.federation_domain,
                    namespace=settings.namespace,
                    n_parameters=plan.network.layout.n_parameters if plan else 0,
                    forecast=_forecasting(plan, state),
                )
                opened.enter_context(looks)
            self._opened = opened.pop_all()
        unable = dict.fromkeys(
            SIGNED, 'no key of an operator is here to sign it (fdrl watch --operator-key)'
        )
        if signer is not None:
            unable.clear()
        if room is None:
            unable |= dict.fromkeys(ROOM, 'no robot is looked at here')
        if looks is None:
            unable |= dict.fromkeys(ORDERS, 'no federation is looked at here')
        perform = Performer(state, room, looks, signer, self.sessions.signed_in)
        urdf = FrameSettings().mount().urdf() if robots else ''
        self.app = Server(
            state=state,
            sessions=self.sessions,
            acts=Acts(journal, perform, state.note, time.monotonic, unable),
            pictures=Pictures(room.look if room else lambda robot, kind, take: lambda: None),
            place=place,
            urdf=lambda robot: urdf,
            records=RunRecords(records) if records else None,
        ).app()
        """The web application."""

    def close(self) -> None:
        """Leave the domains."""
        self._opened.close()


def _forecasting(plan: Plan | None, state: PageState) -> Callable[[PrivacySpent], None]:
    """Return what works out, in a thread, how many rounds a hospital's budget pays for."""
    if plan is None:
        return lambda event: None
    forecast, lock = Forecast(plan), threading.Lock()

    def work(event: PrivacySpent) -> None:
        with lock:
            state.set_forecast(event.hospital, forecast.pays_for(event))

    return lambda event: threading.Thread(target=work, args=(event,), daemon=True).start()


def _point(source: PoseStamped | None) -> tuple[float, float, float] | None:
    if source is None:
        return None
    position = source.pose.position
    return position.x, position.y, position.z


def _read_picture(data: bytes) -> tuple[float, Any]:
    source = deserialize_message(data, Image)
    return seconds(source.header.stamp), picture(source)
