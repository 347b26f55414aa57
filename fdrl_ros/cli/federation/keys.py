# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""`fdrl keys`: keys and roster of a federation. No secret is ever printed or typed in a line."""

from pathlib import Path
import time
from typing import Any

import click
from fdrl_ros.cli.federation.key_listing import (
    find_keys,
    keys_document,
    newest_round,
    noise_keys,
    show_keys,
    show_roster,
    warn_of_clear,
)
from fdrl_ros.cli.federation.passphrase import (
    ask_passphrase,
    FILE,
    passphrase_option,
    read_passphrase,
)
from fdrl_ros.cli.options import json_option
from fdrl_ros.cli.output import echo_json
from fdrl_ros.crypto.keys.keystore import (
    KEY_FILE,
    load_passphrase,
    make_federation,
    NewFederation,
    save_identity,
)
from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.crypto.keys.rotation import change_passphrase, RosterChanges, rotate_he
from fdrl_ros.crypto.keys.signing import fingerprint, Identity, PUBLIC_KEY_BYTES
from fdrl_ros.deployment.bringup import SECURITY_FOLDER
from fdrl_ros.errors import SettingError
from fdrl_ros.runtime.durable import make_private_directory

DAY = 86400


@click.group()
def keys() -> None:
    """
    Make, show and change the keys and the signed roster.

    DIRECTORY is that of the keys, of a federation, or of a run. Keys are encrypted under the
    passphrase in the file that --passphrase-file or the variable FDRL_PASSPHRASE_FILE names.
    Parties take a change when they start again.
    """


_new_directory = click.argument('directory', type=click.Path(file_okay=False, path_type=Path))
_directory = click.argument(
    'directory',
    type=click.Path(file_okay=False, path_type=Path),
    callback=lambda ctx, parameter, path: find_keys(path),
)
_threshold = click.option('--threshold', type=int, help='Hospitals that must agree from now on.')


_buckets = click.option(
    '--buckets',
    type=click.IntRange(min=0),
    help='Sums of a round from now on, of three hospitals at least each, which federation.buckets '
    'of the plan has to name too; 0 for one sum of all.',
)


def _root(directory: Path, passphrase_file: Path | None) -> RosterChanges:
    """Return what signs the next roster, with the root's key below a directory."""
    return RosterChanges(directory, read_passphrase(passphrase_file, directory))


@keys.command()
@_new_directory
@click.option(
    '--hospital',
    'hospitals',
    multiple=True,
    metavar='NAME=PATIENTS[:HEX]',
    help='A hospital and the number of patients it declares; at least three times. HEX is the '
    'public half of a key that it made itself (`fdrl keys make`).',
)
@click.option('--federation', default='federation', show_default=True, help='Its name.')
@click.option(
    '--threshold', type=int, help='Hospitals that must agree; floor(2n / 3) + 1 unless given.'
)
@click.option(
    '--neighbours',
    type=click.IntRange(min=0),
    help='With how many others each hospital masks, an even number; 0 for all. Unless given, all '
    'up to 100 hospitals, and beyond as many as two lying servers take.',
)
@click.option(
    '--buckets',
    type=int,
    default=0,
    help='Sums of a round, each of three hospitals at least, so that the key authority can leave '
    'out what few poison; it sees each of them. One sum of all unless given.',
)
@click.option(
    '--disjoint-patients',
    is_flag=True,
    help='No patient is in two hospitals: epsilons do not add.',
)
@click.option(
    '--valid-days', type=click.IntRange(min=1), help='Days from now on that the roster is valid.'
)
@click.option('--encrypt', is_flag=True, help='Ask for a passphrase that encrypts every key.')
@passphrase_option
def init(
    directory: Path,
    hospitals: tuple[str, ...],
    valid_days: int | None,
    encrypt: bool,
    passphrase_file: Path | None,
    **terms: Any,
) -> None:
    """
    Make all keys of a new federation below DIRECTORY.

    Each party's folder then goes to its host together with root.pub and roster.json; the folder
    of the root goes to a place that is not on the network.
    """
    declared = [_declared(hospital) for hospital in hospitals]
    sizes = {name: size for name, size, _ in declared}
    if len(sizes) < len(declared):
        raise SettingError('hospital', ' '.join(hospitals), 'each name once')
    publics = {name: public for name, _, public in declared if public}
    passphrase = (
        ask_passphrase('Passphrase', confirm=True) if encrypt else read_passphrase(passphrase_file)
    )
    new = NewFederation(sizes, validity=_validity(valid_days), publics=publics, **terms)
    roster = make_federation(directory, new, passphrase)
    how = 'encrypted' if passphrase else 'in clear'
    made = len(roster.members) - len(publics)
    click.echo(f'made the keys of {made} parties and the root in {directory}, {how}')
    show_keys(directory)


@keys.command()
@_new_directory
@click.argument('name')
@passphrase_option
def make(directory: Path, name: str, passphrase_file: Path | None) -> None:
    """
    Make a key of party NAME alone, where it is going to be used.

    Its private half never leaves this host: tell the public half to who holds the root, and
    compare the fingerprint by telephone.
    """
    identity = Identity.generate(name)
    make_private_directory(directory / name)
    save_identity(
        identity, directory / name / KEY_FILE, passphrase=read_passphrase(passphrase_file)
    )
    click.echo(f'public {identity.public.hex()}\nfingerprint {fingerprint(identity.public)}')
    warn_of_clear(directory)


