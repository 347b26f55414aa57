# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What happens to a patient during an operation: bleeding, desaturation, coughing.

Events begin as a Poisson process.
"""

from collections.abc import Iterable
from dataclasses import dataclass
import math
import sys

from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.ranges import check_number
from fdrl_ros.surgery.constants import constant
from fdrl_ros.surgery.scalar_or_array import Number
import numpy as np

Span = tuple[Number, Number, Number, Number]
"""Start, end, duration (s) and magnitude of an event; of many patients, arrays."""

KINDS = ('bleed', 'desaturation', 'breathing')
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


def spans(events: Iterable[Event], kind: str, pace: float = 1.0) -> tuple[Span, ...]:
    """
    Return the spans of the events of a kind.

    :param pace: how many times faster than real time the body lives that they happen to.
    """
    return tuple(
        (event.start * pace, event.end * pace, event.duration * pace, event.magnitude)
        for event in events
        if event.kind == kind
    )
