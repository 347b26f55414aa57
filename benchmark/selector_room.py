# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The operating room of benchmark/selector.py: who says the state, and hears what is answered.

It does as the robot's env does: at each beat the set-points of tip and jaw, the vital signs, then
the state of the operation. Answers are of a state that is known: the echo node returns its stamp,
the selector tells its force in the risk.

Time is counted from right before the state is given to its publisher until the middleware of this
process has received the answer: its reception timestamp, which is taken in a thread of its own. So
what the room does with an answer that came shortly before is not counted, nor is the way from the
middleware into its callback. Both times are of the system clock, as that timestamp is.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
import gc
import inspect
from itertools import cycle, islice
import os
from pathlib import Path
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.images import image
from fdrl_ros.nodes.arm.robot_messages import joint_state, OperatingState, set_point
from fdrl_ros.nodes.common import qos
from fdrl_ros.segmentation.scenes import site_clip
from fdrl_ros.surgery.arm.kinematics import JAW
from fdrl_ros.surgery.gym.state import OPERATION_LAYOUT, OPERATION_SIZE, PATIENT_LAYOUT
from geometry_msgs.msg import PoseStamped
import rclpy
from rclpy.clock import Clock, ClockType
from rclpy.experimental import EventsExecutor
from selector_work import Answers, Beat, SEED, stamp_of, with_number
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Header

SETTLING = 1.0
"""Seconds before each measurement: nodes find each other's rhythm, and caches fill."""

AFTER = 0.2
"""Seconds after it in which answers may still come."""

LEAP = 100_000
"""By which the system clock may be set in a turn, ns."""

_BOTH = inspect.signature(lambda message, about: None)
_SPLIT = OPERATION_SIZE


class ClockSetError(Exception):
    """Times of a turn are not of one clock."""


class Room:
    """A node of its own that speaks and hears below any namespace."""

    def __init__(self, domain: int) -> None:
        """Join a DDS domain; the middleware reads its variables now."""
        rclpy.init(domain_id=domain)
        self.node = rclpy.create_node('room')
        self.executor = EventsExecutor()
        self.executor.add_node(self.node)
        self.steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._health: dict[str, dict[str, str]] = {}
        self.node.create_subscription(DiagnosticArray, '/diagnostics', self._note, qos.DIAGNOSTICS)

    def _note(self, message: DiagnosticArray) -> None:
        for status in message.status:
            node = status.name.partition(':')[0]
            self._health[node] = {each.key: each.value for each in status.values}

    def health(self, node: str) -> dict[str, str]:
        """Return what a node said last of itself."""
        return self._health.get(node, {})

    def spin(self, until: Callable[[], Any], seconds: float) -> bool:
        """Move messages until a condition holds, and tell whether it does."""
        end = time.monotonic() + seconds
        while not until() and time.monotonic() < end:
            self.executor.spin_once(timeout_sec=0.1)
        return bool(until())

    def close(self) -> None:
        """Leave."""
        self.executor.remove_node(self.node)
        self.node.destroy_node()
        rclpy.shutdown()


def timed(take: Callable[[Any, int], None]) -> Callable[..., None]:
    """
    Make a subscription's callback that tells when a message was received.

    :param take: given a message, and when the middleware received it, nanosecond of the system
        clock; 0 from a middleware that does not tell.
    """

    def call(*given: Any) -> None:
        # To a callback of two arguments EventsExecutor gives them as one pair.
        message, about = given if len(given) == 2 else given[0]
        take(message, about['received_timestamp'])

    call.__signature__ = _BOTH  # type: ignore[attr-defined]
    return call


