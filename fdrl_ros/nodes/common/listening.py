# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Listens for a node on a thread of one's own, which no message can end."""

import traceback
from typing import Any

from rclpy.node import Node

SECONDS = 0.2
"""Longest wait for something to do."""


def spin_once(executor: Any, node: Node) -> None:
    """
    Do what waits for a node, once; what fails is logged, and the next message is taken.

    Whoever only looks on takes whatever others publish: one message that cannot be shown must not
    end what comes after it, such as a surgeon's taking over.
    """
    try:
        executor.spin_once(timeout_sec=SECONDS)
    except Exception as error:
        node.get_logger().error(f'a message was passed over: {error!r}\n{traceback.format_exc()}')
