# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the nodes of a DDS domain publish, hear, serve and call now, as DDS topics."""

from collections.abc import Callable, Mapping
import time

from fdrl_ros.deployment.interfaces import Endpoints, service_topics, topic_name
from fdrl_ros.nodes.common.service_call import node_in
from rclpy.node import Node

LOOK = 0.2
"""Time between two looks at the graph, second."""

Graph = Mapping[str, Endpoints]
"""Each node's endpoints, by its full name."""


def live_graph(domain: int, complete: Callable[[Graph], bool], patience: float) -> Graph:
    """
    Look at the nodes of a domain until they are complete.

    :param complete: told what was found; ends the search.
    :param patience: longest search, second; discovery of a large federation takes a few.
    :returns: what was found last, without the node that looks.
    """
    deadline = time.monotonic() + patience
    with node_in(domain, 'security_check') as node:
        while True:
            found = {
                f'{namespace.rstrip("/")}/{name}': _endpoints(node, name, namespace)
                for name, namespace in node.get_node_names_and_namespaces()
                if name != node.get_name()
            }
            if complete(found) or time.monotonic() > deadline:
                return found
            time.sleep(LOOK)


def _endpoints(node: Node, name: str, namespace: str) -> Endpoints:
    """Return the endpoints of one node; of one that left meanwhile, none."""
    publish, subscribe = set(), set()
    try:
        for topic, _ in node.get_publisher_names_and_types_by_node(name, namespace):
            publish.add(topic_name(topic))
        for topic, _ in node.get_subscriber_names_and_types_by_node(name, namespace):
            subscribe.add(topic_name(topic))
        for service, _ in node.get_service_names_and_types_by_node(name, namespace):
            request, reply = service_topics(service)
            subscribe.add(request)
            publish.add(reply)
        for service, _ in node.get_client_names_and_types_by_node(name, namespace):
            request, reply = service_topics(service)
            publish.add(request)
            subscribe.add(reply)
    except RuntimeError:  # rclpy's NodeNameNonExistentError among them
        return Endpoints()
    return Endpoints(frozenset(publish), frozenset(subscribe))
