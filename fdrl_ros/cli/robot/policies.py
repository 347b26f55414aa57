# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl policies`: policies that a robot may choose from, and the surgeon's supervision."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime, UTC
from functools import partial, reduce
import importlib
from pathlib import Path
import time
from typing import Any, TypeVar

import click
from fdrl_ros.cli.federation.key_listing import find_keys
from fdrl_ros.cli.federation.orders import operator_credentials
from fdrl_ros.cli.federation.passphrase import passphrase_option
from fdrl_ros.cli.options import json_option, live_options
from fdrl_ros.cli.output import console, echo_json
from fdrl_ros.cli.robot.export_policy import export_policy
from fdrl_ros.deployment.bringup import BringupSettings, middleware
from fdrl_ros.deployment.layout import ROBOTS
from fdrl_ros.deployment.namespaces import absolute
from fdrl_ros.deployment.robot.robot_policies import RobotPolicies
from fdrl_ros.errors import OrderError, SupervisionError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.text_table import make_table
from fdrl_ros.experiments.ros_federation import missing_ros
from fdrl_ros.federation.protocol.message import Order
from fdrl_ros.federation.protocol.orders import sign_hand_back
from fdrl_ros.runtime.environment_variables import with_variables
from fdrl_ros.selector.candidates.registry import Status, Version
from fdrl_ros.selector.candidates.supervision import Command, NAMED
from fdrl_ros.settings import named_among
from rich.table import Table

Callback = TypeVar('Callback', bound=Callable[..., None])


@click.group()
def policies() -> None:
    """
    Show, pin, lock, veto and export the policies of a robot.

    They are read from its directory. What is ordered goes to its selector where that runs, by
    service, and counts from the next cycle on; else it is written down for when it begins.
    """


policies.add_command(export_policy)

_OPTIONS = (
    click.option(
        '--directory',
        type=click.Path(file_okay=False, path_type=Path),
        default='runs/latest',
        show_default=True,
        help='Of a federation, or of a run; `fdrl run` makes the default.',
    ),
    click.option('--robot', default=ROBOTS[0], show_default=True, help='Which robot.'),
)


def _with(*options: Callable[[Callback], Callback]) -> Callable[[Callback], Callback]:
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


@policies.command('list')
@_with(*_OPTIONS, json_option)
def show_all(directory: Path, robot: str, as_json: bool) -> None:
    """List all versions, and what has become of them."""
    found = RobotPolicies.of(directory, robot)
    found.check_any()
    running = found.running
    if as_json:
        echo_json(_document(found))
        return
    table = make_table(
        '' if running else f'{robot} does not run: this is what it last wrote',
        ('policy', 'owner', 'round', 'digest', 'came (UTC)', 'status', 'return', 'by force'),
        (
            (
                each.name,
                each.owner,
                each.round,
                each.digest[:12],
                _arrival(each),
                _status(found, each, running),
                f'{each.report.mean_return:.2f}' if each.report else '',
                f'{each.report.force_failures:.1%}' if each.report else '',
            )
            for each in found.registry.versions
        ),
    )
    out = console()
    out.print(table)
    for each in found.registry.versions:
        if each.refusal:
            out.print(f'{each.name} of round {each.round}: {each.refusal}', soft_wrap=True)
    for problem in found.problems:
        out.print(problem, style='yellow', soft_wrap=True)
    words = found.supervision.in_words()
    out.print(words if running else f'when {robot} runs: {words}', soft_wrap=True)


@policies.command()
@click.argument('name')
@_with(*_OPTIONS, json_option)
def show(name: str, directory: Path, robot: str, as_json: bool) -> None:
    """Show all that is known of the versions of policy NAME."""
    found = RobotPolicies.of(directory, robot)
    versions = [each for each in _document(found)['policies'] if each['name'] == name]
    if not versions:
        found.check_any()
        known = named_among(name, 'policies', sorted({x.name for x in found.registry.versions}))
        raise SupervisionError(f'{robot} has no policy {name!r}: expected {known}')
    if as_json:
        echo_json(versions)
        return
    table = Table(show_header=False)
    for each in versions:
        safety = each.pop('safety', {})
        for key, value in (each | {f'safety: {key}': x for key, x in safety.items()}).items():
            table.add_row(key, _as_text(value))
        table.add_section()
    console().print(table)


@policies.command()
@click.argument('name')
@click.argument('version', metavar='ROUND|DIGEST')
@_with(*_OPTIONS, live_options)
def pin(name: str, version: str, directory: Path, robot: str, **place: Any) -> None:
    """Have one version stand for NAME, whatever comes."""
    _order(directory, robot, place, 'pin', name, version)


