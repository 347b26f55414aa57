# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Who leaves an operating room is announced no more."""

import os

from fdrl_ros.nodes.common import qos
from std_msgs.msg import Empty
from support.operating_room import Room


def sockets() -> int:
    """Return how many sockets this process has."""
    count = 0
    for each in os.listdir('/proc/self/fd'):
        try:
            count += os.readlink(f'/proc/self/fd/{each}').startswith('socket:')
        except FileNotFoundError:  # of the listing itself
            continue
    return count


def test_a_room_that_was_left_holds_no_participant(robot_domain):
    before = sockets()
    for _ in range(3):
        room = Room(robot_domain)
        room.hear(Empty, 'hold', qos.EVENT)
        assert sockets() > before
        room.executor.spin_once(timeout_sec=0.01)
        room.close()
    assert sockets() == before
