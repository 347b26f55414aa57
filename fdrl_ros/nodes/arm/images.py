# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Pictures as image messages, and back."""

from array import array

from fdrl_ros.errors import RecordsError
import numpy as np
from sensor_msgs.msg import Image
from std_msgs.msg import Header

COLOURS = {'rgb8': slice(None), 'bgr8': slice(None, None, -1)}
"""Encodings of colour pictures, and where red, green and blue are in them."""


def image(header: Header, encoding: str, pixels: np.ndarray) -> Image:
    """
    Make an image message.

    :param pixels: shape (height, width) or (height, width, 3), of the encoding's type.
    """
    height, width = pixels.shape[:2]
    made = Image(header=header, height=height, width=width, encoding=encoding)
    made.step = pixels[0].nbytes
    made.data = array('B', pixels.tobytes())
    return made


def picture(source: Image) -> np.ndarray:
    """
    Return the picture of a message, shape (height, width, 3), uint8, RGB.

    :raises RecordsError: if it is no colour picture, or has fewer bytes than it says.
    """
    order = COLOURS.get(source.encoding)
    if order is None:
        raise RecordsError(
            f'picture of encoding {source.encoding!r}: expected one of {", ".join(COLOURS)}'
        )
    height, width, step = source.height, source.width, source.step
    if not (height and step >= 3 * width > 0 and len(source.data) == height * step):
        raise RecordsError(
            f'picture of {height} rows of {step} bytes, {width} pixels, in {len(source.data)} '
            'bytes: these do not fit each other'
        )
    rows = np.frombuffer(source.data, np.uint8).reshape(height, step)
    return np.ascontiguousarray(rows[:, : 3 * width].reshape(height, width, 3)[:, :, order])
