# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The policy: its shape, its numpy form for acting, its bytes for travelling."""

from fdrl_ros.policy.policy import decode_weights, digest_of, encode_weights, Policy
from fdrl_ros.policy.shape import NetworkShape

__all__ = [
    'NetworkShape',
    'Policy',
    'decode_weights',
    'digest_of',
    'encode_weights',
]
