# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The segmenter: labels the instrument in the endoscope's pictures, and says what can be seen."""

from collections import deque
from dataclasses import dataclass
import math
from pathlib import Path
from typing import NamedTuple, TYPE_CHECKING

from fdrl_ros.errors import errors_named, PluginError, PolicyError, RecordsError, SettingError
from fdrl_ros.federation.protocol.party import worth_logging
import fdrl_ros.msg as ros
from fdrl_ros.nodes.arm.images import image, picture
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.diagnostics import Health, Level
from fdrl_ros.nodes.common.managed_node import ManagedNode, NodeSettings
from fdrl_ros.runtime.worker_thread import Post
from fdrl_ros.segmentation.camera_check import CameraCheck, CameraFault, CameraSettings
from fdrl_ros.segmentation.network.segmenter_file import load_segmenter
from fdrl_ros.segmentation.overlay import overlaid
from fdrl_ros.selector.candidates.decision_time import DecisionTime
from fdrl_ros.selector.control.observation import nanoseconds
from fdrl_ros.settings import setting
from fdrl_ros.surgery.render.parts import PARTS
import numpy as np
from sensor_msgs.msg import Image
from std_msgs.msg import Header

if TYPE_CHECKING:
    from fdrl_ros.segmentation.network.streaming import Segmented

REMEMBERED = 1000
"""Newest pictures whose latency is remembered."""

WATCHES = 10
"""Looks in a period whether a picture is missed."""


@dataclass(frozen=True)
class SegmenterNodeSettings(NodeSettings):
    """What a segmenter's node is told."""

    file: str = setting('', 'file of a trained segmenter, such as segmenter_A.npz')


class _Picture(NamedTuple):
    """
    A picture that shows something.

    :param pixels: shape (height, width, 3), uint8, RGB.
    :param faults: how many faults of the camera were told when it came.
    """

    header: Header
    pixels: np.ndarray
    faults: int


