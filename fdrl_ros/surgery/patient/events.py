# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What happens to a patient in the middle of an operation: bleeding, desaturation, coughing.

Events begin as a Poisson process. A breathing event scales motion by f(t) = 1 + (m - 1) w(t), w a
smoothstep up, a plateau and a smoothstep down, so that the surface and its speed are continuous.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
import math
import sys

from fdrl_ros.errors import SettingError
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.ranges import check_number
import numpy as np

KINDS = ('bleed', 'desaturation', 'breathing')
RAMP = constant('events.ramp')
"""Longest time that a breathing event takes to rise, and to fall, s."""

_MOST_RATE = constant('events.most_rate')
_NUMBERS = {
    kind: tuple(
        constant(f'events.{kind}_{name}_{end}')
        for name in ('duration', 'magnitude')
        for end in ('low', 'high')
    )
    for kind in KINDS
}
_LEAST = {'bleed': 0.0, 'desaturation': 0.0, 'breathing': 1.0}
_MOST = {'bleed': sys.float_info.max, 'desaturation': 100.0, 'breathing': 100.0}
_SHORTEST, _LONGEST = 1e-3, 1e6


@dataclass(frozen=True)
class Event:
    """
    Something that begins, lasts and ends.

    :param kind: 'bleed', 'desaturation' or 'breathing'.
    :param start: s after the start of the operation.
    :param duration: s.
    :param magnitude: mL of blood in a second of the body's own time; fall of the saturation aimed
        at, %; or the factor, at least 1, on amplitude and rate of breathing motion.
    """

    kind: str
    start: float
    duration: float
    magnitude: float

    def __post_init__(self) -> None:
        """Refuse what cannot happen."""
        if self.kind not in KINDS:
            raise SettingError('kind', self.kind, 'one of ' + ', '.join(KINDS))
        check_number('start', self.start, 0.0, _LONGEST)
        check_number('duration', self.duration, _SHORTEST, _LONGEST)
        check_number('magnitude', self.magnitude, _LEAST[self.kind], _MOST[self.kind])

    @property
    def end(self) -> float:
        """Return when it is over, s."""
        return self.start + self.duration


def draw_events(rng: np.random.Generator, rate: float, span: float) -> tuple[Event, ...]:
    """
    Draw what will happen, in order of time.

    Four numbers are taken from `rng` for each candidate, so a higher rate moves the same events
    forward. One that would begin while one of its kind lasts is left out.

    :param rate: of candidates, 1/min.
    :param span: in which they begin, s.
    :raises SettingError: if rate or span cannot be.
    """
    if not 0.0 <= rate <= _MOST_RATE:
        raise SettingError('rate', rate, f'events a minute, 0 to {_MOST_RATE:g}')
    if not 0.0 <= span < math.inf:
        raise SettingError('span', span, 'seconds, at least 0')
    events: list[Event] = []
    busy = dict.fromkeys(KINDS, 0.0)
    time = 0.0
    while rate > 0.0:
        gap, choice, long, strong = rng.random(4).tolist()
        time -= math.log1p(-gap) * 60.0 / rate
        if time >= span:
            break
        kind = KINDS[int(choice * len(KINDS))]
        shortest, longest, least, most = _NUMBERS[kind]
        if time >= busy[kind]:
            duration = shortest * (longest / shortest) ** long
            events.append(Event(kind, time, duration, least * (most / least) ** strong))
            busy[kind] = time + duration
    return tuple(events)


def spans(
    events: Iterable[Event], kind: str, pace: float = 1.0
) -> tuple[tuple[float, float, float], ...]:
    """
    Return start, end (s of the body's own time) and magnitude of the events of a kind.

    :param pace: of the body that they happen to.
    """
    return tuple(
        (each.start * pace, each.end * pace, each.magnitude)
        for each in events
        if each.kind == kind
    )


def breathing_events(events: Sequence[Event]) -> tuple[Event, ...]:
    """Return those that change the breathing motion, to be asked for once an operation."""
    return tuple(each for each in events if each.kind == 'breathing')


def breathing_factor(events: Sequence[Event], time: float) -> tuple[float, float]:
    """
    Return the factor f on amplitude and rate of breathing motion, and its derivative, 1/s.

    Both are continuous in time. Factors of events that overlap add up above 1.
    """
    factor, derivative = 1.0, 0.0
    for event in events:
        elapsed = time - event.start
        left = event.duration - elapsed
        if elapsed <= 0.0 or left <= 0.0 or event.kind != 'breathing':
            continue
        ramp = min(RAMP, 0.5 * event.duration)
        edge = min(elapsed, left) / ramp
        excess = event.magnitude - 1.0
        if edge >= 1.0:
            factor += excess
            continue
        factor += excess * edge * edge * (3.0 - 2.0 * edge)
        slope = excess * 6.0 * edge * (1.0 - edge) / ramp
        derivative += slope if elapsed < left else -slope
    return factor, derivative


def breathing_clock(events: Sequence[Event], time: float) -> float:
    """Return the integral of the factor from 0 to a time, s: what turns the breathing phase."""
    clock = time
    for event in events:
        elapsed = min(time - event.start, event.duration)
        if elapsed <= 0.0 or event.kind != 'breathing':
            continue
        ramp = min(RAMP, 0.5 * event.duration)
        up = min(elapsed / ramp, 1.0)
        down = max(0.0, (elapsed - event.duration) / ramp + 1.0)
        area = ramp * up**3 * (1.0 - 0.5 * up) + max(0.0, elapsed - ramp)
        clock += (event.magnitude - 1.0) * (area - ramp * down**3 * (1.0 - 0.5 * down))
    return clock


def breathing_motion(
    amplitude: float, rate: float, phase: float, events: Sequence[Event], time: float
) -> tuple[float, float]:
    """
    Return height (m) and upward speed (m/s) of a breathing surface above its middle.

    h = A f sin(theta), theta = rate * integral of f + phase; both continuous through events.

    :param amplitude: A without events, m.
    :param rate: without events, rad/s.
    :param phase: rad.
    """
    if not events:
        angle = rate * time + phase
        return amplitude * math.sin(angle), amplitude * rate * math.cos(angle)
    factor, derivative = breathing_factor(events, time)
    angle = rate * breathing_clock(events, time) + phase
    sine, cosine = math.sin(angle), math.cos(angle)
    return amplitude * factor * sine, amplitude * (
        derivative * sine + rate * factor * factor * cosine
    )
