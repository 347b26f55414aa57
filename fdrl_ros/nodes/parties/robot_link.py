# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The trainer's second node, in the robots' DDS domain: it publishes released policies only."""

from contextlib import ExitStack
from typing import Any

from fdrl_ros.deployment.bringup import DISCOVERY_SERVER
from fdrl_ros.federation.protocol.message import GlobalPolicy, HospitalPolicy, Message
import fdrl_ros.msg as ros
from fdrl_ros.nodes.common.service_call import node_in
from fdrl_ros.nodes.parties.weights_topic import PolicyPublishers
from fdrl_ros.runtime.environment_variables import with_variables

ELSEWHERE = (DISCOVERY_SERVER, 'ROS_STATIC_PEERS')
"""Variables that lead to the federation's other hosts: the robots are not there."""


class RobotLink:
    """A node of its own in the other domain; it hears nothing there."""

    def __init__(self, name: str, namespace: str, federation: str, domain: int) -> None:
        """
        Join the domain.

        :param federation: namespace of the federation's topics, the same in both domains.
        """
        self._joined = ExitStack()
        # The middleware reads them now, for whatever domain.
        with with_variables(dict.fromkeys(ELSEWHERE, '')):
            self._node = self._joined.enter_context(node_in(domain, name, namespace))
        self._federation = federation

    def open(self, publishers: PolicyPublishers) -> None:
        """Make the publishers."""
        make, topic = self._node.create_publisher, f'{self._federation}/policy'
        self._global = publishers.add(ros.GlobalPolicy, topic, make)
        self._own = publishers.add(ros.HospitalPolicy, 'policy', make)

    def publish(self, message: Message, stamp: Any) -> None:
        """Publish a policy as its sender signed it; the selectors check it themselves."""
        if isinstance(message, GlobalPolicy):
            self._global.publish(message, stamp)
        elif isinstance(message, HospitalPolicy):
            self._own.publish(message, stamp)

    def close(self) -> None:
        """Leave the domain."""
        self._joined.close()
