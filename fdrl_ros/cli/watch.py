# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl watch`: a page of the operating room and the federation, for people."""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
import getpass
import importlib
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from fdrl_ros.cli.federation.key_listing import find_keys
from fdrl_ros.cli.federation.orders import operator_credentials
from fdrl_ros.cli.federation.passphrase import FILE, passphrase_option
from fdrl_ros.cli.group import stopping
from fdrl_ros.cli.options import settings_options
from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.deployment.bringup import BringupSettings, LAST_DOMAIN, middleware
from fdrl_ros.deployment.layout import Layout, ROBOTS
from fdrl_ros.deployment.live.running import free_page_port, PAGE_PORT, where_running
from fdrl_ros.deployment.namespaces import check_name
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import FdrlError, ResourceError, SettingError
from fdrl_ros.experiments.ros_federation import missing_ros
from fdrl_ros.page.records import records_beside, run_ended
from fdrl_ros.page.sessions import NAME_LENGTH, Person, Role
from fdrl_ros.resources import resource
from fdrl_ros.runtime.environment_variables import with_variables
from fdrl_ros.selector.candidates.policy_files import POLICIES

_DIRECTORY = Path('runs/latest')
_FOXGLOVE_PORT = 8766
LOOPBACK = '127.0.0.1'


def _people(command: Any) -> Any:
    """Add a flag for each role."""
    helps = {
        Role.VIEWER: 'Print a link for NAME, who may look; may be repeated, as the next two.',
        Role.SURGEON: 'The same for one who may act in operating rooms.',
        Role.OPERATOR: 'The same for one who may order the federation too.',
    }
    for role in reversed(Role):
        add = click.option(f'--{role}', str(role), multiple=True, metavar='NAME', help=helps[role])
        command = add(command)
    return command


_PLACE = settings_options(BringupSettings, {'hosts': '--hosts'})


