# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl keys`: keys and roster of a federation. No secret is ever printed."""

from pathlib import Path

import click
from fdrl_ros.crypto.keystore import load_root_public, make_federation, ROOT_FILE, ROSTER_FILE
from fdrl_ros.crypto.roster import Roster
from fdrl_ros.crypto.signing import fingerprint
from fdrl_ros.errors import SettingError

DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.group()
def keys() -> None:
    """Make and show the keys and the signed roster of a federation."""


@keys.command()
@click.argument('directory', type=DIRECTORY)
@click.option(
    '--hospital',
    'hospitals',
    multiple=True,
    metavar='NAME=PATIENTS',
    help='A hospital and the number of patients it declares; at least three times.',
)
@click.option('--federation', default='federation', show_default=True, help='Its name.')
@click.option(
    '--threshold', type=int, help='Hospitals that must agree; floor(2n / 3) + 1 unless given.'
)
@click.option(
    '--disjoint-patients',
    is_flag=True,
    help='No patient is in two hospitals: epsilons do not add.',
)
@click.option('--encrypt', is_flag=True, help='Ask for a passphrase that encrypts every key.')
def init(
    directory: Path,
    hospitals: tuple[str, ...],
    federation: str,
    threshold: int | None,
    disjoint_patients: bool,
    encrypt: bool,
) -> None:
    """
    Make all keys of a new federation below DIRECTORY.

    Each party's folder then goes to its host together with root.pub and roster.json; the folder
    of the root goes to a place that is not on the network.
    """
    sizes = dict(_declared(each) for each in hospitals)
    passphrase: str | None = None
    if encrypt:
        passphrase = click.prompt('Passphrase', hide_input=True, confirmation_prompt=True)
    roster = make_federation(
        directory,
        list(sizes),
        federation=federation,
        sizes=sizes,
        threshold=threshold,
        disjoint_patients=disjoint_patients,
        passphrase=passphrase,
    )
    click.echo(f'made the keys of {len(roster.members)} parties and the root in {directory}')
    _print(roster, load_root_public(directory / ROOT_FILE))


@keys.command()
@click.argument('directory', type=DIRECTORY)
def show(directory: Path) -> None:
    """Check the roster in DIRECTORY against root.pub and print fingerprints to compare."""
    if not (directory / ROOT_FILE).exists() and (directory / 'federation' / 'keys').is_dir():
        directory = directory / 'federation' / 'keys'  # that of a run
    root = load_root_public(directory / ROOT_FILE)
    _print(Roster.load(directory / ROSTER_FILE, root), root)


def _declared(text: str) -> tuple[str, int]:
    name, equals, size = text.partition('=')
    if not equals or not size.isdecimal():
        raise SettingError('hospital', text, 'NAME=PATIENTS, such as hospital_1=500')
    return name, int(size)


def _print(roster: Roster, root: bytes) -> None:
    click.echo(
        f'federation {roster.federation}: {roster.threshold} of {len(roster.hospitals)} hospitals '
        f'must agree, patients {"disjoint" if roster.disjoint_patients else "may be shared"}'
    )
    click.echo(f'roster sha256 {roster.digest}')
    click.echo(f'{"root":20} {"":14} {fingerprint(root)}')
    for member in roster.members:
        words = f'{member.size} patients' if member.size else ''
        click.echo(f'{member.name:20} {words:14} {fingerprint(member.public)}')
