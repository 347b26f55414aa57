# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The keystore of DDS Security, made from the roster: an enclave for each node, as ROS 2 reads them.

It lies in the folder :data:`SECURITY_FOLDER` below the federation's keys. The private keys of its
two authorities lie beside the root's key, which no host gets, and are sealed as that is. Every
change happens completely or not at all.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
import json
from pathlib import Path
import re
import shutil
import time
from typing import Final

from cryptography import x509
from fdrl_ros.crypto.dds.certificates import (
    Authority,
    Binding,
    pem,
    read_certificate,
    revoked_serials,
    time_faults,
    utc,
)
from fdrl_ros.crypto.dds.smime import signed, verified
from fdrl_ros.crypto.keys.key_file import Passphrase, seal, unseal
from fdrl_ros.crypto.keys.keystore import (
    AUTHORITY_FILES,
    KEY_FILE,
    load_identity,
    load_root_public,
    ROOT,
    ROOT_FILE,
    ROSTER_FILE,
)
from fdrl_ros.crypto.keys.roster import NAME, Roster, SERVERS
from fdrl_ros.crypto.keys.signing import fingerprint, verify
from fdrl_ros.crypto.keys.transaction import Transaction, transaction
from fdrl_ros.deployment.bringup import (
    BringupSettings,
    frames_graph,
    hospital_graph,
    LAST_DOMAIN,
    NodeSpec,
    robot_graph,
    RoomArguments,
    SECURITY_FOLDER,
    server_graph,
)
from fdrl_ros.deployment.interfaces import (
    Domain,
    FOXGLOVE,
    GUESTS,
    MONITOR,
    OBSERVER,
    OPERATOR,
    Places,
    RECORDER,
    SEGMENTER,
    WATCH,
)
from fdrl_ros.deployment.namespaces import check_namespace
from fdrl_ros.deployment.security import rules
from fdrl_ros.errors import (
    errors_named,
    KeyFileError,
    os_errors_as,
    RosterError,
    SecurityError,
    SettingError,
)
from fdrl_ros.runtime.durable import make_private_directory, read_secret
from fdrl_ros.settings import named_among, setting, Settings

SETTINGS_FILE: Final = 'keystore.json'
CERTIFICATE_FILE: Final = 'cert.pem'
PRIVATE_FILE: Final = 'key.pem'
REVOCATIONS_FILE: Final = 'crl.pem'
PERMISSIONS_FILE: Final = 'permissions.p7s'
GOVERNANCE_FILE: Final = 'governance.p7s'
AUTHORITY_CERTIFICATES: Final = ('identity_ca.cert.pem', 'permissions_ca.cert.pem')
ENCLAVE_FILES: Final = (
    *(CERTIFICATE_FILE, PRIVATE_FILE, REVOCATIONS_FILE, PERMISSIONS_FILE, GOVERNANCE_FILE),
    *AUTHORITY_CERTIFICATES,
)
"""What the middleware reads of an enclave."""

LONGEST_PERMISSIONS: Final = 60_000
"""Most bytes of signed permissions: they travel in one UDP packet, with a certificate."""

Issued = dict[str, dict[int, int]]
"""Serial numbers of an enclave's certificates, by its path, and when each ends (Unix, second)."""

_ISSUED: Final = 'issued'
_PUBLIC, _POLICIES, _SIGNATURE = 'public', 'policies', 'authorities.sig'
_RULE = re.compile(r'(/[A-Za-z_]\w*)+:=(/[A-Za-z_]\w*)+', re.ASCII)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(',') if name.strip())