@keys.command()
@_directory
@json_option
def show(directory: Path, as_json: bool) -> None:
    """
    Check the roster against root.pub and print fingerprints to compare; asks for no secret.

    Warns of a roster that parties here would refuse, and of keys in clear.
    """
    if as_json:
        echo_json(keys_document(directory))
    else:
        show_keys(directory)


@keys.command()
@_directory
@click.argument('name', required=False)
@click.option(
    '--he', 'of_he', is_flag=True, help='The secret key of the homomorphic encryption instead.'
)
@click.option(
    '--public', metavar='HEX', help='Public half of a key that `fdrl keys make` made elsewhere.'
)
@passphrase_option
def rotate(
    directory: Path,
    name: str | None,
    of_he: bool,
    public: str | None,
    passphrase_file: Path | None,
) -> None:
    """Give party NAME a new signing key, or the key authority one for decryption (--he)."""
    if of_he == (name is not None):
        raise click.UsageError('name a party, or --he')
    passphrase = read_passphrase(passphrase_file, directory)
    if name is None:
        digest = rotate_he(directory, passphrase, after_round=newest_round(directory) or 0)
        click.echo(
            f'new key of the homomorphic encryption, sha256 {digest}; the old one is erased'
        )
        return
    roster = RosterChanges(directory, passphrase).rotate(name, _key(public))
    click.echo(f'{name} has a new key, {fingerprint(roster.member(name).public)}')
    _publish(roster, directory)


@keys.command()
@_directory
@click.argument('name')
@_threshold
@_buckets
@passphrase_option
def revoke(
    directory: Path,
    name: str,
    threshold: int | None,
    buckets: int | None,
    passphrase_file: Path | None,
) -> None:
    """Take hospital or operator NAME off the roster; what it signs counts no more."""
    roster = _root(directory, passphrase_file).revoke(name, threshold, buckets)
    click.echo(f'{name} is revoked')
    _publish(roster, directory)


@keys.command()
@_directory
@click.argument('hospital', metavar='NAME=PATIENTS[:HEX]')
@_threshold
@_buckets
@passphrase_option
def admit(
    directory: Path,
    hospital: str,
    threshold: int | None,
    buckets: int | None,
    passphrase_file: Path | None,
) -> None:
    """
    Take a further hospital into the roster, with the number of patients it declares.

    HEX is the public half of a key that the hospital made itself (`fdrl keys make`).

    floor(2n / 3) + 1 hospitals must agree then, unless --threshold says otherwise.
    """
    name, size, public = _declared(hospital)
    roster = _root(directory, passphrase_file).admit(name, size, threshold, public, buckets)
    click.echo(f'{name} is admitted with the key {fingerprint(roster.member(name).public)}')
    _publish(roster, directory)


@keys.command()
@_directory
@click.option(
    '--valid-days',
    type=click.IntRange(min=1),
    help='Days from now on; without an end unless given.',
)
@passphrase_option
def renew(directory: Path, valid_days: int | None, passphrase_file: Path | None) -> None:
    """Sign the roster anew with another end."""
    roster = _root(directory, passphrase_file).renew(_validity(valid_days))
    click.echo(f'valid {roster.validity}')
    _publish(roster, directory)


@keys.command()
@_directory
@click.option('--new-passphrase-file', type=FILE, help='File of mode 0600 with the new one.')
@click.option('--clear', is_flag=True, help='Leave the keys in clear instead.')
@passphrase_option
def passphrase(
    directory: Path, new_passphrase_file: Path | None, clear: bool, passphrase_file: Path | None
) -> None:
    """
    Encrypt all private keys in DIRECTORY under a new passphrase, whether they were or not.

    So are the noise keys of hospitals that run beside it; stop them first.

    --passphrase-file opens those that are encrypted. A passphrase that others have seen does not
    become safe by a new one: who has copied the files opens the copies. Rotate the keys then.
    """
    if clear and new_passphrase_file is not None:
        raise click.UsageError('either --clear or --new-passphrase-file')
    before, after = read_passphrase(passphrase_file, directory), None
    if new_passphrase_file is not None:
        after = load_passphrase(new_passphrase_file)
    elif not clear:
        after = ask_passphrase('New passphrase', confirm=True)
    names = change_passphrase(directory, before, after, beside=noise_keys(directory))
    how = f'encrypted under the passphrase in {after.source}' if after else 'in clear'
    click.echo(f'{", ".join(names)}: {how}')
    warn_of_clear(directory)


def _declared(text: str) -> tuple[str, int, bytes | None]:
    name, _, declared = text.partition('=')
    size, colon, public = declared.partition(':')
    if not size.isdecimal():
        raise SettingError(
            'hospital', text, 'NAME=PATIENTS[:HEX], such as hospital_1=500, the public key in HEX'
        )
    return name, int(size), _key(public if colon else None)


def _key(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        public = bytes.fromhex(text)
    except ValueError:
        public = b''
    if len(public) != PUBLIC_KEY_BYTES:
        expected = f'a public key of {PUBLIC_KEY_BYTES} bytes in hexadecimal'
        raise SettingError('public', text, expected)
    return public


def _validity(days: int | None) -> tuple[int, int | None]:
    now = int(time.time())
    return (0, None) if days is None else (now, now + days * DAY)


def _publish(roster: Roster, directory: Path) -> None:
    """Print what is to be done with a new roster, and what is wrong with it or the keys."""
    show_roster(roster)
    warn_of_clear(directory)
    click.echo(
        'Carry roster.json, and a new key, to the hosts of all parties and robots, and start them '
        'again.'
    )
    if (directory / SECURITY_FOLDER).exists():
        click.echo('Before that `fdrl security update`: enclaves follow the roster.')
