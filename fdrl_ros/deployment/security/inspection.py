# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Check a keystore as the middleware, the roster and the graph want it, a line for each fault."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
import stat
import time

from cryptography import x509
from fdrl_ros.crypto.dds.certificates import (
    Binding,
    common_name,
    faults,
    read_certificate,
    revoked_serials,
    time_faults,
    utc,
)
from fdrl_ros.crypto.dds.smime import verified
from fdrl_ros.crypto.keys.keystore import AUTHORITY_FILES, KEY_FILE, ROOT
from fdrl_ros.crypto.keys.roster import Roster
from fdrl_ros.crypto.keys.transaction import reading
from fdrl_ros.deployment.bringup import NodeSpec
from fdrl_ros.deployment.security import rules
from fdrl_ros.deployment.security.enclaves import (
    AUTHORITY_CERTIFICATES,
    binding_of,
    GOVERNANCE_FILE,
    Keystore,
    KeystoreSettings,
    length_fault,
    party_of,
    PERMISSIONS_FILE,
    PRIVATE_FILE,
    REVOCATIONS_FILE,
    validity_of,
)
from fdrl_ros.errors import FdrlError, SecurityError
from fdrl_ros.runtime.durable import read_secret


def keystore_faults(keys: Path, now: datetime | None = None) -> list[str]:
    """
    Check all enclaves that are here.

    Where the root is, every node of the graph must have one; on another host, every party whose
    signing key is there.

    :param keys: directory of the federation's keys.
    :param now: UTC; the clock's unless given.
    :returns: a line for each fault.
    :raises SecurityError: if there is no keystore.
    :raises RosterError: if the root did not sign the roster.
    """
    with reading(keys):
        store = Keystore(keys)
        return list(_Inspection(store, utc(time.time()) if now is None else now).faults())


class _Inspection:
    """One look at a keystore."""

    def __init__(self, store: Keystore, now: datetime) -> None:
        self._store, self._now = store, now
        self._settings: KeystoreSettings = store.settings()
        self._roster: Roster = store.roster()
        self._specs = self._settings.graph(self._roster)
        self._places = self._settings.places(self._roster)

    def faults(self) -> Iterator[str]:
        """Yield every fault: of files, of the authorities, then of each enclave."""
        yield from self._open_files()
        try:
            identity, permissions = (
                read_certificate(self._store.public(name)) for name in AUTHORITY_CERTIFICATES
            )
            revoked = revoked_serials(self._store.public(REVOCATIONS_FILE), identity)
            vouched = self._store.vouched()
        except SecurityError as error:
            yield f'the authorities: {error}'
            return
        if not vouched:
            yield 'the authorities: the root of the roster did not sign them'
        for name, certificate in zip(AUTHORITY_CERTIFICATES, (identity, permissions), strict=True):
            told = time_faults(certificate, self._now, soon=True)
            yield from (f'{name}: {each}' for each in told)
        expected = {spec.full_name: spec for spec in self._specs}
        for path in self._store.present:
            if path not in expected:
                yield (
                    f'{path}: no node has this enclave any more: run `fdrl security update`'
                    + ('' if self._has_root else ' where the root is, and erase it here')
                )
        for path, spec in expected.items():
            if path in self._store.present:
                yield from self._enclave_faults(spec, identity, permissions, revoked)
            elif self._belongs_here(spec):
                yield f'{path}: it has no enclave: run `fdrl security update`'

    @property
    def _has_root(self) -> bool:
        return (self._store.keys / ROOT / AUTHORITY_FILES[0]).exists()

    def _belongs_here(self, spec: NodeSpec) -> bool:
        return self._has_root or (self._store.keys / party_of(spec) / KEY_FILE).exists()

    def _open_files(self) -> Iterator[str]:
        """Yield every folder that others may enter; private keys are checked when read."""
        folders = (each for each in self._store.folder.rglob('*') if each.is_dir())
        for path in sorted((self._store.folder, *folders)):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                yield f'{path} has mode {mode:04o} and is open to others: chmod go-rwx {path}'

    def _enclave_faults(
        self,
        spec: NodeSpec,
        identity: x509.Certificate,
        permissions: x509.Certificate,
        revoked: frozenset[int],
    ) -> list[str]:
        """Return the faults of an enclave that is here."""
        path, store, found = spec.full_name, self._store, list[str]()
        folder = store.enclave(path)

        @contextmanager
        def part(what: str = '') -> Iterator[None]:
            try:
                yield
            except FdrlError as error:
                found.append(f'{what}{error}')

        with part():
            certificate = store.certificate(path)
            with part():
                key = read_secret(folder / PRIVATE_FILE)
                found += faults(certificate, identity, key, self._now)
            if not found:
                found += time_faults(certificate, self._now, soon=True)
            if common_name(certificate) != path:
                found.append('its certificate is of another enclave')
            if certificate.serial_number in revoked:
                found.append('its certificate is revoked: run `fdrl security rotate`')
            with part():
                found += self._binding_faults(Binding.of(certificate), spec)
            with part(f'{PERMISSIONS_FILE}: '):
                data = store.read(folder / PERMISSIONS_FILE)
                found += filter(None, [length_fault(data)])
                text = verified(data, permissions)
                wanted = rules.permissions(
                    spec, self._places, self._settings.numbers, validity_of(certificate)
                )
                if words := rules.difference(text, wanted):
                    found.append(
                        f'{PERMISSIONS_FILE}: they {words}, unlike the graph: run '
                        '`fdrl security update`'
                    )
        with part(f'{GOVERNANCE_FILE}: '):
            text = verified(store.read(folder / GOVERNANCE_FILE), permissions)
            if text != rules.governance(self._settings.numbers):
                found.append(f'{GOVERNANCE_FILE}: it protects the domains in another way')
        for name in (*AUTHORITY_CERTIFICATES, REVOCATIONS_FILE):
            with part(f'{name}: '):
                if store.read(folder / name) != store.public(name):
                    found.append(f'{name}: it is another than that of the keystore')
        return [f'{path}: {each}' for each in found]

    def _binding_faults(self, has: Binding, spec: NodeSpec) -> Iterator[str]:
        """Yield how a certificate contradicts the roster."""
        wanted = binding_of(spec, self._roster)
        if (has.federation, has.party) != (wanted.federation, wanted.party):
            yield f'its certificate is of {has.party} in federation {has.federation}'
        elif has.key != wanted.key:
            yield (
                f'its certificate is bound to the signing key {has.key}, and the roster has '
                f'{wanted.key}: run `fdrl security update`'
            )
        elif has.serial > wanted.serial:
            yield (
                f'its certificate was made by roster {has.serial}, and the one here is '
                f'{wanted.serial}: fetch the newest'
            )
