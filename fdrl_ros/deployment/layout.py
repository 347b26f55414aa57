# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Where the files of a federation lie in its directory."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
import time

from fdrl_ros.crypto.keys import keystore
from fdrl_ros.crypto.keys.key_file import Passphrase
from fdrl_ros.crypto.keys.roster import remember_roster, Roster, ROSTER_MEMORY, SERVERS
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.crypto.keys.transaction import reading
from fdrl_ros.deployment.bringup import PLAN_FILE
from fdrl_ros.deployment.namespaces import FEDERATION
from fdrl_ros.errors import KeyFileError, StoreError
from fdrl_ros.runtime.durable import make_private_directory

ROBOTS = ('robot_1',)

MAKERS = '`fdrl run` and `fdrl train` make runs, such as runs/latest, `fdrl prepare` a federation'
"""What to do where neither is."""


@dataclass(frozen=True)
class Layout:
    """
    Paths below a federation's directory.

    :param passphrase_file: file with the passphrase of the keys; the one that the variable
        FDRL_PASSPHRASE_FILE names, if None.
    """

    directory: Path
    passphrase_file: Path | None = None

    @classmethod
    def find(cls, path: Path) -> 'tuple[Layout, str]':
        """
        Find the federation of a run, of itself, or of a party's directory.

        :returns: the federation, and the party's name; '' if the path is not that of a party.
        :raises StoreError: if the path is none of them.
        """
        path = path.absolute()
        # A run keeps a copy of its plan too, so its federation comes first.
        for place in (path / 'federation', path):
            if cls(place).plan.exists() or cls(place).keys.exists():
                return cls(place), ''
        around = cls(path.parent)
        if around.keys.exists():
            return around, path.name
        if not path.exists():
            raise StoreError(f'{path} is not there: {MAKERS}')
        raise StoreError(f'{path} is neither a run nor a federation, nor a party of one: {MAKERS}')

    @classmethod
    def find_whole(cls, path: Path) -> 'Layout':
        """
        Find the federation of a run or of itself.

        :raises StoreError: if the path is neither, a party's directory included.
        """
        layout, party = cls.find(path)
        if party:
            raise StoreError(f'{path} is neither a run nor a federation: {MAKERS}')
        return layout

    def __getstate__(self) -> dict[str, Path | None]:
        """Leave the passphrase out of what goes to another process."""
        return {'directory': self.directory, 'passphrase_file': self.passphrase_file}

    @cached_property
    def passphrase(self) -> Passphrase | None:
        """The passphrase of the keys, read once; None where they are in clear."""
        return keystore.load_passphrase(self.passphrase_file)

    @property
    def plan(self) -> Path:
        """The plan that the directory was prepared for."""
        return self.directory / PLAN_FILE

    @property
    def keys(self) -> Path:
        """Keys of all parties and the signed roster."""
        return self.directory / 'keys'

    @property
    def pretrained(self) -> Path:
        """The public starting policy."""
        return self.directory / 'pretrained.npz'

    @property
    def graph(self) -> Path:
        """The ONNX graph of the network, without weights, where robots may run one."""
        return self.directory / 'network.onnx'

    @property
    def log(self) -> Path:
        """Log files, one a node."""
        return self.directory / 'log'

    @property
    def others(self) -> tuple[str, ...]:
        """Names that no robot may have, besides those of hospitals: its folder would be theirs."""
        return (*SERVERS, FEDERATION, self.keys.name, self.log.name)

    def party(self, name: str) -> Path:
        """Return the directory of a hospital, server or robot."""
        return self.directory / name

    def records(self, name: str) -> Path:
        """Return the file of a hospital's records."""
        return self.party(name) / 'records.npz'

    def state(self, name: str) -> Path:
        """Return the file of what a party must not forget."""
        return self.party(name) / 'state.sqlite'

    @property
    def he_key(self) -> Path:
        """The key authority's secret key of the homomorphic encryption."""
        return self.keys / 'key_authority' / keystore.HE_FILE

    def check_keys_there(self) -> None:
        """
        Refuse a directory that is no federation.

        :raises KeyFileError: saying what makes one.
        """
        if not self.directory.exists():
            raise KeyFileError(f'{self.directory} is not there: {MAKERS}')
        if not self.keys.exists():
            raise KeyFileError(f'{self.directory} is no federation, as it has no keys/: {MAKERS}')

    def roster(self) -> Roster:
        """
        Read the roster and check it against the root's public key beside it.

        :raises RosterError: if the root did not sign it.
        :raises KeyFileError: if the directory has no keys.
        """
        self.check_keys_there()
        with reading(self.keys):
            return Roster.load(
                self.keys / keystore.ROSTER_FILE,
                keystore.load_root_public(self.keys / keystore.ROOT_FILE),
            )

    def trusted_roster(self, name: str) -> Roster:
        """
        Read the roster as a party or robot that is going to act by it.

        :param name: whose memory tells which roster was the newest.
        :raises RosterTimeError: if it is not valid by this host's clock.
        :raises RosterRollbackError: if it is older than one that was used here.
        :raises RosterError: if the root did not sign it.
        """
        roster = self.roster()
        roster.check_time(time.time())
        if not self.party(name).exists():  # of a hospital that came to the roster later
            make_private_directory(self.party(name))
        remember_roster(self.party(name) / ROSTER_MEMORY, roster)
        return roster

    def credentials(self, name: str) -> tuple[Identity, Roster]:
        """
        Read a party's key, and the roster by which it acts.

        :raises RosterError: as :meth:`trusted_roster`, or if the party is not in it.
        :raises PassphraseError: if the passphrase is missing, wrong, or not needed.
        :raises KeyFileError: if the key is missing, damaged, or not that of the roster.
        """
        with reading(self.keys):
            roster = self.trusted_roster(name)
            member, path = roster.member(name), self.keys / name / keystore.KEY_FILE
            identity = keystore.load_identity(path, name, passphrase=self.passphrase)
        if identity.public != member.public:
            raise KeyFileError(
                f'roster {roster.serial} holds another key of {name} than {path}: one of the two '
                f'is older; fetch both from who holds the root'
            )
        return identity, roster