@dataclass(frozen=True)
class KeystoreSettings(Settings):
    """What a keystore is made for, besides the roster."""

    federation_domain: int = setting(
        BringupSettings.federation_domain, 'DDS domain of the federation', limits=(0, LAST_DOMAIN)
    )
    robot_domain: int = setting(
        BringupSettings.robot_domain, 'DDS domain of the robots', limits=(0, LAST_DOMAIN)
    )
    namespace: str = setting('', 'namespace in front of those of all nodes, such as north')
    robots: str = setting(
        'robot_1',
        'robots, separated by commas: NAME, or NAME=HOSPITAL for one that gets the home policy of '
        'that hospital; empty for none',
    )
    valid_days: int = setting(365, 'validity of the certificates', limits=(1, 3650), unit='days')
    remapped: str = setting(
        '',
        'names that launch remaps, separated by commas: FROM:=TO such as '
        '/robot_1/servo_cp:=/PSM1/servo_cp',
    )
    revoked: str = setting('', 'parties that get no enclave though they are in the roster')

    def __post_init__(self) -> None:
        """Refuse names that cannot be, and one domain for both."""
        super().__post_init__()
        check_namespace('namespace', self.namespace)
        if self.federation_domain == self.robot_domain:
            expected = "another domain than the federation's"
            raise SettingError('robot_domain', self.robot_domain, expected)
        for rule in _names(self.remapped):
            if not _RULE.fullmatch(rule):
                expected = 'full names such as /robot_1/servo_cp:=/PSM1/servo_cp'
                raise SettingError('remapped', rule, expected)
        names = [name.partition('=')[0] for name in _names(self.robots)]
        for name in names:
            if not NAME.fullmatch(name) or names.count(name) > 1:
                raise SettingError('robots', name, 'names such as robot_1, each once')

    @property
    def homes(self) -> Mapping[str, str]:
        """The hospital that each robot is of, '' for none, by the robot's name."""
        named = (name.partition('=') for name in _names(self.robots))
        return {robot: hospital for robot, _, hospital in named}

    @property
    def numbers(self) -> rules.Numbers:
        """The number of each domain."""
        return {
            Domain.FEDERATION: self.federation_domain,
            Domain.ROBOTS: self.robot_domain,
        }

    def places(self, roster: Roster) -> Places:
        """
        Return the namespaces of the graph.

        :raises SettingError: as :meth:`graph`.
        """
        pairs = (rule.partition(':=') for rule in _names(self.remapped))
        return Places.of(self.graph(roster), {before: after for before, _, after in pairs})

    def without(self, party: str) -> 'KeystoreSettings':
        """Return the same with a party revoked: a robot is forgotten."""
        robots = (name for name in _names(self.robots) if name.partition('=')[0] != party)
        if party in self.homes:
            return replace(self, robots=', '.join(robots))
        return replace(self, revoked=', '.join({**dict.fromkeys(_names(self.revoked)), party: 1}))

    def restored(self, party: str) -> 'KeystoreSettings':
        """Return the same with a party no longer revoked."""
        rest = (name for name in _names(self.revoked) if name != party)
        return replace(self, revoked=', '.join(rest))

    def graph(self, roster: Roster) -> tuple[NodeSpec, ...]:
        """
        Return who gets an enclave: all nodes of the federation, operators, and who observes.

        :raises SettingError: if a robot is of no hospital of the roster, or named as a party.
        """
        bringup = BringupSettings(
            federation_domain=self.federation_domain,
            robot_domain=self.robot_domain,
            namespace=self.namespace,
        )
        revoked = _names(self.revoked)
        members = [each for each in roster.members if each.name not in revoked]
        hospitals = [each.name for each in members if each.role == 'hospital']
        specs = [each for each in server_graph(bringup) if each.name not in revoked]
        for hospital in hospitals:
            specs += hospital_graph(bringup, hospital)
        gone = (*revoked, *(each.name for each in roster.revoked))
        for robot, named in self.homes.items():
            home = '' if named in gone and named not in hospitals else named
            if home and home not in hospitals:
                expected = named_among(home, 'hospitals', hospitals)
                raise SettingError('robots', f'{robot}={home}', expected)
            if any(each.name == robot for each in roster.members):
                raise SettingError('robots', robot, 'another name than those of the roster')
            room = RoomArguments(home=home)
            specs += robot_graph(bringup, robot, room=room)
            specs += frames_graph(bringup, robot, room)
            place = f'{bringup.namespace}/{robot}'
            others = (MONITOR, SEGMENTER, RECORDER, *GUESTS)
            specs += [NodeSpec(each, place, each, self.robot_domain) for each in others]
        specs += [
            NodeSpec(OPERATOR, '/', each.name, self.federation_domain)
            for each in members
            if each.role == 'operator'
        ]
        observers = (OBSERVER, WATCH, FOXGLOVE)
        specs += [NodeSpec(each, '/', each, self.federation_domain) for each in observers]
        return tuple(specs)


