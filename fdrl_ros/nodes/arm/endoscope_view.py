# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The endoscope's pictures as topics; they are drawn on the worker's thread, one at a time."""

from collections.abc import Callable

from builtin_interfaces.msg import Time
from fdrl_ros.errors import FdrlError
from fdrl_ros.nodes.arm.images import image
from fdrl_ros.nodes.arm.robot_messages import header, with_frames
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.managed_node import ManagedNode
from fdrl_ros.surgery.arm.mount import Mount
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.render.camera import Camera, FRAME_ID, Intrinsics
from fdrl_ros.surgery.render.endoscope import Endoscope
from fdrl_ros.surgery.render.scene import Frame
from fdrl_ros.surgery.render.view import view_of
from sensor_msgs.msg import CameraInfo, Image

IMAGES = {'image_raw': ('rgb8', 'rgb'), 'depth': ('32FC1', 'depth'), 'labels': ('mono8', 'labels')}
"""Topic below endoscope/ -> encoding and attribute of a frame; depth is in metres, labels
are as surgery.render.parts has them."""


def camera_info(stamp: Time, camera: Intrinsics) -> CameraInfo:
    """Make the description of the camera: a pinhole without distortion."""
    made = CameraInfo(height=camera.height, width=camera.width, distortion_model='plumb_bob')
    made.header.stamp, made.header.frame_id = stamp, FRAME_ID
    fx, fy, cx, cy = camera.fx, camera.fy, camera.cx, camera.cy
    made.d = [0.0] * 5
    made.k = [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0]
    made.r = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    made.p = [fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0]
    return made


class EndoscopeView:
    """
    Looks at an operation through the endoscope while somebody listens.

    :param node: whose topics these are; made while it is configured.
    :param camera: of the pictures; it says how many there are in a second.
    :param mount: names of the arm's frames.
    :raises ResourceError: if the compiled arithmetic was not built.
    """

    def __init__(
        self, node: ManagedNode, operation: Operation, camera: Camera, mount: Mount
    ) -> None:
        self._node = node
        self._mount = mount
        self._operation = operation
        self._camera, self._endoscope = camera, Endoscope(camera)
        self._images = {
            name: node.publisher(Image, f'endoscope/{name}', qos.PICTURE) for name in IMAGES
        }
        self._info = node.publisher(CameraInfo, 'endoscope/camera_info', qos.PICTURE)
        self._drawing = False
        self._drawn = 0  # no two pictures have one noise, also while time stands

    def begin(self, placed: Callable[[], bool]) -> None:
        """
        Begin to look; while the node is activated.

        :param placed: whether there is an operation to look at.
        """
        self._drawing = False

        def look() -> None:
            listeners = [*self._images.values(), self._info]
            heard = any(each.get_subscription_count() for each in listeners)
            if heard and placed() and not self._drawing:
                self._draw()

        self._node.every(1.0 / self._camera.fps, look, self._node.motion_clock)

    def _draw(self) -> None:
        """Have a picture drawn of how it is now."""
        operation = self._operation
        joints, jaw = operation.arm.joints().tolist(), operation.jaw.angle
        stamp, view = self._node.get_clock().now().to_msg(), view_of(operation, guides=False)
        self._drawing, self._drawn = True, self._drawn + 1
        noise = self._drawn
        self._node.submit(
            lambda report, stopped: self._endoscope.capture(joints, jaw, view, noise),
            lambda result: self._publish(stamp, result),
        )

    def _publish(self, stamp: Time, result: Frame | Exception) -> None:
        self._drawing = False
        if isinstance(result, FdrlError):
            self._node.get_logger().warning(f'no picture: {result}', throttle_duration_sec=1.0)
            return
        if isinstance(result, Exception):
            raise result
        for name, (encoding, attribute) in IMAGES.items():
            if self._images[name].get_subscription_count():
                pixels = getattr(result, attribute)
                shown = image(header(stamp, FRAME_ID), encoding, pixels)
                self._images[name].publish(with_frames(shown, self._mount))
        info = camera_info(stamp, self._camera.intrinsics)
        self._info.publish(with_frames(info, self._mount))
