# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Primes p = 1 mod 2N, for which a ring of degree N splits into slots (batching, NTT)."""

from fdrl_ros.errors import CryptoError


def is_prime(number: int) -> bool:
    """Tell whether a number below 2^64 is prime (Miller-Rabin with bases that settle it)."""
    bases = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    if number < 2:
        return False
    for base in bases:
        if number % base == 0:
            return number == base
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in bases:
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def plain_prime(least: int, poly_degree: int) -> int:
    """Return the smallest prime p >= least with p = 1 mod 2N, which batching needs."""
    factor = 2 * poly_degree
    number = -(-(least - 1) // factor) * factor + 1
    while not is_prime(number):
        number += factor
    return number


def coefficient_primes(bits: tuple[int, ...], poly_degree: int) -> tuple[int, ...]:
    """
    Return, for each size, a prime of that many bits with p = 1 mod 2N: the largest there are.

    :raises CryptoError: if there are not enough of them.
    """
    factor = 2 * poly_degree
    primes: dict[int, list[int]] = {}
    for size in sorted(set(bits)):
        number = (2**size - 1) // factor * factor + 1
        found = primes.setdefault(size, [])
        while len(found) < bits.count(size):
            if number < 2 ** (size - 1):
                raise CryptoError(f'{bits.count(size)} primes of {size} bits: there are fewer')
            if is_prime(number):
                found.append(number)
            number -= factor
    # SEAL deals primes of one size from the smallest of them upwards.
    return tuple(primes[size].pop() for size in bits)
