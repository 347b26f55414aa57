# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The kinds of homomorphic encryption to choose from (FDRL Eq. 6); no library is loaded here."""

from dataclasses import dataclass, fields
from typing import Final, get_args

from fdrl_ros.crypto.he.bfv import BfvScheme
from fdrl_ros.crypto.he.ckks import CkksScheme
from fdrl_ros.errors import CryptoError, ModelSizeError, SettingError
from fdrl_ros.settings import setting, Settings

AnyScheme = BfvScheme | CkksScheme
"""Every scheme; `BACKENDS` of tenseal_backend.py has the library behind each."""

STATED = ('kind', 'summary', 'dishonest_warning')
"""Texts that each scheme states in its own class: nothing is inherited by mistake."""


def register(*schemes: type[AnyScheme]) -> dict[str, type[AnyScheme]]:
    """
    Return schemes by kind.

    :raises CryptoError: if one lacks what every scheme has, or two have the same kind.
    """
    found: dict[str, type[AnyScheme]] = {}
    for scheme in schemes:
        missing = [name for name in STATED if not isinstance(vars(scheme).get(name), str)]
        missing += sorted(scheme.__abstractmethods__)
        if 'plain_modulus' not in {*dir(scheme), *(each.name for each in fields(scheme))}:
            missing.append('plain_modulus')
        if missing:
            raise CryptoError(f'scheme {scheme.__name__} lacks {", ".join(missing)}')
        if scheme.kind in found:
            names = f'{found[scheme.kind].__name__} and {scheme.__name__}'
            raise CryptoError(f'schemes {names} have the same kind {scheme.kind!r}')
        found[scheme.kind] = scheme
    return found


SCHEMES: Final = register(*get_args(AnyScheme))

MOST_PARAMETERS: Final = 2**26 - 2**18
"""Most weights of a policy: with 4 bytes each they leave 1 MiB of the longest message free."""


STATED_LIMIT: Final = 1.0
"""The limit where none is set and what an honest hospital can make is not known."""

_LEAST_LIMIT = 1e-6


def _help_of(scheme: type[AnyScheme]) -> str:
    caution = ' (for honest hospitals only)' if scheme.dishonest_warning else ''
    return f'{scheme.kind} {scheme.summary}{caution}'


@dataclass(frozen=True)
class EncryptionSettings(Settings):
    """Encryption settings that all hospitals of a federation share."""

    limit: float = setting(
        0.0,
        'largest scaled change of one parameter in one round; larger ones are clipped; 0: what '
        'an honest hospital can make by the settings of its learner',
        limits=(0.0, 1e3),
    )
    scheme: str = setting(
        'bfv',
        'homomorphic encryption: ' + ', '.join(map(_help_of, SCHEMES.values())),
        choices=tuple(SCHEMES),
    )
    bits: int = setting(
        16, 'bits of one quantised value; more are finer and larger', limits=(2, 32)
    )
    norm: float = setting(
        0.0,
        'largest L2 norm of the scaled changes of all parameters in one round; larger ones are '
        'scaled down; 0: what an honest hospital can make by the settings of its learner, or '
        'that of all parameters at the limit, if that is stated',
        limits=(0.0, 1e9),
    )
    projections: int = setting(
        64,
        'most random projections of each update that the key authority sees, to bound its norm; '
        'at most one for each 16 trained weights are used, and at least 4; 0: none, uploads are '
        'smaller, and a hospital may move the sum of a parameter by the limit of all; always 0 '
        'with ckks',
        limits=(0, 1024),
    )

    def __post_init__(self) -> None:
        """Refuse a limit below what float32 weights can show, and a norm that nobody looks at."""
        super().__post_init__()
        if self.norm and not (self.projections and SCHEMES[self.scheme].inspected):
            expected = '0: without projections, as with ckks, the norm of an update is not bounded'
            raise SettingError('norm', self.norm, expected)
        if 0.0 < self.limit < _LEAST_LIMIT:
            raise SettingError('limit', self.limit, f'0, or at least {_LEAST_LIMIT:g}')


def check_size(n_parameters: int) -> None:
    """
    Refuse a model whose policies do not fit in a message.

    :param n_parameters: weights of the whole policy, also those that are not shared.
    :raises ModelSizeError: if there are too many.
    """
    if n_parameters > MOST_PARAMETERS:
        raise ModelSizeError(
            f'a model of {n_parameters} weights: expected at most {MOST_PARAMETERS}; federate '
            'adapters or a smaller network'
        )


def projections_of(settings: EncryptionSettings, trained: int) -> int:
    """
    Return of how many projections a federation's updates are bounded.

    The key authority sees that many numbers of each update, so they have to be few.

    :param trained: weights that training may change.
    """
    if not SCHEMES[settings.scheme].inspected:
        return 0
    return min(settings.projections, max(4, trained // 16))


def choose_scheme(
    n_parameters: int, members: int, bits: int, kind: str = 'bfv', *, projected: bool = False
) -> AnyScheme:
    """
    Return the smallest scheme of a kind that is secure and exact, or, for CKKS, exact enough.

    :param n_parameters: P, integers in one update.
    :param members: most hospitals in one sum.
    :param bits: bits of one quantised integer.
    :param kind: one of :data:`SCHEMES`.
    :param projected: whether there is room for projections of updates.
    :raises ModelSizeError: if there are more integers than any message holds.
    :raises CryptoError: if none fits.
    """
    check_size(n_parameters)
    if kind not in SCHEMES:
        raise CryptoError(f'encryption {kind!r}: expected one of {[*SCHEMES]}')
    if projected and SCHEMES[kind].inspected:
        return BfvScheme.choose(n_parameters, members, bits, projected=True)
    return SCHEMES[kind].choose(n_parameters, members, bits)