def party_of(spec: NodeSpec) -> str:
    """Return whose enclave a node has: a member of the roster, a robot, `observer` or `watch`."""
    if spec.executable == FOXGLOVE:
        return OBSERVER
    shared = spec.name in SERVERS or spec.executable in (OPERATOR, OBSERVER, WATCH)
    return spec.name if shared else spec.namespace.rpartition('/')[2]


def binding_of(spec: NodeSpec, roster: Roster) -> Binding:
    """Return what the certificate of a node says of the roster."""
    party = party_of(spec)
    keys = [fingerprint(each.public) for each in roster.members if each.name == party]
    return Binding(roster.federation, party, keys[0] if keys else 'none', roster.serial)


@dataclass(frozen=True)
class Keystore:
    """
    The files of a keystore.

    :param keys: directory of the federation's keys.
    """

    keys: Path

    @property
    def folder(self) -> Path:
        """What ROS_SECURITY_KEYSTORE names."""
        return self.keys / SECURITY_FOLDER

    @property
    def enclaves(self) -> Path:
        """Folder of all enclaves."""
        return self.folder / 'enclaves'

    def enclave(self, path: str) -> Path:
        """Return the folder of an enclave, such as `/robot_1/env`."""
        return self.enclaves / path.lstrip('/')

    @property
    def present(self) -> tuple[str, ...]:
        """Paths of the enclaves that are here."""
        found = self.enclaves.rglob(CERTIFICATE_FILE)
        return tuple(sorted(f'/{each.parent.relative_to(self.enclaves)}' for each in found))

    def read(self, path: Path) -> bytes:
        """
        Read a file.

        :raises SecurityError: if it cannot be read.
        """
        with os_errors_as(SecurityError, 'it cannot be read'):
            return path.read_bytes()

    def public(self, name: str) -> bytes:
        """
        Read a file that all hosts have.

        :raises SecurityError: if it cannot be read.
        """
        with errors_named(SecurityError, name):
            return self.read(self.folder / _PUBLIC / name)

    def certificate(self, path: str) -> x509.Certificate:
        """
        Read the certificate of an enclave.

        :raises SecurityError: if it is missing or damaged.
        """
        file = self.enclave(path) / CERTIFICATE_FILE
        with errors_named(SecurityError, str(file)):
            return read_certificate(self.read(file))

    def vouched(self) -> bool:
        """
        Return whether the root of the roster signed the authorities' certificates.

        :raises SecurityError: if one of the files cannot be read.
        """
        certificates = (self.public(name) for name in AUTHORITY_CERTIFICATES)
        root = load_root_public(self.keys / ROOT_FILE)
        return verify(root, self.public(_SIGNATURE), _signed_by_root(*certificates))

    def settings(self) -> KeystoreSettings:
        """
        Read what the keystore was made for.

        :raises SecurityError: if there is none, or it is damaged.
        """
        path = self.folder / SETTINGS_FILE
        if not path.exists():
            raise SecurityError(f'{self.folder} is no keystore: `fdrl security init` makes one')
        return self._made()[0]

    def issued(self) -> Issued:
        """
        Return the certificates that are not revoked and may still be somewhere.

        :raises SecurityError: if the keystore is damaged.
        """
        return self._made()[1] if (self.folder / SETTINGS_FILE).exists() else {}

    def _made(self) -> tuple[KeystoreSettings, Issued]:
        path = self.folder / SETTINGS_FILE
        try:
            found = json.loads(self.read(path))
            issued = {
                enclave: {int(serial): int(end) for serial, end in own.items()}
                for enclave, own in found.pop(_ISSUED).items()
            }
            return KeystoreSettings.from_mapping(found), issued
        except (ValueError, TypeError, AttributeError, KeyError, SettingError) as error:
            raise SecurityError(f'{path} is damaged: {error}') from error

    def roster(self) -> Roster:
        """
        Read the roster, as the root signed it.

        :raises RosterError: if the root did not.
        """
        return Roster.load(self.keys / ROSTER_FILE, load_root_public(self.keys / ROOT_FILE))


