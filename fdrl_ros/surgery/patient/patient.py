# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""One patient: tissue, body and what is to be done; each number within what can be."""

from dataclasses import dataclass
import math

from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.ranges import check_number, check_whole, is_within
from fdrl_ros.surgery.patient.events import Event
from fdrl_ros.surgery.patient.labs import Labs
from fdrl_ros.surgery.tasks.procedures import Procedure, TRAITS

Point = tuple[float, float, float]

_RANGES = (
    ('young_modulus', 100.0, 1e6),
    ('damping', 0.0, 1e3),
    ('friction', 0.0, 10.0),
    ('thickness', 1e-3, 1.0),
    ('registration_error', -0.02, 0.02),
    ('breathing_amplitude', 0.0, 0.1),
    ('breathing_phase', -1e3, 1e3),
    ('respiratory_rate', 1.0, 100.0),
    ('servo_lag', 1e-4, 10.0),
    ('force_noise', 0.0, 5.0),
    ('force_gain', 0.1, 10.0),
    ('protocol', 0.1, 10.0),
    ('mean_arterial_pressure', 20.0, 250.0),
    ('heart_rate', 20.0, 250.0),
    ('oxygen_saturation', 20.0, 100.0),
    ('force_emphasis', 1e-3, 1e3),
    ('time_emphasis', 1e-3, 1e3),
)
"""What a patient can be, in SI units, mmHg, 1/min and %."""

MOST_LATENCY = 8
"""Longest delay of a command, ticks."""

SHORTEST_CUT = 1e-4
"""Least way of an incision, m."""


@dataclass(frozen=True)
class Patient:
    """
    One simulated patient on one arm; all that the world needs to know, most of it unseen.

    :param name: hospital, split and index; no two patients of a seed share it.
    :param procedure: what is done.
    :param young_modulus: E of the organ, Pa. No policy observes it.
    :param damping: Hunt-Crossley factor lambda, s/m.
    :param friction: Coulomb coefficient.
    :param thickness: of the organ, m; pressing deeper is a breach.
    :param registration_error: true minus planned height of the surface, m. Unseen.
    :param breathing_amplitude: of the surface, m.
    :param breathing_phase: at the start, rad.
    :param respiratory_rate: breaths a minute.
    :param servo_lag: time constant of the arm behind its set-point, s.
    :param latency: from a command to the arm and the jaw, ticks of 50 ms.
    :param force_noise: standard deviation of the measured force, N.
    :param force_gain: measured force for each newton on the tip, 1 for a calibrated sensor.
    :param calibration: how far the robot takes everything that was planned or seen to be from its
        true place, m. Unseen.
    :param protocol: what the hospital's procedures ask for, as a factor of the textbook's target
        force and depth of cut that the state shows. Unseen.
    :param mean_arterial_pressure: before insufflation, mmHg.
    :param heart_rate: before insufflation, 1/min.
    :param oxygen_saturation: SpO2, %.
    :param goal: planned contact point in the arm's base frame, m.
    :param start: tip at the start in the arm's base frame, m.
    :param destination: where a cut ends or an object goes, in the arm's base frame, m.
    :param labs: what the laboratory says; no policy sees it.
    :param events: what will happen during the operation. Unseen.
    :param force_emphasis: weight of forces in the hospital's reward.
    :param time_emphasis: weight of time in the hospital's reward.
    """

    name: str
    procedure: Procedure
    young_modulus: float
    damping: float
    friction: float
    thickness: float
    registration_error: float
    breathing_amplitude: float
    breathing_phase: float
    respiratory_rate: float
    servo_lag: float
    mean_arterial_pressure: float
    heart_rate: float
    oxygen_saturation: float
    goal: Point
    start: Point
    destination: Point
    labs: Labs
    events: tuple[Event, ...] = ()
    force_emphasis: float = 1.0
    time_emphasis: float = 1.0
    latency: int = 0
    force_noise: float = 0.0
    force_gain: float = 1.0
    calibration: Point = (0.0, 0.0, 0.0)
    protocol: float = 1.0

    def __post_init__(self) -> None:
        """
        Refuse who cannot be.

        :raises SettingError: on a value of another kind, a number out of its range, a start within
            the organ, or an incision without a line.
        """
        for name, kind in (('name', str), ('procedure', Procedure), ('labs', Labs)):
            if not isinstance(getattr(self, name), kind):
                raise SettingError(name, getattr(self, name), f'a {kind.__name__}')
        for name, low, high in _RANGES:
            check_number(name, getattr(self, name), low, high)
        check_whole('latency', self.latency, 0, MOST_LATENCY)
        for name in ('goal', 'start', 'destination', 'calibration'):
            _check_point(name, getattr(self, name))
        if self.start[2] < self.goal[2] + self.registration_error:
            raise SettingError('start', self.start, 'a point not below the true surface')
        events = self.events
        if not isinstance(events, tuple) or not all(isinstance(event, Event) for event in events):
            raise SettingError('events', events, 'a tuple of Events')
        if TRAITS[self.procedure.name].task == 'incision' and (
            math.dist(self.goal[:2], self.destination[:2]) < SHORTEST_CUT
        ):
            raise SettingError(
                'destination', self.destination, f'at least {SHORTEST_CUT} m aside of the goal'
            )

    @property
    def trocar_offset(self) -> tuple[float, float]:
        """
        Return how far aside of the port the goal is, x and y, m.

        The port, origin of the base frame, was planned straight above the goal: it is off its plan
        by as much, the other way. That tilts the shaft at the goal, and does nothing else.
        """
        return self.goal[:2]


def _check_point(name: str, point: object) -> None:
    if not (
        isinstance(point, tuple)
        and len(point) == 3
        and is_within(point[0], -1.0, 1.0)
        and is_within(point[1], -1.0, 1.0)
        and is_within(point[2], -1.0, 1.0)
    ):
        raise SettingError(name, point, 'a tuple of three metres within the room, -1 to 1')