class Bedside:
    """The topics of one robot, as its env and its other listeners have them."""

    def __init__(self, room: Room, namespace: str) -> None:
        self._room = room
        self._answers = Answers()
        publish, hear = room.node.create_publisher, room.node.create_subscription
        # An armed selector commands nothing before the arm has told that it is ready.
        self._ready = publish(OperatingState, f'{namespace}/operating_state', qos.OPERATING)
        self._ready.publish(OperatingState(state='ENABLED', is_homed=True))
        self._tip = publish(PoseStamped, f'{namespace}/setpoint_cp', qos.STATE)
        self._jaw = publish(JointState, f'{namespace}/jaw/setpoint_js', qos.STATE)
        self._patient = publish(ros.PatientState, f'{namespace}/patient_state', qos.STATE)
        self._operation = publish(ros.OperationState, f'{namespace}/operation_state', qos.STATE)
        hear(ros.SelectedAction, f'{namespace}/action', timed(self._take_action), qos.EVENT)
        hear(ros.Risk, f'{namespace}/risk', self._take_risk, qos.EVENT)
        hear(PoseStamped, f'{namespace}/servo_cp', timed(self._take_set_point), qos.EVENT)

    def _take_action(self, message: ros.SelectedAction, came: int) -> None:
        self._answers.actions.append((came, stamp_of(message)))

    def _take_risk(self, message: ros.Risk) -> None:
        self._answers.risks.append((stamp_of(message), message.force))

    def _take_set_point(self, message: PoseStamped, came: int) -> None:
        self._answers.set_points_heard.append((came, stamp_of(message)))

    @property
    def is_heard(self) -> bool:
        """Whether somebody answers states."""
        return self._operation.get_subscription_count() > 0

    def begin(self, first: int) -> Answers:
        """Note what is answered from now on; states count from the first on."""
        self._answers = Answers(begin=first)
        return self._answers

    def send_state(self, number: int, beat: Beat) -> None:
        """Say a state."""
        answers = self._answers
        stamp = self._room.node.get_clock().now().to_msg()
        values = with_number(beat.values, number).tolist()
        patient = ros.PatientState(
            patient=beat.patient, layout=PATIENT_LAYOUT, values=values[_SPLIT:]
        )
        operation = ros.OperationState(
            procedure=beat.procedure,
            patient=beat.patient,
            layout=OPERATION_LAYOUT,
            values=values[:_SPLIT],
        )
        patient.header.stamp = operation.header.stamp = stamp
        self._tip.publish(set_point(stamp, beat.tip.tolist()))
        self._jaw.publish(joint_state(stamp, (JAW,), (0.0,)))
        self._patient.publish(patient)
        answers.stamps[stamp_of(operation)] = number
        answers.sent.append(time.time_ns())
        self._operation.publish(operation)


class Camera:
    """A robot's endoscope, and what is told of its pictures."""

    def __init__(self, room: Room, namespace: str) -> None:
        self._room = room
        topic = f'{namespace}/endoscope/image_raw'
        self._pictures = room.node.create_publisher(Image, topic, qos.PICTURE)
        self._frames = cycle(site_clip('A', SEED, 0, frames=40, size=128, rate=10.0).frames)
        self._latencies: list[float] = []
        room.node.create_subscription(
            ros.Visibility, f'{namespace}/visibility', self._take, qos.SEEN
        )

    def _take(self, message: ros.Visibility) -> None:
        if message.seen:
            self._latencies.append(message.latency)

    @contextmanager
    def running(self, rate: float) -> Iterator[list[float]]:
        """Send so many pictures a second; the list gets the latency of each that was segmented."""
        self._latencies = found = []

        def send() -> None:
            stamp = self._room.node.get_clock().now().to_msg()
            header = Header(stamp=stamp, frame_id='endoscope_optical')
            self._pictures.publish(image(header, 'rgb8', next(self._frames)))

        timer = self._room.node.create_timer(1.0 / rate, send, clock=self._room.steady)
        try:
            yield found
        finally:
            self._room.node.destroy_timer(timer)


def operate(
    room: Room, beds: Sequence[Bedside], beats: Iterator[Beat], rate: float, seconds: float
) -> list[Answers]:
    """
    Say states to several robots at a rate, each on a timer of its own, and note their answers.

    :param beats: states, of which each robot gets its own.
    :param rate: of each robot, hertz.
    :raises ClockSetError: if the system clock was set meanwhile.
    :raises SystemExit: if the middleware does not tell when answers came.
    """
    first = round(SETTLING * rate)
    count = first + round(seconds * rate)
    apart = time.time_ns() - time.monotonic_ns()
    made = [deque(enumerate(islice(beats, count))) for _ in beds]
    found = [bed.begin(first) for bed in beds]

    def speaker(bed: Bedside, states: deque[tuple[int, Beat]], answers: Answers) -> Any:
        def beat() -> None:
            # A beat that comes late shall not be followed by the next at once.
            early = answers.sent and time.time_ns() - answers.sent[-1] < 0.5e9 / rate
            if states and not early:
                bed.send_state(*states.popleft())

        return room.node.create_timer(1.0 / rate, beat, clock=room.steady)

    gc.collect()
    gc.disable()
    timers = [speaker(*each) for each in zip(beds, made, found, strict=True)]
    try:
        room.spin(lambda: not any(made), 2.0 * count / rate)
        room.spin(lambda: False, AFTER)
    finally:
        for timer in timers:
            room.node.destroy_timer(timer)
        gc.enable()
    if abs(time.time_ns() - time.monotonic_ns() - apart) > LEAP:
        raise ClockSetError("this machine's clock was set meanwhile")
    heard = [each for answers in found for each in answers.actions + answers.set_points_heard]
    if not all(came for came, _ in heard):
        raise SystemExit('this middleware does not tell when a message was received')
    return found


def processor_time(process: int) -> float:
    """Return what a process has used of a core, second."""
    words = Path(f'/proc/{process}/stat').read_text('utf-8').rpartition(')')[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf('SC_CLK_TCK')
