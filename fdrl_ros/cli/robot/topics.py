# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl topic` and `fdrl node`: look at topics and nodes where there is no `ros2`."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
import importlib
from typing import Any

import click
from fdrl_ros.cli.options import domain_options
from fdrl_ros.deployment.bringup import BringupSettings, middleware
from fdrl_ros.errors import FdrlError, TopicError
from fdrl_ros.experiments.ros_federation import missing_ros
from fdrl_ros.runtime.environment_variables import with_variables

LONGEST = 128
"""Elements of a sequence and letters of a text that are printed, as `ros2 topic echo` does."""


@contextmanager
def _ros(module: str, hosts: str) -> Iterator[Any]:
    """Give a module of ours that needs ROS, with the middleware set up."""
    if missing := missing_ros():
        raise FdrlError(f'ROS 2 is not here: {missing}')
    with with_variables(middleware(BringupSettings(hosts=hosts))):
        yield importlib.import_module(f'fdrl_ros.nodes.topics.{module}')


@click.group()
def topic() -> None:
    """
    List, print and time topics, as `ros2 topic` does.

    Read-only: nothing is published. Hidden topics are left out.
    """


@topic.command('list')
@click.option('-t', '--show-types', is_flag=True, help='Print the type beside each topic.')
@click.option('-c', '--count-topics', is_flag=True, help='Print how many there are.')
@domain_options
def list_topics(show_types: bool, count_topics: bool, domain: int, hosts: str) -> None:
    """List the topics of a DDS domain."""
    with _ros('topic_queries', hosts) as queries:
        found = queries.topics(domain)
    if count_topics:
        click.echo(len(found))
        return
    for name, kinds in found:
        click.echo(f'{name} [{", ".join(kinds)}]' if show_types else name)


@topic.command()
@click.argument('topic')
@click.option('--once', is_flag=True, help='Print one message and end.')
@click.option('--field', help='Print this field alone, such as pose.position.')
@click.option('--csv', is_flag=True, help='Print all fields in one line, with commas.')
@click.option('-f', '--full-length', is_flag=True, help='Cut no sequence and no text.')
@click.option(
    '-l',
    '--truncate-length',
    default=LONGEST,
    show_default=True,
    type=click.IntRange(0),
    help='Elements of a sequence, or letters of a text, that are printed.',
)
@domain_options
def echo(
    topic: str,
    once: bool,
    field: str | None,
    csv: bool,
    full_length: bool,
    truncate_length: int,
    domain: int,
    hosts: str,
) -> None:
    """Print the messages of TOPIC until Ctrl-C, latched ones too."""
    longest = None if full_length else truncate_length
    with (
        _ros('topic_queries', hosts) as queries,
        _ros('message_text', hosts) as text,
        closing(queries.echo(domain, topic)) as messages,
    ):
        for message in messages:
            if field:
                try:
                    message = text.field_of(message, field)
                except AttributeError as error:
                    raise TopicError(f'no field {field} in {topic}: {error}') from error
            if not hasattr(message, 'get_fields_and_field_types'):
                click.echo(f'{message}\n---')
            elif csv:
                click.echo(text.as_csv(message, longest))
            else:
                click.echo(f'{text.as_yaml(message, longest)}---')
            if once:
                return


@topic.command()
@click.argument('topic')
@click.option(
    '-w',
    '--window',
    default=10000,
    show_default=True,
    type=click.IntRange(1),
    help='Newest messages that count.',
)
@domain_options
def hz(topic: str, window: int, domain: int, hosts: str) -> None:
    """Print how often messages of TOPIC come, once a second until Ctrl-C."""
    with (
        _ros('topic_queries', hosts) as queries,
        closing(queries.rates(domain, topic, window)) as rates,
    ):
        for rate in rates:
            click.echo(rate or 'no new messages')


@click.group()
def node() -> None:
    """List the nodes of a DDS domain, as `ros2 node` does."""


@node.command('list')
@click.option('-c', '--count-nodes', is_flag=True, help='Print how many there are.')
@domain_options
def list_nodes(count_nodes: bool, domain: int, hosts: str) -> None:
    """List the nodes of a DDS domain."""
    with _ros('topic_queries', hosts) as queries:
        found = queries.nodes(domain)
    if len(set(found)) < len(found):
        click.echo('fdrl: several nodes have the same name', err=True)
    click.echo(len(found) if count_nodes else '\n'.join(found))
