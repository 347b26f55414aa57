# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Split a secret among members so that any t of them can restore it (Shamir 1979).

Secrets are 32 bytes of any value, so the field is that of the smallest prime above 2^256. Each
secret is a field element, and so is each share, 33 bytes. A share is the value of a polynomial of
degree t - 1 at its holder's place in the sorted list of members, counted from 1; the secret is its
value at 0. The place is not sent: it follows from the list, to which the sealing binds the shares.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from operator import mul
from secrets import randbelow
from typing import Final

from fdrl_ros.errors import CryptoError

PRIME: Final = 2**256 + 297
SECRET_BYTES: Final = 32
SHARE_BYTES: Final = 33
MOST_MEMBERS: Final = 2**16

_STEPS = 16


class ShareError(CryptoError):
    """Shares that cannot be dealt or give no secret; the message never contains a share."""


class TooFewSharesError(ShareError):
    """Fewer shares than the threshold: nothing can be restored."""


class DuplicateShareError(ShareError):
    """Two shares of one holder."""


class MalformedShareError(ShareError):
    """A share of another size or beyond the field, or shares that restore no secret."""


class InconsistentSharesError(ShareError):
    """Shares that do not lie on one polynomial: their dealer or a holder is wrong."""


@dataclass(frozen=True, repr=False)
class SharePair:
    """
    One holder's shares of the two secrets of a member; the holder may reveal only one of them.

    :param mask_secret: share of the secret behind the pair masks, 33 bytes.
    :param self_seed: share of the seed of the member's own mask, 33 bytes.
    """

    mask_secret: bytes
    self_seed: bytes


def positions(members: Collection[str]) -> dict[str, int]:
    """
    Return the place of each member, from 1, in the order of their names.

    :raises ShareError: if a name is repeated, or there are no or too many members.
    """
    numbered = {name: place for place, name in enumerate(sorted(members), 1)}
    if len(numbered) != len(members) or not 1 <= len(members) <= MOST_MEMBERS:
        raise ShareError(f'{len(members)} members: expected 1 to {MOST_MEMBERS}, all different')
    return numbered


def share(
    secret: bytes,
    threshold: int,
    members: Collection[str],
    coefficients: Sequence[int],
    only: str | None = None,
) -> dict[str, bytes]:
    """
    Deal the shares of a secret.

    :param secret: 32 bytes.
    :param threshold: t, how many shares restore the secret.
    :param members: names of all holders, in any order.
    :param coefficients: those of x, x^2, ... x^(t-1): secret, and uniform in [0, PRIME).
    :param only: the holder whose share is wanted; those of all unless given.
    :returns: 33 bytes for each member, in the order of the names.
    :raises ShareError: if an argument is not valid.
    """
    places = positions(members)
    if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        raise ShareError(f'secret: expected {SECRET_BYTES} bytes')
    _check_threshold(threshold, len(places))
    if len(coefficients) != threshold - 1:
        raise ShareError(f'{len(coefficients)} coefficients: expected {threshold - 1}')
    if not all(type(number) is int and 0 <= number < PRIME for number in coefficients):
        raise ShareError('coefficients: expected integers in [0, PRIME)')
    falling = [*reversed(coefficients), int.from_bytes(secret, 'big')]
    return {
        name: _value_at(place, falling).to_bytes(SHARE_BYTES, 'big')
        for name, place in places.items()
        if only in (None, name)
    }


def share_value(holder: str, data: bytes) -> int:
    """
    Parse an untrusted share.

    :raises MalformedShareError: if it is not 33 bytes, or is beyond the field.
    """
    if not isinstance(data, bytes) or len(data) != SHARE_BYTES:
        raise MalformedShareError(f'share of {holder!r}: expected {SHARE_BYTES} bytes')
    value = int.from_bytes(data, 'big')
    if value >= PRIME:
        raise MalformedShareError(f'share of {holder!r}: beyond the field')
    return value


