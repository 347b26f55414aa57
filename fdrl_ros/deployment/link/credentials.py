# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Certificates and keys of the links, made from the roster and vouched for by the federation's root.

They lie in the folder :data:`FOLDER` below the federation's keys. The authority that signs the
certificates is drawn anew each time and forgotten at once: nobody can add a party in its name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
import os
from pathlib import Path
import shutil
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509 import Certificate
from cryptography.x509.oid import ExtendedKeyUsageOID
from fdrl_ros.crypto.dds.certificates import (
    Authority,
    Binding,
    common_name,
    faults,
    pem,
    read_certificate,
)
from fdrl_ros.crypto.keys.key_file import Passphrase
from fdrl_ros.crypto.keys.keystore import (
    KEY_FILE,
    load_identity,
    load_root_public,
    ROOT,
    ROOT_FILE,
)
from fdrl_ros.crypto.keys.signing import fingerprint, verify
from fdrl_ros.crypto.keys.transaction import transaction
from fdrl_ros.deployment.layout import Layout
from fdrl_ros.errors import KeyFileError, os_errors_as, RosterError, SecurityError
from fdrl_ros.runtime.durable import make_private_directory, read_secret

FOLDER: Final = 'link'
"""Folder below the federation's keys."""

ROUTER: Final = 'router'
"""Whose certificate is that of the router; no party has this name."""

AUTHORITY_FILE, SIGNATURE_FILE = 'ca.pem', 'ca.sig'
CERTIFICATE_FILE, PRIVATE_FILE, GROUP_FILE = 'cert.pem', 'key.pem', 'group.key'
_GROUP_BYTES = 32


@dataclass(frozen=True)
class LinkFiles:
    """
    The files of one end of a link.

    :param keys: directory of the federation's keys.
    :param name: of the party, or :data:`ROUTER`.
    """

    keys: Path
    name: str

    @property
    def authority(self) -> Path:
        """Certificate of the authority."""
        return self.keys / FOLDER / AUTHORITY_FILE

    @property
    def certificate(self) -> Path:
        """Certificate of this end."""
        return self.keys / FOLDER / self.name / CERTIFICATE_FILE

    @property
    def private(self) -> Path:
        """Private key of that certificate, in clear, as the transport reads it."""
        return self.keys / FOLDER / self.name / PRIVATE_FILE

    def group_key(self) -> bytes:
        """
        Return the key by which parties encrypt for each other what a router carries.

        An operator has one for itself, which all parties know.

        :raises KeyFileError: if it is missing, damaged, or others can read it.
        """
        found = read_secret(self.keys / FOLDER / self.name / GROUP_FILE)
        if len(found) != _GROUP_BYTES:
            raise KeyFileError(f'the key of the links of {self.name} is damaged')
        return found

    def check(self, now: datetime) -> None:
        """
        Check that this end can be used now: chain, dates, key, root.

        :param now: UTC.
        :raises SecurityError: saying what is wrong.
        :raises KeyFileError: if a file cannot be read, or others can read the private key.
        """
        if not self.certificate.exists():
            raise SecurityError(
                f'{self.certificate.parent} is not here: `fdrl link init` makes it where the root '
                f'is, `fdrl export` copies it'
            )
        with os_errors_as(SecurityError, f'{self.authority.parent} cannot be read'):
            signed = self.authority.read_bytes()
            signature = (self.authority.parent / SIGNATURE_FILE).read_bytes()
        if not verify(load_root_public(self.keys / ROOT_FILE), signature, _said(signed)):
            raise SecurityError(f'{self.authority} is not that of the root of this federation')
        authority = self._certificate(self.authority, signed)
        certificate = self._certificate(self.certificate, self.certificate.read_bytes())
        found = list(faults(certificate, authority, read_secret(self.private), now))
        if common_name(certificate) != self.name:
            raise SecurityError(
                f'the link of {self.name} cannot be used: its certificate is that of '
                f'{common_name(certificate)!r}; copy its own, which `fdrl link init` made'
            )
        if self.name != ROUTER:
            self.group_key()
        if found:
            raise SecurityError(
                f'the link of {self.name} cannot be used: {"; ".join(found)}; this host has '
                f'{now:%Y-%m-%d %H:%M} UTC: correct its clock, or run `fdrl link init` again '
                f'where the root is'
            )

    def _certificate(self, path: Path, data: bytes) -> Certificate:
        """Read what a file holds, or name it with what helps."""
        try:
            return read_certificate(data)
        except SecurityError as error:
            raise SecurityError(
                f'the link of {self.name} cannot be used: {path} is damaged: copy it again from '
                f'where `fdrl export` made it, or run `fdrl link init` again where the root is, '
                f'and export anew to all'
            ) from error