def make_keystore(
    keys: Path, settings: KeystoreSettings, passphrase: Passphrase | None = None
) -> tuple[str, ...]:
    """
    Make the authorities, and an enclave for every node of the federation.

    :param keys: directory of the federation's keys, with that of the root.
    :param passphrase: seals the authorities' private keys, if given.
    :returns: paths of the enclaves.
    :raises SecurityError: if there is a keystore already.
    :raises SettingError: if robots cannot be as the settings say.
    :raises KeyFileError: if files cannot be read or written.
    """
    store = Keystore(keys)
    with _changing(store) as changes:
        if (store.folder / SETTINGS_FILE).exists():
            raise SecurityError(f'{store.folder} is a keystore: `fdrl security update` changes it')
        return _write(store, changes, settings, passphrase, anew=True)


def update_keystore(
    keys: Path,
    passphrase: Passphrase | None = None,
    *,
    change: Callable[[KeystoreSettings], KeystoreSettings] = lambda settings: settings,
    rotate: str = '',
) -> tuple[str, ...]:
    """
    Bring the enclaves to the roster and the graph, and sign all rules anew.

    New nodes get enclaves. Those of nodes and parties that are gone are revoked and erased. A
    party whose signing key was rotated gets new ones. If an enclave loses a right, the authority
    of permissions is drawn anew: what the former one signed counts nowhere any more.

    :param change: of the keystore's settings.
    :param rotate: a party that gets new keys.
    :returns: paths of the enclaves that got new keys.
    :raises SecurityError: if there is no keystore, or it is damaged.
    :raises RosterError: if the graph has no such party, or it is revoked.
    :raises KeyFileError: if files cannot be read or written.
    """
    store = Keystore(keys)
    with _changing(store) as changes:
        settings = change(store.settings())
        if rotate in _names(settings.revoked):
            raise RosterError(f'{rotate} is revoked: `fdrl security restore` takes that back')
        if rotate:
            parties = sorted({party_of(each) for each in settings.graph(store.roster())})
            if rotate not in parties:
                raise RosterError(f'{rotate}: {named_among(rotate, "parties", parties)}')
        return _write(store, changes, settings, passphrase, rotate)


def rotate_all(keys: Path, passphrase: Passphrase | None = None) -> tuple[str, ...]:
    """
    Make new authorities and new keys of all enclaves; nothing of before is valid any more.

    :returns: paths of the enclaves.
    :raises SecurityError: if there is no keystore.
    :raises KeyFileError: if files cannot be read or written.
    """
    store = Keystore(keys)
    with _changing(store) as changes:
        return _write(store, changes, store.settings(), passphrase, anew=True)


def revoke_party(keys: Path, party: str, passphrase: Passphrase | None = None) -> None:
    """
    Revoke the enclaves of a party: a robot, or a member that the roster still has.

    :raises RosterError: if the graph has no such party.
    :raises SecurityError: if there is no keystore, or it is damaged.
    :raises KeyFileError: if files cannot be read or written.
    """

    def change(settings: KeystoreSettings) -> KeystoreSettings:
        known = sorted({party_of(each) for each in settings.graph(Keystore(keys).roster())})
        if party not in known or party in (OBSERVER, WATCH):
            raise RosterError(f'{party}: {named_among(party, "parties", known)}')
        return settings.without(party)

    update_keystore(keys, passphrase, change=change)


def restore_party(keys: Path, party: str, passphrase: Passphrase | None = None) -> tuple[str, ...]:
    """
    Take back what :func:`revoke_party` did to a member of the roster; it gets new keys.

    :returns: paths of its enclaves.
    :raises RosterError: if it is not revoked.
    :raises SecurityError: if there is no keystore, or it is damaged.
    :raises KeyFileError: if files cannot be read or written.
    """

    def change(settings: KeystoreSettings) -> KeystoreSettings:
        revoked = _names(settings.revoked)
        if party not in revoked:
            raise RosterError(f'{party}: {named_among(party, "revoked parties", revoked)}')
        return settings.restored(party)

    return update_keystore(keys, passphrase, change=change)


