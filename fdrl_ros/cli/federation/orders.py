# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl operator`: signed orders to the servers of a federation, over ROS 2 or over links."""

from collections.abc import Callable
from functools import partial
import importlib
from pathlib import Path
import time
from typing import Any

import click
from click.core import ParameterSource
from fdrl_ros.cli.federation.key_listing import find_keys
from fdrl_ros.cli.federation.passphrase import passphrase_option, read_passphrase
from fdrl_ros.cli.options import settings_options
from fdrl_ros.crypto.keys import keystore
from fdrl_ros.crypto.keys.roster import remember_roster, Roster, ROSTER_MEMORY
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.crypto.keys.transaction import reading
from fdrl_ros.deployment.bringup import BringupSettings, middleware
from fdrl_ros.deployment.link.credentials import LinkFiles
from fdrl_ros.deployment.link.orders import deliver
from fdrl_ros.errors import KeyFileError, OrderError, RosterError
from fdrl_ros.experiments.ros_federation import missing_ros
from fdrl_ros.federation.protocol.orders import ADDRESSEES, sign_order
from fdrl_ros.runtime.environment_variables import with_variables


@click.group()
def operator() -> None:
    """
    Send running servers an order, signed by an operator.

    Aggregator and key authority take orders of the operators in the roster alone, write them into
    their journals and answer at once. An order counts for a minute: keep the clocks right.
    """


_ROS_FLAGS = {'federation_domain': '--domain', 'namespace': '--namespace', 'hosts': '--hosts'}
"""Settings that say how to reach the servers over ROS 2, and their flags."""

_FLAGS = (
    passphrase_option,
    click.option('--name', default='operator', show_default=True, help='Who orders it.'),
    settings_options(BringupSettings, _ROS_FLAGS),
    click.option(
        '--router',
        help='Where the router is, if the servers run over links: tls/HOST:PORT. ROS 2 is then '
        'not needed.',
    ),
    click.option(
        '--directory',
        type=click.Path(file_okay=False, path_type=Path),
        default=BringupSettings().directory,
        show_default=True,
        help='Of the keys, of a federation, or of a run.',
    ),
)

_HOSPITAL = click.argument('hospital')
_ROUND = click.argument('to_round', metavar='ROUND', type=click.IntRange(0, 10**9))

_ORDERS = (
    ('pause', (), 'Stop where the round is, and begin none; nothing that was trained is lost.'),
    ('resume', (), 'Go on with the round that was paused.'),
    ('stop', (), 'End the federation for good; the newest policy stays.'),
    (
        'admit',
        (_HOSPITAL,),
        'Let HOSPITAL of the roster take part again from the next attempt on.',
    ),
    ('withdraw', (_HOSPITAL,), 'Leave HOSPITAL out from the next attempt on.'),
    (
        'forgive',
        (_HOSPITAL,),
        'Let the key authority take updates of HOSPITAL again, which sent a malformed or too long '
        'one; it has to be admitted too.',
    ),
    (
        'roll_back',
        (_ROUND,),
        'End the present round with the policy of ROUND, signed anew; the newest 100 are kept. '
        'After the last round each hospital makes another home policy, and pays for it.',
    ),
)
"""Action, whom or which round it is about, and its help."""


def _send_order(
    action: str,
    directory: Path,
    name: str,
    passphrase_file: Path | None,
    router: str | None,
    federation_domain: int,
    namespace: str,
    hosts: str,
    **rest: Any,
) -> None:
    """
    Sign an order and bring it to its server.

    :param rest: whom or which round it is about.
    :raises FdrlError: if there is no key to sign it with, or the server did not take it.
    """
    settings = BringupSettings(namespace=namespace, hosts=hosts)
    source = click.get_current_context().get_parameter_source
    for parameter, flag in _ROS_FLAGS.items():
        if router and source(parameter) is not ParameterSource.DEFAULT:
            raise click.UsageError(f'{flag} is about ROS 2: leave it out beside --router')
    keys = find_keys(directory)
    identity, roster = operator_credentials(keys, name, passphrase_file)
    order = sign_order(identity, roster.federation, action, time.time(), **rest)
    if router:
        deliver(order, LinkFiles(keys, name), roster, router, partial(click.echo, err=True))
    else:
        if missing := missing_ros():
            raise OrderError(f'ROS 2 is not here: {missing} (over links: --router)')
        calls = importlib.import_module('fdrl_ros.nodes.parties.operator_calls')
        with with_variables(middleware(settings)):
            calls.deliver(order, federation_domain, namespace)
    about = ' '.join(map(str, rest.values()))
    click.echo(f'{ADDRESSEES[action]}: {action.replace("_", " ")} {about}'.rstrip())


for _action, _about, _help in _ORDERS:
    _command: Callable[..., None] = partial(_send_order, _action)
    for _add in (*_FLAGS, *_about):
        _command = _add(_command)
    operator.command(_action.replace('_', '-'), help=_help)(_command)


def operator_credentials(
    keys: Path, name: str, passphrase_file: Path | None
) -> tuple[Identity, Roster]:
    """
    Read an operator's key, and the roster, which must name it.

    :raises RosterError: if the roster is not valid, older than one used before, or does not.
    :raises KeyFileError: if the key is missing, damaged, or another than the roster's.
    """
    with reading(keys):
        roster = Roster.load(
            keys / keystore.ROSTER_FILE, keystore.load_root_public(keys / keystore.ROOT_FILE)
        )
        roster.check_time(time.time())
        member, path = roster.member(name), keys / name / keystore.KEY_FILE
        if member.role != 'operator':
            raise RosterError(f'{name} is no operator in roster {roster.serial}: {member.role}')
        if not path.exists():
            raise KeyFileError(
                f'{path} is not there: orders are signed with the key of an operator; look for '
                f'--directory and --name, or make one (`fdrl keys make`, `fdrl keys rotate`)'
            )
        identity = keystore.load_identity(
            path, name, passphrase=read_passphrase(passphrase_file, keys)
        )
        if identity.public != member.public:
            raise KeyFileError(f'roster {roster.serial} holds another key of {name} than {path}')
        remember_roster(keys / name / ROSTER_MEMORY, roster)
    return identity, roster
