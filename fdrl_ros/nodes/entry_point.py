# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Entry point of every node: imports it by name, and ends quietly at a signal before that."""

from importlib import import_module
import os
import signal
import sys
from types import FrameType

from fdrl_ros.deployment.bringup import check_domain, check_middleware, NODES
from fdrl_ros.deployment.supervision import REFUSED
from fdrl_ros.errors import SettingError
from fdrl_ros.resources import resource
from fdrl_ros.runtime.orphans import end_with_launcher


def usage(name: str) -> str:
    """Say how a node is started, and where its parameters stand."""
    return (
        f'usage: {name} [--ros-args -r __ns:=/NAMESPACE -p PARAMETER:=VALUE '
        '--params-file FILE ...]\n'
        f'Starts the node in the DDS domain ROS_DOMAIN_ID, 0 unless set.\n'
        f'Parameters, with range and default: {resource(f"config/{NODES[name]}.yaml")}'
    )


def start(name: str) -> int:
    """
    Import a node's module, which takes seconds, and run it.

    Nothing is open yet while it is imported: SIGINT and SIGTERM then end the process at once. From
    now on it ends with its launcher, if that named itself.

    :param name: of the module in fdrl_ros.nodes.
    :returns: exit code.
    """
    words = sys.argv[1:]
    if words and words[0] != '--ros-args':
        asked = words[0] in ('-h', '--help')
        print(usage(name), file=sys.stdout if asked else sys.stderr)
        return 0 if asked else REFUSED
    try:
        check_middleware()
        check_domain('ROS_DOMAIN_ID', os.environ.get('ROS_DOMAIN_ID') or '0')
    except SettingError as error:
        print(f'{name}: {error}', file=sys.stderr)
        return REFUSED

    def leave(number: int, frame: FrameType | None) -> None:
        # Not by an exception: imported foreign code could turn it into another.
        os._exit(0)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, leave)
    end_with_launcher()
    node = import_module(f'fdrl_ros.nodes.{name}').NODE
    return import_module('fdrl_ros.nodes.common.managed_node').run_node(node)
