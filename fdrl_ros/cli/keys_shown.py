# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What `fdrl keys` prints: of keys only what everybody may know."""

import json
from pathlib import Path

import click
from fdrl_ros.crypto.commit import reading
from fdrl_ros.crypto.keystore import (
    KEY_FILE,
    load_root_public,
    read_secret,
    ROOT,
    ROOT_FILE,
    ROSTER_FILE,
)
from fdrl_ros.crypto.roster import Roster, utc
from fdrl_ros.crypto.rotation import HE_NAME
from fdrl_ros.crypto.sealed import Label, label
from fdrl_ros.crypto.signing import fingerprint
from fdrl_ros.federation.store import peek
from fdrl_ros.prepare import Layout


def find_keys(directory: Path) -> Path:
    """Return the directory of the keys: itself, or that of a federation or a run."""
    for each in (Layout(directory).keys, Layout(directory / 'federation').keys):
        if not (directory / ROOT_FILE).exists() and each.is_dir():
            return each
    return directory


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
    if found is not None:
        about = found.about
        now = newest_round(directory)
        used = '' if now is None else f', for {now - about["after_round"]} rounds so far'
        click.echo(f'homomorphic encryption: {about["scheme"]}')
        click.echo(f'  sha256 {about["public"]}, {_kept(found)}{used}')


def show_roster(roster: Roster) -> None:
    """Print a roster without its members."""
    click.echo(
        f'federation {roster.federation}, roster {roster.serial}: {roster.threshold} of '
        f'{len(roster.hospitals)} hospitals must agree, patients '
        f'{"disjoint" if roster.disjoint_patients else "may be shared"}, valid {roster.validity}'
    )
    click.echo(f'roster sha256 {roster.digest}')


def newest_round(directory: Path) -> int | None:
    """Return the newest round that was released, if the key authority's state lies beside."""
    saved = peek(Layout(directory.parent).state('key_authority'), 'released').get('released')
    try:
        return None if saved is None else int(json.loads(saved.split(b'\n')[0])['round'])
    except (ValueError, KeyError, TypeError):
        return None


def _line(name: str, words: str, public: bytes, directory: Path) -> None:
    found = _label(directory / name / KEY_FILE)
    kept = '' if found is None else _kept(found)
    click.echo(f'{name:20} {words:16} {fingerprint(public)}  {kept}'.rstrip())


def _label(path: Path) -> Label | None:
    return label(read_secret(path), path) if path.exists() else None


def _kept(found: Label) -> str:
    how = 'encrypted' if found.sealed else 'in clear'
    return f'of {utc(found.about["created"])}, {how}'
