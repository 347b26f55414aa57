# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The secret behind a hospital's noise: a hash chain, link i + 1 = HKDF(link i), in a private file.

Round t draws from link 2 t, the home policy after it from link 2 t + 1. The file begins at the
first link that may still be needed. Those before it are erased, and nobody can compute them: a
thief of the file can draw what comes, and nothing of what is over (forward secrecy). A draw
depends on its round alone, so an erasure, early or late, changes no number.
"""

import os
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from fdrl_ros.crypto.keys.key_file import Passphrase, seal, unseal
from fdrl_ros.errors import KeyFileError, NoiseErasedError, PrivacyError
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.runtime.durable import create_once, read_secret, replace_secret

HOME_ROUNDS = 10**9
"""
Ledger and noise number what follows the rounds from here on.

Fine-tuning after round t has number 10^9 + t, the choice 2 x 10^9 + t, and training alone, which
does not depend on a round, 3 x 10^9.
"""

_KEY_BYTES = 32
_NAME_BYTES = 16
_HOLDS = 'noise key'
_FARTHEST = 2**21  # links ahead of the file: some 20 seconds of hashing


class NoiseKey:
    """
    A hospital's noise key file, sealed as its other keys, of one ledger.

    The key holds two secrets: the first link, and the secret of training alone.
    """

    def __init__(self, path: Path, passphrase: Passphrase | None = None) -> None:
        """
        Read a key file, or draw the key from the operating system's secure source.

        :raises PassphraseError: if the passphrase is missing, wrong, or not needed.
        :raises KeyFileError: if the file is damaged, of an older version, not ours, or open to
            others.
        """
        self._path, self._passphrase = path, passphrase
        create_once(path, self._fresh)
        self._data = read_secret(path)
        if is_old(self._data):
            raise KeyFileError(
                f'noise key {path} is of an older version, which can draw the noise of all past '
                'rounds again: `fdrl migrate` erases it, and a new one is drawn'
            )
        key, about = unseal(self._data, _HOLDS, passphrase, path)
        self._link, self._alone = key[:_KEY_BYTES], key[_KEY_BYTES:]
        try:
            self.first = int(str(about['first']))
            self._ledger, self.name = (bytes.fromhex(str(about[it])) for it in ('ledger', 'name'))
        except (KeyError, ValueError) as error:
            raise KeyFileError(f'noise key {path} is damaged: {error}') from error
        if len(key) not in (_KEY_BYTES, 2 * _KEY_BYTES):
            raise KeyFileError(f'noise key {path} is damaged: a key of {len(key)} bytes')
        self._latest = self.first, self._link

    def _fresh(self) -> bytes:
        about = {'first': 0, 'ledger': '', 'name': os.urandom(_NAME_BYTES).hex()}
        return seal(os.urandom(2 * _KEY_BYTES), _HOLDS, about, self._passphrase)

    def bind(self, ledger: Ledger) -> None:
        """
        Make this the key of a ledger, durably, or check that it is.

        Another ledger's noise is other noise, also under a copy that was made before.

        :raises KeyFileError: if it is the key of another ledger.
        """
        birth = ledger.owner.birth
        if self._ledger and self._ledger != birth:
            raise KeyFileError(
                f'noise key {self._path} is that of another ledger than {ledger.owner.hospital} '
                'has here: put its own back'
            )
        if not self._ledger:
            link, alone = (derive(each, b'ledger' + birth) for each in (self._link, self._alone))
            # A key that replaces a lost one begins where the ledger is: earlier rounds are over.
            self._write(max(_links_of(ledger), default=0), link, alone, birth)

    def check_erased(self, first: int, by: str) -> None:
        """
        Refuse a key that still holds what was erased before.

        :param first: first link that it held then.
        :param by: who noted that, for the message.
        :raises KeyFileError: if it does.
        """
        if self.first < first:
            raise KeyFileError(
                f'noise key {self._path} is older than {by}: put the newest key back and destroy '
                'this copy; if the newest is lost, remove this file: a new key is drawn'
            )

    def check_newest(self, ledger: Ledger) -> None:
        """
        Refuse a key that is older than the ledger, where rounds are erased one by one.

        :raises KeyFileError: if it can still draw a round that something else followed.
        """
        held = {link for link in _links_of(ledger) if link >= self.first}
        over = [link for link in held if link % 2 == 0 and link < max(held)]
        if over:
            self.check_erased(max(over) + 1, 'the ledger, where its rounds are over')

    def secret(self, round: int) -> bytes:
        """
        Return what the draws of a round derive from, 32 bytes.

        :param round: a round's number, or that of what follows it, see :data:`HOME_ROUNDS`.
        :raises NoiseErasedError: if it is erased.
        :raises PrivacyError: if it is more than a million rounds ahead.
        """
        link = _link_of(round)
        if not self._alone if link is None else link < self.first:
            raise NoiseErasedError(
                f'the noise of round {round} was erased when it was over: it cannot be drawn again'
            )
        if link is None:
            return self._alone
        if link >= self.first + _FARTHEST:
            raise PrivacyError(f'round {round} is too far ahead of the noise key {self._path}')
        return self._hashed(link)

    def forget(self, round: int) -> None:
        """
        Erase a round, and all before it, durably; may be called again.

        :raises KeyFileError: if the file was changed since it was opened, or cannot be written.
        """
        link = _link_of(round)
        if link is None:
            if self._alone:
                self._write(self.first, self._link, b'', self._ledger)
        elif link >= self.first:
            self.secret(round)
            self._write(link + 1, self._hashed(link + 1), self._alone, self._ledger)

    def _hashed(self, link: int) -> bytes:
        """Hash forward to a link that is still there; the latest one is kept in memory."""
        at, key = self._latest if self._latest[0] <= link else (self.first, self._link)
        for _ in range(link - at):
            key = derive(key, b'next')
        self._latest = link, key
        return key

    def _write(self, first: int, link: bytes, alone: bytes, ledger: bytes) -> None:
        if read_secret(self._path) != self._data:
            raise KeyFileError(f'noise key {self._path} was changed while it was in use: restart')
        about = {'first': first, 'ledger': ledger.hex(), 'name': self.name.hex()}
        data = seal(link + alone, _HOLDS, about, self._passphrase)
        replace_secret(self._path, data)
        self._data, self.first, self._ledger = data, first, ledger
        self._link, self._alone, self._latest = link, alone, (first, link)


def is_old(data: bytes) -> bool:
    """Return whether a file holds the noise key of a version that erased nothing: 32 bytes."""
    return len(data) == _KEY_BYTES and not data.startswith(b'fdrl_ros')


def derive(key: bytes, info: bytes, length: int = _KEY_BYTES) -> bytes:
    """Derive from a uniform key; so HKDF needs its second half only (RFC 5869)."""
    return HKDFExpand(SHA256(), length, b'fdrl_ros noise 2 ' + info).derive(key)


def _link_of(round: int) -> int | None:
    """Return the link that a round, or what follows it, draws from; None for training alone."""
    kind, of = divmod(round, HOME_ROUNDS)
    return None if kind > 2 else 2 * of + min(kind, 1)


def _links_of(ledger: Ledger) -> set[int]:
    """Return the links that blocks of a ledger drew from."""
    links = (_link_of(entry.round) for entry in ledger.chain.entries)
    return {link for link in links if link is not None}
