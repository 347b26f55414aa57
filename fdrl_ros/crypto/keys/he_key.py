# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Read and write the key authority's secret key of the homomorphic encryption (FDRL Eq. 6).

Apart from :mod:`fdrl_ros.crypto.keys.keystore`, which loads no encryption library.
"""

from pathlib import Path
import time
from typing import Final

from fdrl_ros.crypto.he.encryption import SecretContext
from fdrl_ros.crypto.keys.key_file import Passphrase, seal, unseal
from fdrl_ros.errors import CryptoError, KeyFileError
from fdrl_ros.runtime.durable import read_secret

_HOLDS: Final = 'secret key of the homomorphic encryption'


def he_bytes(
    secret: SecretContext, passphrase: Passphrase | None = None, *, after_round: int = 0
) -> bytes:
    """
    Serialise the key, sealed if there is a passphrase.

    :param after_round: the newest round that had been released when the key was drawn.
    """
    about = {
        'after_round': after_round,
        'created': int(time.time()),
        'public': secret.public.digest,
        'scheme': str(secret.scheme),
    }
    return seal(secret.to_bytes(), _HOLDS, about, passphrase)


def load_he(path: Path, *, passphrase: Passphrase | None = None) -> tuple[SecretContext, int]:
    """
    Read the key.

    :returns: the key, and the newest round that had been released when it was drawn.
    :raises PassphraseError: if the passphrase is missing, wrong, or not needed.
    :raises KeyFileError: as :func:`~fdrl_ros.crypto.keys.keystore.read_secret`, or if it is
        damaged.
    """
    data, about = unseal(read_secret(path), _HOLDS, passphrase, path)
    try:
        secret = SecretContext.from_bytes(data)
    except CryptoError as error:
        raise KeyFileError(f'{path} is damaged: {error}') from error
    after_round = about.get('after_round')
    if secret.public.digest != about.get('public') or type(after_round) is not int:
        raise KeyFileError(f'{path} is damaged: its label names another key')
    return secret, after_round