def copy_enclaves(keys: Path, parties: Sequence[str], target: Path) -> None:
    """
    Copy what the host of some parties needs of a keystore, if there is one.

    :param target: directory of the keys that the host gets.
    :raises OSError: if something cannot be copied.
    """
    store, made = Keystore(keys), Keystore(target)
    if not (store.folder / SETTINGS_FILE).exists():
        return
    wanted = [
        each.full_name
        for each in store.settings().graph(store.roster())
        if party_of(each) in parties
    ]
    make_private_directory(made.folder)
    shutil.copy2(store.folder / SETTINGS_FILE, made.folder)
    for folder in (_PUBLIC, _POLICIES):
        shutil.copytree(store.folder / folder, made.folder / folder)
    for path in (each for each in wanted if store.enclave(each).exists()):
        place = made.folder
        for part in made.enclave(path).relative_to(made.folder).parts:
            place /= part
            make_private_directory(place)
        for name in ENCLAVE_FILES:
            shutil.copy2(store.enclave(path) / name, place)


def guests_of(keys: Path) -> tuple[str, ...]:
    """Return who has enclaves and is not in the roster: robots, `observer` and `watch`."""
    store = Keystore(keys)
    here = (store.folder / SETTINGS_FILE).exists()
    return (*store.settings().homes, OBSERVER, WATCH) if here else ()


def _signed_by_root(*certificates: bytes) -> bytes:
    """Return what the root signs of its authorities, both certificates in PEM."""
    return b'fdrl_ros authorities 1\n' + b''.join(certificates)


_Authorities = tuple[Authority, Authority]
"""Who signs certificates, and who signs rules."""


def _changing(store: Keystore) -> AbstractContextManager[Transaction]:
    """Hold the directory of the keys, which must have that of the root."""
    if not (store.keys / ROOT).is_dir():
        raise KeyFileError(f'{store.keys / ROOT} is not here: enclaves are made where the root is')
    return transaction(store.keys)


def _new_authorities(
    store: Keystore,
    changes: Transaction,
    passphrase: Passphrase | None,
    identity: Authority | None = None,
) -> _Authorities:
    """Draw both authorities, or that of permissions alone, and have the root sign for both."""
    now, federation = utc(time.time()), store.roster().federation
    made = [] if identity is None else [identity]
    names = ('identity', 'permissions')
    kinds = tuple(zip(names, AUTHORITY_CERTIFICATES, AUTHORITY_FILES, strict=True))
    for what, certificate, key in kinds[len(made) :]:
        authority = Authority.make(f'fdrl {federation} {what}', now)
        about = {'created': int(now.timestamp())}
        sealed = seal(authority.der(), f'{key} of {federation}', about, passphrase)
        changes.write(f'{ROOT}/{key}', sealed)
        changes.write(f'{SECURITY_FOLDER}/{_PUBLIC}/{certificate}', pem(authority.certificate))
        made.append(authority)
    root = load_identity(store.keys / ROOT / KEY_FILE, ROOT, passphrase=passphrase)
    signature = root.sign(_signed_by_root(*(pem(each.certificate) for each in made)))
    changes.write(f'{SECURITY_FOLDER}/{_PUBLIC}/{_SIGNATURE}', signature)
    return made[0], made[1]


def _load_authorities(store: Keystore, passphrase: Passphrase | None) -> _Authorities:
    federation, found = store.roster().federation, []
    for certificate, key in zip(AUTHORITY_CERTIFICATES, AUTHORITY_FILES, strict=True):
        path = store.keys / ROOT / key
        der, _ = unseal(read_secret(path), f'{key} of {federation}', passphrase, path)
        found.append(Authority.of(read_certificate(store.public(certificate)), der))
    return found[0], found[1]


