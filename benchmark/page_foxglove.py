# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The peer of benchmark/page.py: one topic, served by Foxglove's SDK as its bytes came.

    python benchmark/page_foxglove.py DOMAIN TOPIC

It prints its port, and serves until its standard input ends.
"""

import sys
import threading

import fdrl_ros.msg as ros
from fdrl_ros.nodes.common import qos
from fdrl_ros.nodes.common.service_call import node_in
import foxglove
from rclpy.experimental import EventsExecutor


def main() -> None:
    """Serve."""
    domain, topic = int(sys.argv[1]), sys.argv[2]
    schema = foxglove.Schema(name='fdrl_ros/msg/OperationState', encoding='ros2msg', data=b'')
    channel = foxglove.Channel(topic, message_encoding='cdr', schema=schema)
    server = foxglove.start_server(port=0)
    ending = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ending.set()), daemon=True).start()
    with node_in(domain, 'peer') as node:
        node.create_subscription(
            ros.OperationState, topic, lambda data: channel.log(bytes(data)), qos.SENSOR, raw=True
        )
        executor = EventsExecutor(context=node.context)
        executor.add_node(node)
        print(server.port, flush=True)
        while not ending.is_set():
            executor.spin_once(timeout_sec=0.2)
        executor.remove_node(node)
    server.stop()


if __name__ == '__main__':
    main()