@policies.command()
@click.argument('name')
@_with(*_OPTIONS, live_options)
def unpin(name: str, directory: Path, robot: str, **place: Any) -> None:
    """Have the newest version stand for NAME again."""
    _order(directory, robot, place, 'pin', name, '')


_ORDERS = {
    Command.VETO: 'Never choose NAME.',
    Command.ALLOW: 'Take a veto of NAME back.',
    Command.LOCK: (
        'Let NAME alone act, or `hold`; shield, faults and the surgeon come first all the same.'
    ),
    Command.UNLOCK: 'Let all policies act again.',
    Command.TAKE_OVER: 'Leave the arm to the surgeon.',
    Command.HAND_BACK: 'Give the arm back to the selector.',
}
"""Orders of the surgeon, and their help."""


def _supervise(
    command: Command, directory: Path, robot: str, name: str = '', **place: Any
) -> None:
    """Order something of the selector of a robot, now or for its start."""
    _order(directory, robot, place, 'supervise', command, name)


def _hand_back(
    directory: Path,
    robot: str,
    operator: str,
    passphrase_file: Path | None,
    **place: Any,
) -> None:
    """Hand the arm back: a selector that runs wants an operator's signature on that."""

    def sign() -> Order:
        identity, roster = operator_credentials(find_keys(directory), operator, passphrase_file)
        return sign_hand_back(identity, roster.federation, robot, time.time())

    _order(directory, robot, place, 'supervise', Command.HAND_BACK, '', sign=sign)


_SIGNED = (
    click.option('--operator', default='operator', show_default=True, help='Who signs it.'),
    passphrase_option,
)

for _command, _help in _ORDERS.items():
    _named = [click.argument('name')] if _command in NAMED else []
    _signed = _SIGNED if _command is Command.HAND_BACK else ()
    _obey = _hand_back if _signed else partial(_supervise, _command)
    policies.command(_command.replace('_', '-'), help=_help)(
        _with(*_named, *_OPTIONS, live_options, *_signed)(_obey)
    )


def _order(
    directory: Path,
    robot: str,
    place: Mapping[str, Any],
    function: str,
    *words: str,
    sign: Callable[[], Order] | None = None,
) -> None:
    """
    Order something of a selector: by a service where it runs, else in writing for its start.

    :param place: `domain` of the robots, `namespace` in front of theirs, and on how many `hosts`
        nodes run.
    :param function: of `nodes.parties.operator_calls`, and of :class:`RobotPolicies` likewise.
    :param sign: signs the order to a selector that runs.
    """
    found = RobotPolicies.of(directory, robot)
    if not found.running:
        told = getattr(found, function)(*words)
        click.echo(f'{robot} does not run: written down for its start: {told}')
        return
    if missing := missing_ros():
        raise OrderError(f'the selector runs, and ROS 2 is not here: {missing}')
    settings = BringupSettings(namespace=place['namespace'], hosts=place['hosts'])
    signed = () if sign is None else (sign(),)
    calls = importlib.import_module('fdrl_ros.nodes.parties.operator_calls')
    with with_variables(middleware(settings)):
        full_name = absolute(settings.namespace, robot)
        click.echo(getattr(calls, function)(full_name, place['domain'], *words, *signed))


def _status(found: RobotPolicies, version: Version, running: bool) -> str:
    """Tell what has become of a version; nobody values the policies of a robot at rest."""
    status = found.registry.status(version, found.supervision)
    return 'not valued yet' if status is Status.VALUING and not running else str(status)


def _arrival(version: Version) -> str:
    return datetime.fromtimestamp(version.came, UTC).strftime('%Y-%m-%d %H:%M:%S')


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def _document(found: RobotPolicies) -> Json:
    """Return all that is shown, for JSON."""
    supervision = found.supervision
    return {
        'driver': 'surgeon' if supervision.surgeon else 'selector',
        'locked': supervision.locked,
        'vetoed': sorted(supervision.vetoed),
        'running': found.running,
        'problems': found.problems,
        'policies': [
            {
                'name': each.name,
                'owner': each.owner,
                'sender': each.message.envelope.sender,
                'round': each.round,
                'digest': each.digest,
                'came': _arrival(each),
                'status': str(found.registry.status(each, supervision)),
                'reason': each.refusal,
                'pinned': supervision.pinned.get(each.name) == each.digest,
                'valued': each.digest in found.registry.values.models,
                **({'safety': asdict(each.report)} if each.report else {}),
            }
            for each in found.registry.versions
        ],
    }