class SegmenterNode(ManagedNode):
    """
    Segments the newest picture on the worker's thread, and publishes what it sees.

    Each picture is checked when it comes: if the camera shows nothing, that is published at once.
    """

    executable = 'segmenter'
    part = 'visibility'
    further = {'camera': CameraSettings}
    own = SegmenterNodeSettings
    alone = True

    def __init__(self, post: Post) -> None:
        self.reason = CameraFault.NO_PICTURE.value
        super().__init__(post)

    def open(self) -> None:
        """
        Read the segmenter, and make the publishers.

        :raises PluginError: if PyTorch is not installed.
        """
        try:
            from fdrl_ros.segmentation.network.streaming import Stream, use_one_thread
        except ImportError as error:
            raise PluginError(
                'segmenter', f'{error}: pip install "fdrl_ros[torch]", or `make setup`'
            ) from error
        file = self.settings.file
        if not file:
            raise SettingError('file', '', 'a file of a trained segmenter')
        use_one_thread()
        saved = load_segmenter(Path(file))
        with errors_named(PolicyError, file):
            self._stream = Stream(saved.segmenter(), saved.text)
        size = saved.settings.size
        self._model = f'{size} of site {saved.site}' if saved.site else size
        self.get_logger().info(f'segmenter {self._model}')
        self._labels = self.publisher(Image, 'segmenter/labels', qos.PICTURE)
        self._overlay = self.publisher(Image, 'segmenter/overlay', qos.PICTURE)
        self._visibility = self.publisher(ros.Visibility, 'visibility', qos.SEEN)

    def begin(self) -> None:
        """Listen to the camera."""
        camera = self.further_settings('camera')
        self._period = camera.period
        self._check = CameraCheck(camera, self.time)
        self._stream.begin_anew()
        self._waiting: _Picture | None = None
        self._busy = False
        self._faults = self._refused = self._segmented = 0
        self._latencies: deque[float] = deque(maxlen=REMEMBERED)
        self._published_at = -math.inf
        self.reason, self._logged = CameraFault.NO_PICTURE.value, ''
        self._parts = ''
        self.hear(Image, 'endoscope/image_raw', self._receive, qos.SENSOR)
        self.every(self._period / WATCHES, self._watch, self.motion_clock)
        self.every(1.0, self._log_reason)

    # Pictures.

    def _receive(self, source: Image) -> None:
        """Check a picture, and have it segmented as soon as the one before is."""
        self._check.note_arrival(self.time)
        try:
            pixels = picture(source)
            fault = self._check.check(pixels)
        except RecordsError as error:
            self._refuse(source.header, error)
            return
        if fault is not None:
            self._publish_fault(source.header, fault)
            return
        self._waiting = _Picture(source.header, pixels, self._faults)
        self._segment_newest()

    def _segment_newest(self) -> None:
        """Begin with the newest picture, unless one is under way."""
        newest = self._waiting
        if self._busy or newest is None:
            return
        self._waiting, self._busy = None, True
        stamp = 1e-9 * nanoseconds(newest.header.stamp)
        self.submit(
            lambda report, stopped: self._stream.segment(newest.pixels, stamp),
            lambda result: self._take(newest, result),
        )

    def _take(self, source: _Picture, result: 'Segmented | Exception') -> None:
        """Publish what was segmented, and go on with the newest picture."""
        self._busy = False
        if isinstance(result, RecordsError):
            self._refuse(source.header, result)
        elif isinstance(result, Exception):
            raise result
        elif source.faults == self._faults:  # since then the camera shows something
            self._publish(source, result)
        self._segment_newest()

    def _publish(self, source: _Picture, result: 'Segmented') -> None:
        header, labels = source.header, result.labels
        self._labels.publish(image(header, 'mono8', labels))
        latency = self._latency(header)
        self._latencies.append(latency)
        self._segmented += 1
        counts = np.bincount(labels.ravel(), minlength=len(PARTS))
        best = result.probabilities.max(axis=0)
        sums = np.bincount(labels.ravel(), weights=best.ravel(), minlength=len(PARTS))
        confidence = [
            total / count if count else math.nan
            for total, count in zip(sums.tolist(), counts.tolist(), strict=True)
        ]
        share = counts / labels.size
        self._publish_visibility(
            ros.Visibility(
                header=header, seen=True, share=share, confidence=confidence, latency=latency
            )
        )
        self._parts = ', '.join(
            f'{name} {part:.2%}' for name, part in zip(PARTS[1:], share[1:], strict=True)
        )
        if self._overlay.get_subscription_count():
            self._overlay.publish(image(header, 'rgb8', overlaid(source.pixels, labels)))

    # What cannot be seen.

    def _refuse(self, header: Header, error: RecordsError) -> None:
        """Publish that a picture cannot be used; of many such pictures, log some."""
        self._refused += 1
        if worth_logging(self._refused):
            self.get_logger().warning(f'refused: {error}')
        self._publish_fault(header, CameraFault.UNUSABLE)

    def _watch(self) -> None:
        """Publish once a period that no picture came, as long as none does."""
        now = self.time
        published = 0.0 <= now - self._published_at < self._period
        published = published and self.reason == CameraFault.NO_PICTURE
        if self._check.overdue(now) and not published:
            header = Header(stamp=self.get_clock().now().to_msg())
            self._publish_fault(header, CameraFault.NO_PICTURE)

    def _publish_fault(self, header: Header, reason: CameraFault) -> None:
        """Publish that nothing can be seen; what is under way came before that."""
        self._faults += 1
        self._waiting = None
        latency = math.nan if reason is CameraFault.NO_PICTURE else self._latency(header)
        self._publish_visibility(
            ros.Visibility(
                header=header,
                reason=reason.value,
                confidence=[math.nan] * len(PARTS),
                latency=latency,
            )
        )

    def _publish_visibility(self, message: ros.Visibility) -> None:
        self.reason, self._published_at = message.reason, self.time
        self._visibility.publish(message)

    def _latency(self, header: Header) -> float:
        """Return the time since a picture was taken, s."""
        return 1e-9 * (self.get_clock().now().nanoseconds - nanoseconds(header.stamp))

    # What it says of itself.

    def _log_reason(self) -> None:
        """Log why nothing can be seen when that changes."""
        if self.reason != self._logged:
            self._logged = self.reason
            if self.reason:
                self.get_logger().warning(f'nothing can be seen: {self.reason}')
            else:
                self.get_logger().info('the camera shows something')

    def health(self) -> Health:
        """Add latency and what is seen, and warn while nothing is."""
        health = super().health()
        if health.level is not Level.OK or self.state_name != 'active':
            return health
        values = {
            'segmenter': self._model,
            'segmented': self._segmented,
            'refused': self._refused,
            'latency': self._latency_in_words(),
            'seen': self._parts if not self.reason else '',
        }
        if self.reason:
            return Health(Level.WARN, f'nothing can be seen: {self.reason}', values)
        return Health(Level.OK, 'segmenting', values)

    def _latency_in_words(self) -> str:
        """Say how old pictures are when their labels are published, beside the period."""
        if not self._latencies:
            return ''
        found = DecisionTime.of(self._latencies)
        late = sum(each > self._period for each in self._latencies)
        return f'median {1e3 * found.median:.3g} ms, {found.words(self._period)}; {late} late'


NODE = SegmenterNode
