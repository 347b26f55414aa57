# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Refuse to run unsecured where security was asked for."""

from collections.abc import Mapping
from typing import Final

from fdrl_ros.errors import SettingError

ABLE: Final = (
    *('rmw_connextdds', 'rmw_cyclonedds_cpp'),
    *('rmw_fastrtps_cpp', 'rmw_fastrtps_dynamic_cpp'),
)
"""Middleware that reads an enclave, or refuses to run if it was built without."""


def is_on(variables: Mapping[str, str]) -> bool:
    """Return whether variables of the environment ask for security, however they are written."""
    return variables.get('ROS_SECURITY_ENABLE', '').lower() not in ('', 'false')


def check_security(variables: Mapping[str, str], middleware: str) -> None:
    """
    Refuse variables of SROS2 with which a node would run unsecured and say nothing.

    ROS 2 takes `True` or `1` for "off", and any misspelt strategy for "run without, if there are
    no keys".

    :param variables: of the environment.
    :param middleware: name of the RMW implementation.
    :raises SettingError: naming the first.
    """
    if not is_on(variables):
        return
    if (enabled := variables['ROS_SECURITY_ENABLE']) != 'true':
        raise SettingError('ROS_SECURITY_ENABLE', enabled, 'true, so written, or false')
    strategy = variables.get('ROS_SECURITY_STRATEGY', '')
    if strategy != 'Enforce':
        raise SettingError('ROS_SECURITY_STRATEGY', strategy, 'Enforce, so written')
    if middleware not in ABLE:
        raise SettingError(
            'RMW_IMPLEMENTATION', middleware, f'one with DDS Security: {", ".join(ABLE)}'
        )