class Recovery:
    """
    Restores secrets from the shares of one set of holders.

    The Lagrange weights depend on the holders' places alone: they are computed once, and each
    secret is a sum of products. With more than t holders, all shares are checked to lie on one
    polynomial of degree t - 1: only then is their sum with the weights of a random word of the
    dual code zero, except with probability 2^-256 (Cascudo & David 2017).

    :param threshold: t.
    :param members: all members among whom the secrets were shared.
    :param holders: members whose shares are available.
    :raises TooFewSharesError: if they are fewer than the threshold.
    :raises ShareError: if a holder is repeated, or is no member.
    """

    def __init__(self, threshold: int, members: Collection[str], holders: Collection[str]) -> None:
        """Compute the weights."""
        places = positions(members)
        _check_threshold(threshold, len(places))
        if len(set(holders)) != len(holders):
            raise DuplicateShareError('two shares of one holder')
        strangers = sorted(set(holders) - set(places))
        if strangers:
            raise ShareError(f'shares of {strangers[0]!r}, among whom nothing was shared')
        if len(holders) < threshold:
            raise TooFewSharesError(f'{len(holders)} shares: expected at least {threshold}')
        self.holders = tuple(sorted(holders))
        self._surplus = len(holders) - threshold
        at = tuple(places[name] for name in self.holders)
        self._weights, self._check = _weights_and_check(at, self._surplus)

    def recover(self, shares: Mapping[str, bytes]) -> bytes:
        """
        Restore one secret.

        :param shares: of exactly the holders, 33 bytes each.
        :returns: 32 bytes.
        :raises MalformedShareError: if a share is malformed, or they restore no secret.
        :raises InconsistentSharesError: if a surplus share does not agree with the others.
        """
        if shares.keys() != set(self.holders):
            raise ShareError(f'shares of {len(shares)} holders: expected {len(self.holders)}')
        values = [share_value(holder, shares[holder]) for holder in self.holders]
        if self._surplus and sum(map(mul, self._check, values)) % PRIME:
            raise InconsistentSharesError(f'{len(values)} shares do not agree')
        secret = sum(map(mul, self._weights, values)) % PRIME
        if secret >= 2 ** (8 * SECRET_BYTES):
            raise MalformedShareError('the shares restore what is no secret: one is wrong')
        return secret.to_bytes(SECRET_BYTES, 'big')


@lru_cache(maxsize=4)
def _weights_and_check(
    places: tuple[int, ...], surplus: int
) -> tuple[Sequence[int], Sequence[int]]:
    """
    Return the Lagrange weights of the secret, and a random word of the dual code.

    Where nobody dropped out, the holders of all members are at the same places.
    """
    # 1 / prod (x_i - x_j): the weights of the secret and of every check derive from these.
    dual = [
        pow(prod([place - other for other in places if other != place]), -1, PRIME)
        for place in places
    ]
    whole = prod(places) * (-1) ** (len(places) - 1)
    weights = [whole // place * each % PRIME for place, each in zip(places, dual, strict=True)]
    challenge = [randbelow(PRIME) for _ in range(surplus)]
    check = [
        _value_at(place, challenge) * each % PRIME
        for place, each in zip(places, dual, strict=True)
    ]
    return weights, check


def _check_threshold(threshold: int, members: int) -> None:
    """Refuse a threshold of one, which would deal out the secret, or above the members."""
    if type(threshold) is not int or not 2 <= threshold <= members:
        raise ShareError(f'threshold {threshold!r} of {members} members: expected 2 to {members}')


def _value_at(place: int, falling: Sequence[int]) -> int:
    """Evaluate a polynomial, its coefficients from the highest power down (Horner)."""
    value = 0
    # Places are small, so reducing once in several steps is faster.
    for start in range(0, len(falling), _STEPS):
        for coefficient in falling[start : start + _STEPS]:
            value = value * place + coefficient
        value %= PRIME
    return value
