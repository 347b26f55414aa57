# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
CRTK's own messages where they were found at build, ours with the same fields otherwise.

The build generates ours only when it did not find crtk_msgs, so there is one choice for good.
"""

from typing import Any

import fdrl_ros.msg as ros

OWN = hasattr(ros, 'OperatingState')
"""Whether these messages are ours."""

if not OWN:
    import crtk_msgs.msg

_source: Any = ros if OWN else crtk_msgs.msg
OperatingState = _source.OperatingState
StringStamped = _source.StringStamped
