# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What `fdrl keys` prints: of keys only what everybody may know, and what is wrong with them."""

from pathlib import Path
import time

import click
from fdrl_ros.crypto.keys.key_file import Label, label
from fdrl_ros.crypto.keys.keystore import (
    KEY_FILE,
    load_root_public,
    NOISE_FILE,
    ROOT,
    ROOT_FILE,
    ROSTER_FILE,
)
from fdrl_ros.crypto.keys.roster import check_remembered, Roster, ROSTER_MEMORY, utc
from fdrl_ros.crypto.keys.rotation import HE_NAME, private_keys
from fdrl_ros.crypto.keys.signing import fingerprint
from fdrl_ros.crypto.keys.transaction import reading
from fdrl_ros.crypto.masking.neighbourhoods import fewest_neighbours
from fdrl_ros.deployment.layout import Layout, MAKERS
from fdrl_ros.errors import FdrlError, KeyFileError, RosterTimeError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.federation.key_authority.state import round_released
from fdrl_ros.runtime.durable import read_secret


def find_keys(directory: Path) -> Path:
    """
    Return the directory of the keys: itself, or that of a federation or a run.

    :raises KeyFileError: if the directory is not there.
    """
    if not directory.exists():
        raise KeyFileError(f'{directory} is not there: {MAKERS}')
    for keys in (Layout(directory).keys, Layout(directory / 'federation').keys):
        if not (directory / ROOT_FILE).exists() and keys.is_dir():
            return keys
    return directory


def warn(problem: str) -> None:
    """Print what is not as it should be, beside what a command prints."""
    click.echo(f'fdrl: warning: {problem}', err=True)


def warn_of_clear(directory: Path) -> None:
    """Warn of private keys that no passphrase protects."""
    names = (*private_keys(directory), *noise_keys(directory))
    labels = [_label(directory / name) for name in names]
    clear = sum(found is not None and not found.sealed for found in labels)
    if clear:
        warn(
            f'private keys in {directory} are in clear ({clear} of {len(labels)}), for whoever '
            'reads the disk or a backup of it: `fdrl keys passphrase` encrypts them'
        )


def noise_keys(directory: Path) -> list[str]:
    """Return the names of the noise keys of hospitals that run beside a key directory."""
    beside = directory.parent
    if not Layout(beside).plan.exists():
        return []
    found = (*beside.glob(f'*/{NOISE_FILE}'), *beside.glob(f'alone/*/{NOISE_FILE}'))
    return sorted(f'../{path.relative_to(beside)}' for path in found)


def show_keys(directory: Path) -> None:
    """Print a key directory: roster, fingerprints, which keys are here, and how they are kept."""
    roster, shown = _read(directory)
    show_roster(roster)
    root = {'name': ROOT, 'size': 0, **shown['root']}
    for member in (root, *shown['members']):
        patients = f'{member["size"]} patients' if member['size'] else ''
        line = f'{member["name"]:20} {patients:16} {member["fingerprint"]}  {_kept(member["key"])}'
        click.echo(line.rstrip())
    for gone in roster.revoked:
        click.echo(f'{gone.name:20} {f"revoked by {gone.serial}":16} {fingerprint(gone.public)}')
    if (key := shown['homomorphic_encryption']) is not None:
        now = newest_round(directory)
        used = '' if now is None else f', for {now - key["after_round"]} rounds so far'
        click.echo(f'homomorphic encryption: {key["scheme"]}')
        click.echo(f'  sha256 {key["public"]}, {_kept(key)}{used}')
    for problem in shown['problems']:
        warn(problem)
    warn_of_clear(directory)


def keys_document(directory: Path) -> Json:
    """Return what :func:`show_keys` prints, for programs."""
    return _read(directory)[1]


def show_roster(roster: Roster) -> None:
    """Print a roster without its members."""
    patients = sum(each.size for each in roster.hospitals)
    click.echo(
        f'federation {roster.federation}, roster {roster.serial}: {roster.threshold} of '
        f'{len(roster.hospitals)} hospitals must agree, {patients} patients '
        f'({"disjoint" if roster.disjoint_patients else "may be shared"}), valid {roster.validity}'
    )
    click.echo(f'roster sha256 {roster.digest}')
    graph = roster.neighbourhoods
    if words := graph.in_words():
        click.echo(words)
    if not graph.withstands_lies:
        warn(
            f'with {graph.degree} neighbours one of the two servers must be honest: two that lie '
            'and collude may see single updates (--neighbours '
            f'{fewest_neighbours(len(roster.hospitals))} withstands that)'
        )
    if roster.buckets:
        warn(
            f'{roster.buckets} buckets: the key authority sees the average of each, of about '
            f'{len(roster.hospitals) / roster.buckets:.2g} hospitals, and of three at least'
        )
    if len(roster.hospitals) == roster.quorum:
        warn(
            f'no drop-out is tolerated: a round needs all {len(roster.hospitals)} hospitals, and '
            'waits while one is away'
        )


def newest_round(directory: Path) -> int | None:
    """Return the newest round that was released, if the key authority's state lies beside."""
    try:
        return round_released(Layout(directory.parent).state('key_authority')) or None
    except FdrlError:
        return None


def _read(directory: Path) -> tuple[Roster, Json]:
    """Read the roster, and all that is shown of a key directory, at one moment."""
    with reading(directory):
        root = load_root_public(directory / ROOT_FILE)
        roster = Roster.load(directory / ROSTER_FILE, root)
        he_key = _label(directory / HE_NAME)
        shown = roster.to_dict()
        for member in shown['members']:
            member['fingerprint'] = fingerprint(bytes.fromhex(member['public']))
            member['key'] = _key(_label(directory / member['name'] / KEY_FILE))
        return roster, {
            **shown,
            'digest': roster.digest,
            'root': {
                'public': root.hex(),
                'fingerprint': fingerprint(root),
                'key': _key(_label(directory / ROOT / KEY_FILE)),
            },
            'homomorphic_encryption': he_key and {**he_key.about, **(_key(he_key) or {})},
            'drop_outs_tolerated': len(roster.hospitals) - roster.quorum,
            'problems': _problems(directory, roster),
        }


def _problems(directory: Path, roster: Roster) -> list[str]:
    """Say why parties would refuse this roster: its time, or a newer one that they have used."""
    problems = []
    try:
        roster.check_time(time.time())
    except RosterTimeError as error:
        problems.append(str(error))
    memories = list(directory.glob(f'[a-z]*/{ROSTER_MEMORY}'))
    if Layout(directory.parent).plan.exists():  # parties of this federation run beside it
        memories += directory.parent.glob(f'[a-z]*/{ROSTER_MEMORY}')
    for path in sorted(memories):
        try:
            check_remembered(path, roster)
        except FdrlError as error:
            problems.append(f'{path.parent.name} refuses it: {error}')
    return problems


def _label(path: Path) -> Label | None:
    return label(read_secret(path), path) if path.exists() else None


def _key(found: Label | None) -> Json | None:
    """Return how a private key is kept, if it is here."""
    if found is None:
        return None
    return {'created': found.about['created'], 'encrypted': found.sealed}


def _kept(key: Json | None) -> str:
    if key is None:
        return ''
    return f'of {utc(key["created"])}, {"encrypted" if key["encrypted"] else "in clear"}'
