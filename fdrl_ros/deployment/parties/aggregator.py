# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Put the aggregator together."""

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.channel import open_channel
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.federation.aggregator.aggregator import Aggregator
from fdrl_ros.federation.protocol.store import Store


def open_aggregator(layout: Layout, plan: Plan, store: Store) -> Aggregator:
    """
    Put the aggregator together.

    :raises FdrlError: as :func:`fdrl_ros.deployment.parties.channel.open_channel`.
    """
    return Aggregator(open_channel(layout, 'aggregator', store), plan.rounds, store)
