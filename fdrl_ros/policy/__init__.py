# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The policy: its network, its form for acting, its bytes for travelling."""

from fdrl_ros.policy.dueling import DuelingPolicy, NetworkShape
from fdrl_ros.policy.policy import decode_weights, digest_of, encode_weights, Policy

__all__ = [
    'DuelingPolicy',
    'NetworkShape',
    'Policy',
    'decode_weights',
    'digest_of',
    'encode_weights',
]