def _write(
    store: Keystore,
    changes: Transaction,
    settings: KeystoreSettings,
    passphrase: Passphrase | None,
    rotate: str = '',
    *,
    anew: bool = False,
) -> tuple[str, ...]:
    """
    Stage all files of a keystore.

    :param rotate: a party that gets new keys.
    :param anew: whether all get new keys, of new authorities.
    :returns: paths of the enclaves that get new keys.
    """
    roster, now = store.roster(), utc(time.time())
    former = {
        path: {serial: end for serial, end in own.items() if end > now.timestamp()}
        for path, own in store.issued().items()
    }
    identity, permissions = (
        _new_authorities(store, changes, passphrase)
        if anew
        else _load_authorities(store, passphrase)
    )
    specs = {each.full_name: each for each in settings.graph(roster)}
    places, present = settings.places(roster), store.present
    revoked: set[int] = set()
    for gone in {*present, *former} - specs.keys():
        revoked |= former.get(gone, {}).keys()
        for name in ENCLAVE_FILES:
            changes.remove(f'{SECURITY_FOLDER}/enclaves{gone}/{name}')
    certificates, texts, fresh, issued = {}, {}, [], dict[str, dict[int, int]]()
    for path, spec in specs.items():
        binding, before, own = binding_of(spec, roster), None, former.get(path, {})
        if path in present and not anew and party_of(spec) != rotate:
            before = store.certificate(path)
            if not _serves(before, binding):
                before = None
        if before is None:
            revoked |= own.keys()
            own = {}
        # One that ends soon is not revoked: nobody stole it, and hosts may still have it.
        if before is None or time_faults(before, now, soon=True):
            before, key = identity.issue(path, binding, now, settings.valid_days)
            changes.write(f'{SECURITY_FOLDER}/enclaves{path}/{PRIVATE_FILE}', key)
            fresh.append(path)
        certificates[path] = before
        issued[path] = {**own, before.serial_number: int(before.not_valid_after_utc.timestamp())}
        texts[path] = rules.permissions(spec, places, settings.numbers, validity_of(before))
    if anew:
        revoked = set()
    else:
        revoked |= revoked_serials(store.public(REVOCATIONS_FILE), identity.certificate)
        if any(_loses(store, path, permissions, texts.get(path)) for path in former):
            identity, permissions = _new_authorities(store, changes, passphrase, identity)
    documents = {
        REVOCATIONS_FILE: identity.revocations(revoked, now),
        GOVERNANCE_FILE: signed(rules.governance(settings.numbers), permissions),
        AUTHORITY_CERTIFICATES[0]: pem(identity.certificate),
        AUTHORITY_CERTIFICATES[1]: pem(permissions.certificate),
    }
    for path, certificate in certificates.items():
        own_files = {
            CERTIFICATE_FILE: pem(certificate),
            PERMISSIONS_FILE: signed(texts[path], permissions),
        }
        if fault := length_fault(own_files[PERMISSIONS_FILE]):
            raise SecurityError(f'{path}: {fault}')
        for name, data in (documents | own_files).items():
            changes.write(f'{SECURITY_FOLDER}/enclaves{path}/{name}', data)
    changes.write(f'{SECURITY_FOLDER}/{_PUBLIC}/{REVOCATIONS_FILE}', documents[REVOCATIONS_FILE])
    for domain in Domain:
        changes.write(
            f'{SECURITY_FOLDER}/{_POLICIES}/{domain}.policy.xml',
            rules.policy(specs.values(), places, domain),
        )
    text = json.dumps({**asdict(settings), _ISSUED: issued}, indent=1) + '\n'
    changes.write(f'{SECURITY_FOLDER}/{SETTINGS_FILE}', text.encode())
    return tuple(fresh)


def _loses(store: Keystore, path: str, permissions: Authority, text: bytes | None) -> bool:
    """
    Return whether an enclave may do less from now on.

    :param text: its permissions from now on; None if it has none any more.
    """
    try:
        signed_before = store.read(store.enclave(path) / PERMISSIONS_FILE)
        before = rules.rules_in(verified(signed_before, permissions.certificate))
    except SecurityError:
        return True  # nobody knows what it had
    return text is None or not before <= rules.rules_in(text)


def length_fault(permissions: bytes) -> str:
    """Say that signed permissions are too long for the middleware; empty if they are not."""
    if len(permissions) <= LONGEST_PERMISSIONS:
        return ''
    return (
        f'{PERMISSIONS_FILE}: {len(permissions)} bytes, and the middleware carries '
        f'{LONGEST_PERMISSIONS}: take shorter names, or fewer hospitals and robots'
    )


def validity_of(certificate: x509.Certificate) -> tuple[datetime, datetime]:
    """Return when a certificate's validity begins and ends, UTC."""
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def _serves(certificate: x509.Certificate, binding: Binding) -> bool:
    """Return whether a certificate is bound to its party's present signing key."""
    return replace(Binding.of(certificate), serial=binding.serial) == binding
