# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The request that hands an arm back to its selector, signed by the operator of a directory."""

from pathlib import Path
import time

from fdrl_ros.crypto.keys.keystore import KEY_FILE, load_identity
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.federation.protocol.orders import HAND_BACK, sign_hand_back
from fdrl_ros.nodes.parties.conversion import to_ros
from fdrl_ros.srv import Supervise


def hand_back(directory: Path, robot: str = 'robot_1', *, ahead: float = 0.0) -> Supervise.Request:
    """Return it, signed now, by a clock that may be so many seconds ahead."""
    layout = Layout(directory)
    operator = load_identity(layout.keys / 'operator' / KEY_FILE, 'operator')
    order = sign_hand_back(operator, layout.roster().federation, robot, time.time() + ahead)
    request = Supervise.Request(command=HAND_BACK)
    to_ros(order.envelope, request.envelope)
    return request
