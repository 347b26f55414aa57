# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Numbers of a server of the federation for Prometheus, over HTTP.

All of it the server publishes or counts itself: rounds, phases, survivors, refusals, bytes of
ciphertext, and the epsilon that hospitals publish. It holds nothing of private records.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
import time
from typing import Any

from fdrl_ros.errors import FdrlError, PluginError
from fdrl_ros.federation.protocol.message import (
    GlobalPolicy,
    MaskedUpdate,
    Message,
    Phase,
    RoundStatus,
)

LIBRARY = 'prometheus_client'


class ServerMetrics:
    """
    What one server tells Prometheus.

    Pass it every message that the server takes or sends; an HTTP thread answers with the numbers.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Begin with nothing.

        :param clock: seconds, for the time in each phase.
        :raises PluginError: if prometheus_client is not installed.
        """
        try:
            import prometheus_client as library
        except ImportError as missing:
            hint = f'{missing}: pip install "fdrl_ros[metrics]"'
            raise PluginError('metrics_port', hint) from missing
        self._library: Any = library
        self._clock = clock
        self.registry = library.CollectorRegistry()
        self._phase, self._since = Phase.WAITING, clock()

        def gauge(name: str, words: str, *labels: str) -> Any:
            return library.Gauge(f'fdrl_{name}', words, labels, registry=self.registry)

        def counter(name: str, words: str, *labels: str) -> Any:
            return library.Counter(f'fdrl_{name}', words, labels, registry=self.registry)

        self._round = gauge('round', 'Present round, or the newest released one.')
        self._attempt = gauge('attempt', 'Attempt at the present round.')
        self._in_phase = gauge('phase', '1 for the present phase of the round.', 'phase')
        self._spent = counter('phase_seconds', 'Time in each phase.', 'phase')
        self._survivors = gauge('survivors', 'Hospitals whose update arrived in this attempt.')
        self._members = gauge('members', 'Hospitals that mask with each other in this attempt.')
        self._left_out = gauge('left_out', '1 for a hospital that takes no part.', 'hospital')
        self._refused = gauge('refused', 'Messages refused since the start.', 'reason')
        self._bytes = counter('update_bytes', 'Ciphertext that arrived.', 'hospital')
        self._released = counter('released', 'Policies released.', 'outcome')
        self._jobs = gauge('job_seconds', 'Time in each kind of work since the start.', 'job')
        self._epsilon = gauge(
            'epsilon', 'Privacy spent, as the hospital publishes it.', 'hospital', 'unit'
        )

    def note(self, message: Message) -> None:
        """Count a message that the server took or sent."""
        match message:
            case RoundStatus():
                now = self._clock()
                self._spent.labels(self._phase.name).inc(max(now - self._since, 0.0))
                self._phase, self._since = Phase(message.phase), now
                if self._phase is not Phase.FINISHED:  # which names a round that never begins
                    self._round.set(message.envelope.round)
                    self._attempt.set(message.envelope.attempt)
                    self._note_hospitals(message)
                for each in Phase:
                    self._in_phase.labels(each.name).set(each is self._phase)
            case MaskedUpdate():
                self._bytes.labels(message.sender).inc(len(message.ciphertext))
            case GlobalPolicy() if message.envelope.round:
                outcome = 'rolled_back' if message.rolled_back else 'new'
                self._released.labels(outcome).inc()
                self._round.set(message.envelope.round)

    def _note_hospitals(self, message: RoundStatus) -> None:
        """Keep who took part until the next attempt opens."""
        opened = self._phase is Phase.OPEN
        for gauge, marks in (
            (self._members, message.members),
            (self._survivors, message.survivors),
        ):
            if marks or opened:
                gauge.set(int.from_bytes(marks).bit_count())

    def note_epsilon(self, hospital: str, unit: str, epsilon: float) -> None:
        """Take what a hospital publishes of its ledger."""
        self._epsilon.labels(hospital, unit).set(epsilon)

    def note_state(
        self,
        refused: Mapping[str, int],
        seconds: Mapping[str, float],
        left_out: Mapping[str, str] | None = None,
    ) -> None:
        """
        Take what the server has counted itself.

        :param refused: messages by the reason.
        :param seconds: of work by its kind.
        :param left_out: hospitals that take no part, and why.
        """
        for reason, count in refused.items():
            self._refused.labels(reason).set(count)
        for job, spent in seconds.items():
            self._jobs.labels(job).set(spent)
        self._left_out.clear()
        for name in left_out or {}:
            self._left_out.labels(name).set(1)

    def serve(self, port: int, address: str) -> Callable[[], None]:
        """
        Answer requests in a thread of its own.

        :param address: of the interface; 127.0.0.1 answers this host alone.
        :returns: what ends it.
        :raises FdrlError: if the port cannot be used.
        """
        try:
            server, thread = self._library.start_http_server(port, address, self.registry)
        except OSError as error:
            words = f'metrics_port {port} at {address} cannot be used: {error.strerror or error}'
            raise FdrlError(words) from error

        def close() -> None:
            with suppress(OSError):
                server.shutdown()
                server.server_close()
                thread.join()

        return close
