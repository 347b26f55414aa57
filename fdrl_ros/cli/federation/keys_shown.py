# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What `fdrl keys` prints: of keys only what everybody may know, and what is wrong with them."""

from pathlib import Path
import time
from typing import Any

import click
from fdrl_ros.crypto.keys.keystore import (
    KEY_FILE,
    load_root_public,
    read_secret,
    ROOT,
    ROOT_FILE,
    ROSTER_FILE,
)
from fdrl_ros.crypto.keys.roster import check_remembered, Roster, ROSTER_MEMORY, utc
from fdrl_ros.crypto.keys.rotation import HE_NAME, private_keys
from fdrl_ros.crypto.keys.sealed_key import Label, label
from fdrl_ros.crypto.keys.signing import fingerprint
from fdrl_ros.crypto.keys.transaction import reading
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.errors import FdrlError, RosterTimeError
from fdrl_ros.federation.key_authority.state import round_released


def find_keys(directory: Path) -> Path:
    """Return the directory of the keys: itself, or that of a federation or a run."""
    for each in (Layout(directory).keys, Layout(directory / 'federation').keys):
        if not (directory / ROOT_FILE).exists() and each.is_dir():
            return each
    return directory


def warn(problem: str) -> None:
    """Say what is not as it should be, beside what a command prints."""
    click.echo(f'fdrl: warning: {problem}', err=True)


def warn_of_clear(directory: Path) -> None:
    """Warn of private keys that no passphrase protects."""
    names = private_keys(directory)
    clear = sum(not _is_sealed(directory / name) for name in names)
    if clear:
        warn(
            f'private keys in {directory} are in clear ({clear} of {len(names)}), for whoever '
            'reads the disk or a backup of it: `fdrl keys passphrase` encrypts them'
        )


def show_keys(directory: Path) -> None:
    """Print a key directory: roster, fingerprints, which keys are here, and how they are kept."""
    with reading(directory):
        root = load_root_public(directory / ROOT_FILE)
        roster = Roster.load(directory / ROSTER_FILE, root)
        show_roster(roster)
        _line(ROOT, '', root, directory)
        for member in roster.members:
            words = f'{member.size} patients' if member.size else ''
            _line(member.name, words, member.public, directory)
        for each in roster.revoked:
            click.echo(
                f'{each.name:20} {f"revoked by {each.serial}":16} {fingerprint(each.public)}'
            )
        found = _label(directory / HE_NAME)
        problems = _problems(directory, roster)
    if found is not None:
        about = found.about
        now = newest_round(directory)
        used = '' if now is None else f', for {now - about["after_round"]} rounds so far'
        click.echo(f'homomorphic encryption: {about["scheme"]}')
        click.echo(f'  sha256 {about["public"]}, {_kept(found)}{used}')
    for problem in problems:
        warn(problem)
    warn_of_clear(directory)


def keys_document(directory: Path) -> dict[str, Any]:
    """Return what :func:`show_keys` prints, for programs."""
    with reading(directory):
        root = load_root_public(directory / ROOT_FILE)
        roster = Roster.load(directory / ROSTER_FILE, root)
        found = _label(directory / HE_NAME)
        problems = _problems(directory, roster)
        told = roster.to_dict()
        for member in told['members']:
            member['fingerprint'] = fingerprint(bytes.fromhex(member['public']))
            member['key'] = _key(_label(directory / member['name'] / KEY_FILE))
        return {
            **told,
            'digest': roster.digest,
            'root': {
                'public': root.hex(),
                'fingerprint': fingerprint(root),
                'key': _key(_label(directory / ROOT / KEY_FILE)),
            },
            'homomorphic_encryption': None if found is None else {**found.about, **_key(found)},
            'drop_outs_tolerated': _spare(roster),
            'problems': problems,
        }


def show_roster(roster: Roster) -> None:
    """Print a roster without its members."""
    click.echo(
        f'federation {roster.federation}, roster {roster.serial}: {roster.threshold} of '
        f'{len(roster.hospitals)} hospitals must agree, patients '
        f'{"disjoint" if roster.disjoint_patients else "may be shared"}, valid {roster.validity}'
    )
    click.echo(f'roster sha256 {roster.digest}')
    if not _spare(roster):
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


def _spare(roster: Roster) -> int:
    """Return how many hospitals may be away, at most, for a round to end."""
    return len(roster.hospitals) - roster.quorum


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


def _line(name: str, words: str, public: bytes, directory: Path) -> None:
    found = _label(directory / name / KEY_FILE)
    kept = '' if found is None else _kept(found)
    click.echo(f'{name:20} {words:16} {fingerprint(public)}  {kept}'.rstrip())


def _label(path: Path) -> Label | None:
    return label(read_secret(path), path) if path.exists() else None


def _is_sealed(path: Path) -> bool:
    return label(read_secret(path), path).sealed


def _key(found: Label | None) -> Any:
    """Return how a private key is kept that is here."""
    if found is None:
        return None
    return {'created': found.about['created'], 'encrypted': found.sealed}


def _kept(found: Label) -> str:
    how = 'encrypted' if found.sealed else 'in clear'
    return f'of {utc(found.about["created"])}, {how}'
