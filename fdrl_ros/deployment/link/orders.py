# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Brings an operator's order to a server over its link, and back what the server says."""

from collections.abc import Callable
from contextlib import closing, suppress
from queue import Empty, SimpleQueue
import time
from typing import Any, Final

from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.deployment.link.credentials import LinkFiles
from fdrl_ros.deployment.link.linked import Linked
from fdrl_ros.deployment.link.party_link import Taken
from fdrl_ros.deployment.link.transport import open_client
from fdrl_ros.errors import OrderError, TrainingStopped
from fdrl_ros.federation.protocol.message import Order

PATIENCE: Final = 20.0
"""Longest wait for the router, and then for the server's answer, second."""

AGAIN: Final = 0.5
"""Time after which an order that was not answered is sent again, second."""


def deliver(
    order: Order,
    files: LinkFiles,
    roster: Roster,
    router: str,
    say: Callable[[str], object] = lambda words: None,
) -> None:
    """
    Have a server take an order.

    The server's answer is sealed, and the router lets nobody else give it; it is not signed.

    :param files: of the operator who signed the order.
    :param router: `tls/HOST:PORT`.
    :param say: told at once why there is no way to the router yet, each reason once.
    :raises OrderError: if there is no way to the server, or it does not answer, or refuses.
    :raises SecurityError: if the operator's certificate cannot be used.
    """
    end, troubles = time.monotonic() + PATIENCE, ['']
    queue: SimpleQueue[Any] = SimpleQueue()
    answers: list[Taken] = []

    def hear(server: str, answer: Taken) -> None:
        if (server, answer.counter) == (order.to, order.envelope.counter):
            answers.append(answer)

    def told(trouble: str) -> None:
        troubles.append(trouble)
        say(f'{trouble}; it is tried for {PATIENCE:g} s')

    try:
        session = open_client(files, router, lambda: time.monotonic() > end, told)
    except TrainingStopped as error:
        raise OrderError(f'there is no way to the {order.to}: {troubles[-1]}') from error
    with closing(session):
        link = Linked(
            files,
            roster,
            {},
            session,
            post=queue.put,
            take=lambda message: None,
            refuse=lambda error: None,
            say=lambda words: None,
            hear=hear,
        )
        end = time.monotonic() + PATIENCE
        while not answers:
            if time.monotonic() > end:
                raise OrderError(
                    f'the {order.to} did not answer within {PATIENCE:g} s: it is not linked, or '
                    f'look in its log or journal whether it took {order.action}'
                )
            link.send(order)  # what the router loses, and answers too, are sent again
            with suppress(Empty):
                queue.get(timeout=AGAIN)()
    if answers[0].refusal:
        raise OrderError(f'the {order.to} refused: {answers[0].refusal}')
