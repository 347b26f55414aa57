# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the robot sees: it holds while that is nothing, and moves finely without its jaw."""

from dataclasses import dataclass
from enum import Enum
import math

from fdrl_ros.selector.control.plausibility import NewestMessage
from fdrl_ros.settings import setting, Settings

NO_PICTURE = 'no_picture'
"""Reason where no picture came: the stamp of such a message is the segmenter's time."""


@dataclass(frozen=True)
class VisibilitySettings(Settings):
    """What a robot with `needs_visibility` has to see."""

    longest_age: float = setting(
        0.3,
        'greatest age of the picture that was segmented, by the stamps of picture and state',
        limits=(0.05, 10.0),
        unit='s',
    )
    jaw_share: float = setting(
        0.0005,
        'share of the pixels that are jaw, below which the robot makes fine moves alone',
        limits=(0.0, 1.0),
    )
    jaw_confidence: float = setting(
        0.5,
        "mean probability of the jaw's pixels, below which they do not count",
        limits=(0.0, 1.0),
    )


class View(Enum):
    """What is seen at a time."""

    CLEAR = 'the jaw is in view'
    NO_JAW = 'the jaw is not in view'
    NOTHING = 'nothing is seen'


class VisibilityCheck:
    """
    Judges the last message of the segmenter, by stamps alone, so that a replay finds the same.

    :param tolerance: greatest time that a picture may be ahead of a state, s; 0 compares nothing.
    """

    def __init__(self, settings: VisibilitySettings, tolerance: float) -> None:
        self._settings = settings
        self._tolerance = tolerance or math.inf
        self.restart()

    def restart(self) -> None:
        """Forget what was seen: time began again."""
        self._order = NewestMessage()
        self._seen, self._jaw, self._time = False, 0.0, -math.inf

    def receive(self, seen: bool, jaw: tuple[float, float], time: float, reason: str = '') -> bool:
        """
        Take in a message of the segmenter; one that nothing is seen always counts.

        Only stamps of pictures are compared: the camera's clock may differ from the segmenter's,
        and a picture that comes late, after a message that none came, ends that.

        :param seen: whether anything is seen.
        :param jaw: share of the pixels that are jaw, and mean probability of these; NaN for none.
        :param time: stamp of the picture, s; with NO_PICTURE that of the message.
        :param reason: why nothing is seen.
        :returns: False for a picture that is older than one received before.
        """
        late = reason != NO_PICTURE and not self._order.accepts(time)
        if seen and late:
            return False
        share, confidence = jaw
        self._jaw = share if confidence >= self._settings.jaw_confidence else 0.0
        self._seen, self._time = seen, time
        return True

    def at(self, time: float) -> View:
        """
        Return what is seen in a state.

        :param time: its stamp, s.
        """
        age = time - self._time
        if not (self._seen and -self._tolerance <= age <= self._settings.longest_age):
            return View.NOTHING
        return View.CLEAR if self._jaw >= self._settings.jaw_share else View.NO_JAW
