# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Brings orders to their nodes, and back what those say: an operator's, and a surgeon's."""

from fdrl_ros.deployment.namespaces import absolute, FEDERATION
from fdrl_ros.errors import OrderError, SupervisionError
from fdrl_ros.federation.protocol.message import Order
from fdrl_ros.nodes.common.service_call import call, PATIENCE
from fdrl_ros.nodes.parties.conversion import to_ros
import fdrl_ros.srv as srv


def deliver(order: Order, domain: int, namespace: str) -> None:
    """
    Have a server take an order.

    :param domain: DDS domain of the federation.
    :param namespace: in front of that of its servers.
    :raises OrderError: if the server is not there, does not answer, or refuses.
    """
    name = absolute(namespace, FEDERATION, order.to, 'order')
    answer = call(srv.Order, name, to_ros(order, srv.Order.Request()), domain)
    if answer is None:
        raise OrderError(
            f'{name} did not answer within {PATIENCE:g} s: look in its log or journal whether it '
            f'took {order.action}'
        )
    if not answer.received:
        raise OrderError(f'the {order.to} refused: {answer.reason}')


def supervise(
    robot: str, domain: int, command: str, name: str, signed: Order | None = None
) -> str:
    """
    Say a surgeon's word to a robot's selector.

    :param robot: its namespace, absolute.
    :param domain: DDS domain of the robots.
    :param signed: the order of an operator, which a hand-back needs.
    :returns: what holds now, in words.
    :raises OrderError: if the selector is not there, or does not answer.
    :raises SupervisionError: if it refuses.
    """
    service = f'{robot}/selector/supervise'
    request = srv.Supervise.Request(command=command, name=name)
    if signed is not None:
        to_ros(signed.envelope, request.envelope)
    return _said(service, call(srv.Supervise, service, request, domain))


def pin(robot: str, domain: int, name: str, version: str) -> str:
    """
    Pin a policy of a robot, or unpin it.

    :param robot: its namespace, absolute.
    :param version: as `PinPolicy.srv` has it.
    :raises OrderError: as :func:`supervise`.
    :raises SupervisionError: if it refuses.
    """
    service = f'{robot}/selector/pin_policy'
    request = srv.PinPolicy.Request(name=name, version=version)
    return _said(service, call(srv.PinPolicy, service, request, domain))


def _said(service: str, answer: srv.Supervise.Response | srv.PinPolicy.Response | None) -> str:
    if answer is None:
        raise OrderError(f'{service} did not answer within {PATIENCE:g} s')
    if not answer.success:
        raise SupervisionError(str(answer.message))
    return str(answer.message)
