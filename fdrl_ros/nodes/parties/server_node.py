# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What the nodes of both servers share: numbers for Prometheus, where they are asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fdrl_ros.deployment.parties.server_metrics import ServerMetrics
from fdrl_ros.federation.protocol.message import Message
from fdrl_ros.nodes.common.diagnostics import Health
from fdrl_ros.nodes.parties.party_node import PartyNode, PartySettings
from fdrl_ros.runtime.worker_thread import Post
from fdrl_ros.settings import setting


@dataclass(frozen=True)
class ServerSettings(PartySettings):
    """What the node of a server is told."""

    metrics_port: int = setting(
        0, 'TCP port on which Prometheus reads numbers over HTTP; 0: none', limits=(0, 65535)
    )
    metrics_address: str = setting(
        '127.0.0.1',
        'address of the interface of that port; there is no encryption and no log-in, so let '
        'other hosts in through a proxy',
    )


class ServerNode(PartyNode):
    """Drives a server's party, and counts what it takes and sends."""

    own: ClassVar[type[PartySettings]] = ServerSettings

    def __init__(self, post: Post) -> None:
        self.metrics: ServerMetrics | None = None
        super().__init__(post)

    def open(self) -> None:
        """Open the port for Prometheus, if there is to be one."""
        super().open()
        settings = self.settings
        self.metrics = None
        if settings.metrics_port:
            self.metrics = ServerMetrics()
            self.keep(self.metrics.serve(settings.metrics_port, settings.metrics_address))

    def accepted(self, message: Message) -> None:
        """Count a message that the party took."""
        super().accepted(message)
        if self.metrics is not None:
            self.metrics.note(message)

    def send(self, message: Message) -> None:
        """Count what is published."""
        if self.metrics is not None:
            self.metrics.note(message)
        super().send(message)

    def left_out(self) -> Mapping[str, str]:
        """Return which hospitals take no part, and why."""
        return {}

    def health(self) -> Health:
        """Hand on what was counted."""
        if self.metrics is not None:
            self.metrics.note_state(self.refused, self.stopwatch.seconds, self.left_out())
        return super().health()
