# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A picture comes back from its message; a message that is no picture is refused by name."""

from array import array

from fdrl_ros.errors import RecordsError
from fdrl_ros.nodes.arm.images import image, picture
import numpy as np
import pytest
from std_msgs.msg import Header

PIXELS = np.random.default_rng(3).integers(0, 256, (5, 7, 3)).astype(np.uint8)


def test_a_picture_comes_back_whatever_the_order_of_its_colours_and_the_length_of_its_rows():
    np.testing.assert_array_equal(picture(image(Header(), 'rgb8', PIXELS)), PIXELS)
    turned = np.ascontiguousarray(PIXELS[:, :, ::-1])
    np.testing.assert_array_equal(picture(image(Header(), 'bgr8', turned)), PIXELS)
    padded = image(Header(), 'rgb8', PIXELS)
    rows = np.pad(PIXELS.reshape(5, 21), ((0, 0), (0, 3)))
    padded.step, padded.data = 24, array('B', rows.tobytes())
    np.testing.assert_array_equal(picture(padded), PIXELS)


@pytest.mark.parametrize(
    ('changes', 'told'),
    [
        ({'encoding': 'mono8'}, "encoding 'mono8': expected one of rgb8, bgr8"),
        ({'encoding': ''}, "encoding ''"),
        ({'height': 6}, '6 rows of 21 bytes, 7 pixels, in 105 bytes: these do not fit'),
        ({'width': 8}, '8 pixels'),
        ({'step': 20}, '20 bytes'),
        ({'height': 0, 'data': array('B')}, '0 rows'),
        ({'width': 0, 'step': 0, 'data': array('B')}, '0 pixels'),
    ],
)
def test_what_does_not_fit_is_refused(changes, told):
    source = image(Header(), 'rgb8', PIXELS)
    for name, value in changes.items():
        setattr(source, name, value)
    with pytest.raises(RecordsError, match=told):
        picture(source)
