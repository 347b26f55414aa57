# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The node graph as data: which nodes run where and with what.

The launch files and the plain runner both start what these functions return; no other list of
nodes exists.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
import random
import socket

from fdrl_ros.errors import SettingError
from fdrl_ros.settings import setting, Settings

Value = bool | int | float | str

FEDERATION = '/federation'
"""Namespace of the servers and of the federation's topics."""

LAST_DOMAIN = 101
"""The highest domain whose ports lie below those that Linux gives to outgoing connections."""


@dataclass(frozen=True)
class NodeSpec:
    """
    One node in one process.

    :param executable: in the package, and name of its module below fdrl_ros.nodes.
    :param namespace: absolute.
    :param name: of the node.
    :param parameters: what differs from the node's defaults.
    :param domain: DDS domain.
    """

    executable: str
    namespace: str
    name: str
    domain: int
    parameters: Mapping[str, Value] = field(default_factory=dict)
    remappings: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """Name for people and for the log file."""
        return f'{self.namespace.strip("/")}.{self.name}'


@dataclass(frozen=True)
class BringupSettings(Settings):
    """Where a federation runs; what it does is in the plan of its directory."""

    directory: str = setting('runs/federation', "the federation's directory")
    federation_domain: int = setting(
        50, 'DDS domain of the federation', minimum=0, maximum=LAST_DOMAIN
    )
    robot_domain: int = setting(51, 'DDS domain of the robots', minimum=0, maximum=LAST_DOMAIN)
    hosts: str = setting(
        'one', 'whether all nodes run on this host or on several', choices=('one', 'several')
    )
    autostart: bool = setting(True, 'whether the nodes configure and activate themselves')

    def __post_init__(self) -> None:
        """Keep the robots' traffic apart from the federation's."""
        super().__post_init__()
        if self.federation_domain == self.robot_domain:
            raise SettingError(
                'robot_domain', self.robot_domain, "another domain than the federation's"
            )


def server_graph(settings: BringupSettings) -> tuple[NodeSpec, ...]:
    """Return the nodes of the servers: one aggregator, one key authority."""
    return tuple(
        NodeSpec(name, FEDERATION, name, settings.federation_domain, _common(settings))
        for name in ('key_authority', 'aggregator')
    )


def hospital_graph(settings: BringupSettings, hospital: str) -> tuple[NodeSpec, ...]:
    """Return the nodes of one hospital: its trainer, which hands policies on to the robots."""
    parameters = {**_common(settings), 'robot_domain': settings.robot_domain}
    return (
        NodeSpec('trainer', f'/{hospital}', 'trainer', settings.federation_domain, parameters),
    )


def robot_graph(
    settings: BringupSettings, robot: str, operations: int = 0
) -> tuple[NodeSpec, ...]:
    """
    Return the nodes of one operating room; its arm is simulated, so the selector is armed.

    :param operations: simulated patients that are operated on by itself, one after the other;
        -1 for no end.
    """
    common = _common(settings)
    return (
        NodeSpec(
            'env', f'/{robot}', 'env', settings.robot_domain, {**common, 'operations': operations}
        ),
        NodeSpec(
            'selector',
            f'/{robot}',
            'selector',
            settings.robot_domain,
            {**common, 'armed': True},
        ),
    )


def federation_graph(
    settings: BringupSettings, hospitals: tuple[str, ...], robots: tuple[str, ...] = ()
) -> tuple[NodeSpec, ...]:
    """Return all nodes of a federation on one host."""
    return (
        *server_graph(settings),
        *(spec for each in hospitals for spec in hospital_graph(settings, each)),
        *(spec for each in robots for spec in robot_graph(settings, each)),
    )


def environment(settings: BringupSettings, domain: int) -> dict[str, str]:
    """
    Return the variables that every node runs with.

    On one host nothing leaves it. On several, large messages go by TCP and shared memory, which
    the restriction to one host would switch off.
    """
    variables = {
        'ROS_DOMAIN_ID': str(domain),
        'OMP_NUM_THREADS': '1',
        'OPENBLAS_NUM_THREADS': '1',
        'MKL_NUM_THREADS': '1',
        'PYTHONUNBUFFERED': '1',
    }
    if settings.hosts == 'one':
        return variables | {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST'}
    return variables | {
        'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET',
        'FASTDDS_BUILTIN_TRANSPORTS': 'LARGE_DATA',
    }


def free_domains(count: int) -> list[int]:
    """
    Find DDS domains that nobody on this host uses, so that two runs do not meet.

    :raises SettingError: if there are not so many.
    """
    found = [each for each in range(1, LAST_DOMAIN + 1) if _is_free(each)]
    if len(found) < count:
        raise SettingError(
            'domains', count, f'as many free DDS domains; {len(found)} are, end other ROS nodes'
        )
    # Two runs that start together look at the same moment: chance keeps them apart.
    return random.SystemRandom().sample(found, count)


def _is_free(domain: int) -> bool:
    """Tell whether the port of the domain's first participant on this host can be bound."""
    port = 7400 + 250 * domain + 10
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(('', port))
        except OSError:
            return False
    return True


def _common(settings: BringupSettings) -> dict[str, Value]:
    return {
        'directory': settings.directory,
        'autostart': settings.autostart,
        'federation': FEDERATION,
    }