def operator_key(group: bytes, name: str) -> bytes:
    """
    Return the key between all parties and one operator, who cannot read what parties say.

    :param group: key of the parties, 32 bytes.
    """
    return HKDF(SHA256(), 32, None, f'fdrl_ros links 1 operator {name}'.encode()).derive(group)


def make_links(
    layout: Layout,
    routers: Sequence[str],
    now: datetime,
    days: int,
    passphrase: Passphrase | None = None,
) -> tuple[str, ...]:
    """
    Make certificates and keys for the router and every member of the roster.

    Those of before are no longer taken: a router that starts again knows the new authority alone.

    :param routers: names or addresses at which parties find the router.
    :param now: UTC.
    :param days: validity.
    :param passphrase: of the root's key.
    :returns: who got them.
    :raises RosterError: if a party has the router's name, or the root did not sign the roster.
    :raises KeyFileError: if the root's key is not here, or a file cannot be written.
    """
    roster = layout.roster()
    if not (layout.keys / ROOT).is_dir():
        raise KeyFileError(f'{layout.keys / ROOT} is not here: links are made where the root is')
    if ROUTER in {each.name for each in roster.members}:
        raise RosterError(f'a party is named {ROUTER}, as the router is')
    members = {each.name: each for each in roster.members}
    with transaction(layout.keys) as changes:
        for stale in {*ends_here(layout.keys)} - {ROUTER, *members}:
            for file in (CERTIFICATE_FILE, PRIVATE_FILE, GROUP_FILE):
                changes.remove(f'{FOLDER}/{stale}/{file}')
        root = load_identity(layout.keys / ROOT / KEY_FILE, ROOT, passphrase=passphrase)
        authority = Authority.make(f'links {os.urandom(8).hex()} of {roster.federation}', now)
        signed, group = pem(authority.certificate), os.urandom(_GROUP_BYTES)
        changes.write(f'{FOLDER}/{AUTHORITY_FILE}', signed)
        changes.write(f'{FOLDER}/{SIGNATURE_FILE}', root.sign(_said(signed)))
        for name in (ROUTER, *members):
            key = fingerprint(members[name].public) if name in members else 'none'
            binding = Binding(roster.federation, name, key, roster.serial)
            usage = ExtendedKeyUsageOID.CLIENT_AUTH
            if name == ROUTER:
                usage = ExtendedKeyUsageOID.SERVER_AUTH
            places = routers if name == ROUTER else ()
            certificate, private = authority.issue(name, binding, now, days, usage, places)
            changes.write(f'{FOLDER}/{name}/{CERTIFICATE_FILE}', pem(certificate))
            changes.write(f'{FOLDER}/{name}/{PRIVATE_FILE}', private)
            if name != ROUTER:
                of_operator = members[name].role == 'operator'
                sealing = operator_key(group, name) if of_operator else group
                changes.write(f'{FOLDER}/{name}/{GROUP_FILE}', sealing)
    return (ROUTER, *members)


def ends_here(keys: Path) -> tuple[str, ...]:
    """Return whose links lie here: the router, and parties."""
    found = (keys / FOLDER).glob(f'*/{CERTIFICATE_FILE}')
    return tuple(sorted(each.parent.name for each in found))


def copy_links(keys: Path, names: Sequence[str], target: Path) -> None:
    """
    Copy what the host of some parties needs of the links, if there are any.

    :param target: directory of the keys that the host gets.
    :raises OSError: if something cannot be copied.
    """
    here = [name for name in ends_here(keys) if name in names]
    if not here:
        return
    make_private_directory(target / FOLDER)
    for public in (AUTHORITY_FILE, SIGNATURE_FILE):
        shutil.copy2(keys / FOLDER / public, target / FOLDER)
    for name in here:
        shutil.copytree(keys / FOLDER / name, target / FOLDER / name)


def _said(authority: bytes) -> bytes:
    """Return what the root signs of the authority's certificate in PEM."""
    return b'fdrl_ros links 1\n' + authority
