# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl security`: enclaves, certificates and permissions of DDS Security, out of the roster."""

from dataclasses import asdict
import importlib
from pathlib import Path
from typing import Any

import click
from fdrl_ros.cli.federation.key_listing import find_keys
from fdrl_ros.cli.federation.passphrase import passphrase_option, read_passphrase
from fdrl_ros.cli.options import settings_options
from fdrl_ros.cli.output import counted, fail_if
from fdrl_ros.crypto.dds.certificates import certificate_fingerprint, read_certificate
from fdrl_ros.deployment.bringup import BringupSettings, middleware
from fdrl_ros.deployment.security import rules
from fdrl_ros.deployment.security.enclaves import (
    AUTHORITY_CERTIFICATES,
    Keystore,
    KeystoreSettings,
    make_keystore,
    restore_party,
    revoke_party,
    rotate_all,
    update_keystore,
)
from fdrl_ros.deployment.security.inspection import keystore_faults
from fdrl_ros.errors import FdrlError
from fdrl_ros.experiments.ros_federation import missing_ros
from fdrl_ros.runtime.environment_variables import with_variables

PATIENCE = 10.0
"""Longest search for nodes of a domain, second."""


@click.group()
def security() -> None:
    """
    Make, change and check the keystore of DDS Security.

    SROS2 reads it. DIRECTORY is that of the keys, of a federation, or of a run; the keystore lies
    in its folder keys/dds-security. Enclaves are made where the root's key is; `fdrl export`
    carries those of a host's parties there.
    """


_directory = click.argument(
    'directory',
    type=click.Path(file_okay=False, path_type=Path),
    callback=lambda ctx, parameter, path: find_keys(path),
)


@security.command()
@_directory
@settings_options(
    KeystoreSettings,
    {
        'robots': '--robots',
        'namespace': '--namespace',
        'remapped': '--remap',
        'federation_domain': '--federation-domain',
        'robot_domain': '--robot-domain',
        'valid_days': '--valid-days',
    },
)
@passphrase_option
def init(directory: Path, passphrase_file: Path | None, **chosen: Any) -> None:
    """Make two authorities, and an enclave for every node of the roster's parties and robots."""
    passphrase = read_passphrase(passphrase_file, directory)
    made = make_keystore(directory, KeystoreSettings(**chosen), passphrase)
    how = 'encrypted' if passphrase else 'in clear'
    click.echo(f'made {counted(len(made), "enclave")} in {Keystore(directory).folder}')
    click.echo(f'the keys of the authorities lie beside that of the root, {how}')
    _show_authorities(directory)


@security.command()
@_directory
@click.option('--robots', help='Robots from now on, as for `init`; unchanged unless given.')
@click.option('--remap', 'remapped', help='Remapped names from now on, likewise.')
@passphrase_option
def update(directory: Path, passphrase_file: Path | None, **chosen: str | None) -> None:
    """
    Bring the enclaves to the roster and the graph, and sign all permissions anew.

    Run it after `fdrl keys` changed the roster, and after an upgrade: who is no longer in the
    roster is revoked, and who has a new signing key, or is new, gets new enclaves.
    """

    def change(settings: KeystoreSettings) -> KeystoreSettings:
        given = {name: value for name, value in chosen.items() if value is not None}
        return KeystoreSettings.from_mapping({**asdict(settings), **given})

    made = update_keystore(directory, read_passphrase(passphrase_file, directory), change=change)
    _tell(directory, made)


@security.command()
@_directory
@click.argument('party', required=False)
@passphrase_option
def rotate(directory: Path, party: str | None, passphrase_file: Path | None) -> None:
    """
    Give PARTY new keys and revoke its old ones; without PARTY, all parties and both authorities.

    A party that `revoke` took out stays out.
    """
    passphrase = read_passphrase(passphrase_file, directory)
    if party is None:
        made = rotate_all(directory, passphrase)
    else:
        made = update_keystore(directory, passphrase, rotate=party)
    _tell(directory, made)


@security.command()
@_directory
@click.argument('party')
@passphrase_option
def revoke(directory: Path, party: str, passphrase_file: Path | None) -> None:
    """
    Revoke the enclaves of PARTY: a robot, or a hospital that withdrew.

    `update` revokes who is no longer in the roster by itself.
    """
    revoke_party(directory, party, read_passphrase(passphrase_file, directory))
    click.echo(f'{party} is revoked')
    _tell(directory, ())


@security.command()
@_directory
@click.argument('party')
@passphrase_option
def restore(directory: Path, party: str, passphrase_file: Path | None) -> None:
    """Take back `revoke` of PARTY, a member of the roster: it gets new keys."""
    made = restore_party(directory, party, read_passphrase(passphrase_file, directory))
    _tell(directory, made)


@security.command()
@_directory
@click.option('--live', is_flag=True, help='Compare the running nodes with their policies too.')
def check(directory: Path, live: bool) -> None:
    """
    Check the enclaves that are here: chain, dates, signatures, roster, modes, permissions.

    Each fault is a line, and the exit code is 1 then. It asks for no secret.
    """
    problems = keystore_faults(directory)
    if live:
        problems += _live_faults(directory)
    fail_if(problems)
    here = len(Keystore(directory).present)
    click.echo(f'{counted(here, "enclave")}: all as roster and graph want')


def _live_faults(directory: Path) -> list[str]:
    """Look at both domains; wait for nodes that are being discovered."""
    if missing := missing_ros():
        raise FdrlError(f'ROS 2 is not here: {missing}')
    look = importlib.import_module('fdrl_ros.nodes.common.live_graph').live_graph
    store = Keystore(directory)
    settings = store.settings()
    specs = settings.graph(store.roster())
    places, found = settings.places(store.roster()), []
    with with_variables(middleware(BringupSettings())):
        for domain, number in settings.numbers.items():

            def compared(live: Any, domain: Any = domain) -> list[str]:
                return rules.live_faults(specs, places, domain, live)

            found += compared(look(number, lambda live: not compared(live), PATIENCE))
    return found


def _show_authorities(directory: Path) -> None:
    """Print what people compare when a host gets its enclaves."""
    for name in AUTHORITY_CERTIFICATES:
        certificate = read_certificate(Keystore(directory).public(name))
        click.echo(f'{name}: sha256 {certificate_fingerprint(certificate)}')


def _tell(directory: Path, made: tuple[str, ...]) -> None:
    if made:
        click.echo(f'new keys: {", ".join(made)}')
    _show_authorities(directory)
    click.echo(
        'Carry the enclaves to all hosts (`fdrl export`, or the folder dds-security/enclaves of '
        'each), and start their nodes again.'
    )