@click.command()
@click.option(
    '--directory',
    type=click.Path(file_okay=False, path_type=Path),
    default=_DIRECTORY,
    show_default=True,
    help='Of a federation, or of a run. Its plan, roster and domains are read.',
)
@click.option('--robot', 'robots', multiple=True, help='Robot to show; else those of the run.')
@click.option('--host', default=LOOPBACK, show_default=True, help='Interface to serve on.')
@click.option(
    '--port',
    type=click.IntRange(0, 65535),
    default=PAGE_PORT,
    show_default=True,
    help='Port to serve on; 0 for a free one, which is taken too if the default is in use.',
)
@click.option('--tls-certificate', type=FILE, help='Certificate in PEM; its names are served.')
@click.option('--tls-key', type=FILE, help='Its private key.')
@_people
@click.option(
    '--link-minutes',
    type=click.IntRange(1, 24 * 60),
    default=10,
    show_default=True,
    help='How long a link is good, for one browser.',
)
@click.option(
    '--operator-key',
    metavar='NAME',
    help='Operator with whose key orders and hand-backs are signed; else none are offered.',
)
@passphrase_option
@click.option(
    '--federation-domain',
    type=click.IntRange(0, LAST_DOMAIN),
    help="DDS domain of the federation.  [default: the directory's]",
)
@click.option(
    '--domain',
    type=click.IntRange(0, LAST_DOMAIN),
    help="DDS domain of the robots.  [default: the directory's]",
)
@click.option('--namespace', help="In front of those of all nodes.  [default: the directory's]")
@click.option(
    '--records',
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help='Folder of runs and bags to replay.  [default: the folder of the run]',
)
@click.option(
    '--foxglove',
    is_flag=True,
    help='Serve all topics to Foxglove and Lichtblick too, on loopback; clients can only read.',
)
@click.option(
    '--foxglove-port',
    type=click.IntRange(0, 65535),
    default=_FOXGLOVE_PORT,
    show_default=True,
    help='Port of that; 0 for a free one.',
)
@click.option(
    '--record',
    type=click.Path(path_type=Path),
    help='With --foxglove: write all topics to this new folder, a bag (rosbag2, MCAP).',
)
@_PLACE
def watch(
    directory: Path,
    robots: tuple[str, ...],
    host: str,
    port: int,
    tls_certificate: Path | None,
    tls_key: Path | None,
    link_minutes: int,
    operator_key: str | None,
    passphrase_file: Path | None,
    federation_domain: int | None,
    domain: int | None,
    namespace: str | None,
    records: Path | None,
    foxglove: bool,
    foxglove_port: int,
    record: Path | None,
    hosts: str,
    **people: tuple[str, ...],
) -> None:
    """
    Serve a page of the operating room and the federation.

    It prints a link for each person, which lets one browser in, and serves until Ctrl-C. Other
    devices reach it by TLS, or through a tunnel: ssh -L 8765:localhost:8765 THIS_HOST. Whoever
    acts is written down in page_acts.jsonl of the directory. A browser is no emergency stop.

    With --foxglove, open a connection of the kind "Foxglove WebSocket" to the address that is
    printed, and import the layout. Any page that is open in a browser of this host can read that.
    """
    if record and not foxglove:
        raise SettingError('record', str(record), '--foxglove too; else `fdrl record --all`')
    if missing := missing_ros():
        raise FdrlError(f'ROS 2 is not here: {missing}')
    try:
        serving = importlib.import_module('fdrl_ros.page.serving')
        server = importlib.import_module('fdrl_ros.page.server')
    except ModuleNotFoundError as error:
        raise ResourceError(
            f'the page needs {error.name}: pip install "fdrl_ros[page]", or `make setup`'
        ) from error
    address = serving.Address(host, port, tls_certificate, tls_key)
    names = address.names()
    address.context()
    layout, roster, plan = _federation(directory, robots)
    given = {
        'federation_domain': federation_domain,
        'robot_domain': domain,
        'namespace': namespace,
    }
    settings = BringupSettings.from_mapping(
        {
            'hosts': hosts,
            **(where_running(layout) if layout else {}),
            **{name: value for name, value in given.items() if value is not None},
        }
    )
    shown = _robots(layout, roster, plan, robots)
    signer = None
    if operator_key is not None:
        identity, its_roster = operator_credentials(
            find_keys(directory), operator_key, passphrase_file
        )
        signer = identity, its_roster.federation
    invited = _invited(people)
    with ExitStack() as opened, with_variables(middleware(settings)):
        stopped = opened.enter_context(stopping())
        if click.get_current_context().get_parameter_source('port') is ParameterSource.DEFAULT:
            address = replace(address, port=free_page_port())  # a run may serve its own page there
        taken = opened.enter_context(address.listen())
        if foxglove and foxglove_port and not free_page_port(foxglove_port):
            expected = 'a free port, such as 0 for any: Address already in use'
            raise SettingError('foxglove-port', foxglove_port, expected)
        port = taken.getsockname()[1]
        ended = partial(run_ended, directory.resolve())  # `latest` may be another run soon
        home = layout.directory if layout else directory if directory.is_dir() else Path()
        page = opened.enter_context(
            importlib.import_module('fdrl_ros.nodes.watch').Page(
                settings,
                shown,
                home,
                roster=roster,
                plan=plan,
                signer=signer,
                ended=ended,
                records=records or (records_beside(directory) if layout else None),
                lifetime=60.0 * link_minutes,
                place=server.Place(address.secure, names, f'fdrl_page_{port}'),
            )
        )
        if foxglove:  # before anybody is told a link: it may fail
            bridging = importlib.import_module('fdrl_ros.nodes.foxglove_bridge')
            domains = {settings.robot_domain, *([settings.federation_domain] if layout else [])}
            bridge = bridging.FoxgloveBridge(sorted(domains), foxglove_port, record)
        url = address.url(port)
        if ended():
            click.echo(f'The run in {directory} has ended; the page replays it, under Records.')
        click.echo(
            f'The page is at {url}. Each link lets one browser in, within {link_minutes} min:'
        )
        for person in invited:
            token = page.sessions.invite(person)
            click.echo(f'{person.name} ({person.role}): {url}/enter?token={token}')
        if foxglove:
            opened.enter_context(bridging.served(bridge, click.echo))
            click.echo(f'layout: {resource("config/foxglove_layout.json")}')
        serving.serve(page.app, address, taken, stopped)


def _federation(
    directory: Path, robots: tuple[str, ...]
) -> tuple[Layout | None, Roster | None, Plan | None]:
    """Read the federation of a directory; none where robots are named and it is not there."""
    if robots and directory == _DIRECTORY and not directory.exists():
        return None, None, None
    layout = Layout.find_whole(directory)
    return layout, layout.roster(), Plan.read(layout.plan) if layout.plan.exists() else None


def _robots(
    layout: Layout | None, roster: Roster | None, plan: Plan | None, named: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the robots that are shown: those that were named, or those of the directory."""
    for name in named:
        check_name('robot', name)
    if named or layout is None or roster is None:
        return tuple(dict.fromkeys(named))
    if plan is not None and not plan.task.robot:
        return ()
    others = {*(each.name for each in roster.members), *layout.others}
    found = sorted(
        each.name
        for each in layout.directory.iterdir()
        if each.name not in others and (each / POLICIES).exists()
    )
    return tuple(dict.fromkeys((*ROBOTS, *found)))


def _invited(people: dict[str, tuple[str, ...]]) -> list[Person]:
    """Return who gets a link: those who were named, or who started this."""
    found = [Person(name, Role(role)) for role in Role for name in people[role]]
    for each in found:
        if not each.name.isprintable() or not 1 <= len(each.name) <= NAME_LENGTH:
            expected = f'a name of at most {NAME_LENGTH} letters'
            raise SettingError(each.role, each.name, expected)
    return found or [Person(getpass.getuser(), Role.OPERATOR)]
