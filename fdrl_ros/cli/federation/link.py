# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl link`: parties that only dial out, to a router, over Eclipse Zenoh and mutual TLS."""

from collections.abc import Iterable, Iterator
from datetime import datetime, UTC
from pathlib import Path
import re
import sys
import time

import click
from fdrl_ros.cli.federation.directory import follow, LOOK
from fdrl_ros.cli.federation.key_listing import warn
from fdrl_ros.cli.federation.passphrase import passphrase_option, read_passphrase
from fdrl_ros.cli.group import stopping
from fdrl_ros.crypto.dds.certificates import certificate_fingerprint, read_certificate
from fdrl_ros.deployment.bringup import BringupSettings, NodeSpec
from fdrl_ros.deployment.hosts import parties_here
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.link.credentials import LinkFiles, make_links, ROUTER
from fdrl_ros.deployment.link.transport import open_router, place_of, PORT
from fdrl_ros.deployment.prepare import check_keys, few
from fdrl_ros.deployment.runner import Runner
from fdrl_ros.errors import FdrlError, KeyFileError, SettingError
from fdrl_ros.runtime.durable import exclusive


class LogLines:
    """Lines that are written into log files from now on: `[LEVEL] [time] [name]: text`."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Begin at the present ends of the files."""
        self._ends = {path: path.stat().st_size if path.exists() else 0 for path in paths}

    def __call__(self) -> Iterator[str]:
        """Yield the new lines, without their time."""
        for path, end in self._ends.items():
            if not path.exists():
                continue
            with path.open('rb') as file:
                file.seek(end)
                whole, _, _ = file.read().rpartition(b'\n')
            self._ends[path] = end + len(whole) + (1 if whole else 0)
            for line in whole.decode('utf-8', 'replace').splitlines():
                if found := _LOG_LINE.fullmatch(line):
                    level, name, text = found.groups()
                    yield f'{name}: {text}' if level == 'INFO' else f'{level}: {name}: {text}'


_LOG_LINE = re.compile(r'\[(\w+)\] \[[\d.]+\] \[([^\]]*)\]: (.*)')


@click.group()
def link() -> None:
    """
    Join hospitals that open no port, by a router (Zenoh).

    Each party dials out to the router, and to nobody else, by mutual TLS with certificates made
    from the roster. The router lets a party publish under its own name alone, and carries what it
    cannot read. DIRECTORY is that of a federation.
    """


_directory = click.argument(
    'directory', type=click.Path(file_okay=False, exists=True, path_type=Path)
)


@link.command()
@_directory
@click.option(
    '--router',
    'routers',
    multiple=True,
    default=('127.0.0.1',),
    show_default=True,
    help='Name or address at which parties find the router; several times for several.',
)
@click.option('--valid-days', type=click.IntRange(1, 3650), default=365, show_default=True)
@passphrase_option
def init(
    directory: Path, routers: tuple[str, ...], valid_days: int, passphrase_file: Path | None
) -> None:
    """
    Make certificates for the router and all parties, where the root's key is.

    Run it again to renew them, and after the roster changed: who is not in it gets none. `fdrl
    export` carries them to the hosts, that of the router by `fdrl export DIRECTORY router`.
    """
    layout = Layout(directory)
    layout.check_keys_there()
    places = [_name_of(each) for each in routers]
    passphrase = read_passphrase(passphrase_file, layout.keys)
    names = make_links(layout, places, datetime.now(UTC), valid_days, passphrase)
    click.echo(f'made links for {few(names)}')
    authority = read_certificate(LinkFiles(layout.keys, ROUTER).authority.read_bytes())
    click.echo(f'authority: sha256 {certificate_fingerprint(authority)}')


def _name_of(value: str) -> str:
    """
    Return the name or address in what was given, which may have a port too.

    :raises SettingError: if it is none.
    """
    try:
        return place_of('router', value)[0].strip('[]')
    except SettingError as error:
        expected = 'the name or address of a host, such as router.example'
        raise SettingError('router', value, expected) from error


@link.command()
@_directory
@click.option(
    '--listen',
    default=f'tls/0.0.0.0:{PORT}',
    show_default=True,
    help='Address and TCP port of this host.',
)
def router(directory: Path, listen: str) -> None:
    """Carry what parties send each other, until Ctrl-C; it needs no key of a party."""
    layout = Layout(directory)
    roster, files = layout.roster(), LinkFiles(layout.keys, ROUTER)
    with stopping() as stopped, open_router(files, roster, listen):
        click.echo(f'the router of {roster.federation} listens at {listen}')
        while not stopped():
            time.sleep(LOOK)


@link.command()
@_directory
@click.option('--router', required=True, help='Where the router is: tls/HOST:PORT.')
def join(directory: Path, router: str) -> None:
    """
    Run the parties whose keys lie in a directory, over their links.

    What they log is shown: rounds, what they refuse, why there is no link. They run until Ctrl-C,
    also when the rounds are done; who dies is started again, and who cannot begin ends them all.
    ROS 2 is not needed.
    """
    place_of('router', router)
    layout = Layout(directory)
    check_keys(layout)
    names = parties_here(layout)
    if not names:
        raise KeyFileError(
            f'{layout.keys} holds no private key of a server or hospital of the roster: '
            '`fdrl export` makes the directory of one'
        )
    if {'aggregator', 'key_authority'} <= {*names}:
        warn(
            f'{layout.keys} holds the keys of both servers: if somebody takes this host, masks '
            'alone hide single updates; `fdrl export` makes a directory for each server'
        )
    for name in names:
        LinkFiles(layout.keys, name).check(datetime.now(UTC))
    settings = BringupSettings(directory=str(directory))

    def words(spec: NodeSpec) -> list[str]:
        module = 'fdrl_ros.deployment.link'
        return [sys.executable, '-P', '-m', module, str(directory), spec.name, router]

    with (
        exclusive(layout.log),  # the logs of parties that run are shown to those who started them
        stopping() as stopped,
        Runner(settings, layout.log, words=words) as runner,
    ):
        specs = [NodeSpec(name, '/link', name, 0) for name in names]
        lines = LogLines(runner.log_file(spec.label) for spec in specs)
        runner.start(specs)
        click.echo(f'{", ".join(names)}: started; the logs are in {layout.log}')
        follow(runner, stopped, lines)
        if not stopped():
            raise FdrlError(f'every party has ended; the logs are in {layout.log}')
