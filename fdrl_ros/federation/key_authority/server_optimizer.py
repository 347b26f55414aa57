# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The server's step as an optimiser of the average updates: momentum, Adagrad, Adam, Yogi.

Momentum is FedAvgM (Hsu et al. 2019), the others are Algorithm 2 of Reddi et al. 2021, Adaptive
Federated Optimization. All arithmetic is of single float64 numbers by basic operations, so that
every machine makes the same bits.
"""

from dataclasses import dataclass
import hashlib
from typing import Self

from fdrl_ros.errors import MessageError, PolicyError, StoreError
from fdrl_ros.federation.key_authority.robust import RULES
from fdrl_ros.federation.key_authority.server_step import fed_avg, RoundSum, ServerStep, Stepped
from fdrl_ros.federation.protocol.encoding import decode, encode
from fdrl_ros.settings import setting, Settings
import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

MOST_WEIGHT = 2.0**20
"""Largest weight that a step may make; numbers of float32 are 1/8 apart there."""

_ADAPTIVE = ('fedadagrad', 'fedadam', 'fedyogi')


@dataclass(frozen=True)
class ServerOptimizerSettings(Settings):
    """How the key authority makes the next global weights out of the average update."""

    optimizer: str = setting(
        'fedavg',
        'what the key authority adds to the weights: the average update, its momentum, or a '
        'momentum whose steps adapt to each weight; a task with a server step of its own has '
        'fedavg',
        choices=('fedavg', 'fedavgm', *_ADAPTIVE),
    )
    rate: float = setting(
        0.0,
        "eta: the server's learning rate; 0: 1 with fedavg and fedavgm, 0.01 with the others",
        limits=(0.0, 1000.0),
    )
    momentum: float = setting(
        0.9,
        'beta_1: share of the momentum that a round keeps; not with fedavg',
        limits=(0.0, 0.9999),
    )
    decay: float = setting(
        0.99,
        'beta_2: share of the mean square update that a round keeps, with fedadam and fedyogi',
        limits=(0.0, 0.9999),
    )
    adaptivity: float = setting(
        0.001,
        'tau: what is added to the root mean square update of a weight; updates far below it take '
        'small steps; with fedadagrad, fedadam and fedyogi',
        limits=(1e-9, 1000.0),
    )

    combine: str = setting(
        'mean',
        'how averages of buckets become one: the mean, which is FedAvg, or what a few poisoned '
        'ones cannot move far; with federation.buckets alone',
        choices=RULES,
    )

    def step(self) -> ServerStep:
        """Return the step; the function `fed_avg` where it is that."""
        plain = self.optimizer == 'fedavg' and self.rate in (0.0, 1.0)
        return fed_avg if plain else ServerOptimizer(self)


@dataclass(frozen=True, eq=False)
class Moments:
    """
    What an optimiser keeps from round to round.

    :param first: m, the momentum of the average updates, shape (shared weights,), float64.
    :param second: v, of their squares, the same shape; empty where steps do not adapt.
    """

    first: Vector
    second: Vector

    def to_bytes(self, optimizer: str) -> bytes:
        """Return the moments as the key authority keeps them, with a checksum before them."""
        parts = (each.astype('<f8').tobytes() for each in (self.first, self.second))
        body = encode((optimizer.encode(), *parts))
        return hashlib.sha256(body).digest() + body

    @classmethod
    def from_bytes(cls, data: bytes, optimizer: str, sizes: tuple[int, int]) -> Self:
        """
        Read what :meth:`to_bytes` wrote.

        :param sizes: how many numbers the moments have.
        :raises StoreError: if it is damaged, or of another optimiser or network.
        """
        way_out = (
            'put back the newest state file, or start with server.optimizer fedavg and order a '
            'roll-back, after which any optimizer begins anew'
        )
        checksum, body = data[:32], data[32:]
        if hashlib.sha256(body).digest() != checksum:
            raise StoreError(f"the state of the server's optimizer is damaged: {way_out}")
        try:
            owner, *parts = decode(body, tuple[bytes, ...])
        except MessageError as error:
            raise StoreError(f"not a state of the server's optimizer: {way_out}") from error
        found = owner.decode(errors='replace'), *(len(each) // 8 for each in parts)
        if found != (optimizer, *sizes):
            raise StoreError(
                f"the state of the server's optimizer is of {found}, expected "
                f'{(optimizer, *sizes)}: {way_out}'
            )
        return cls(*(np.frombuffer(each, '<f8') for each in parts))


class ServerOptimizer:
    """The server's step: weights move along the moments of the average updates."""

    def __init__(self, settings: ServerOptimizerSettings) -> None:
        self._settings = settings
        self._adaptive = settings.optimizer in _ADAPTIVE
        self._rate = settings.rate or (0.01 if self._adaptive else 1.0)

    def check(self, state: bytes, count: int) -> None:
        """
        Refuse a state that no step can go on from.

        :param count: how many weights hospitals share.
        :raises StoreError: if it is damaged, or of another optimiser or network.
        """
        if self._settings.optimizer != 'fedavg':  # which goes on from any
            self._before(state, count)

    def __call__(self, given: RoundSum) -> Stepped:
        """
        Take the step of a round.

        :raises PolicyError: if a weight or moment is not finite, or a weight is too large.
        :raises StoreError: if the state is damaged, or of another optimiser or network.
        """
        chosen, update = self._settings, given.average
        with np.errstate(over='ignore', invalid='ignore'):
            moments = self._moments(given)
            moved = self._rate * moments.first
            if self._adaptive:
                moved /= np.sqrt(moments.second) + chosen.adaptivity
            made = given.weights[given.shared].astype(np.float64) + moved
        largest = float(np.abs(made).max(initial=0.0))
        if not (largest <= MOST_WEIGHT and np.isfinite(moments.second).all()):
            raise PolicyError(
                f'{chosen.optimizer} at rate {self._rate:g} made a weight of {largest:g} out of '
                f'updates of at most {float(np.abs(update).max(initial=0.0)):g}: expected finite '
                f'numbers up to {MOST_WEIGHT:g}'
            )
        weights = given.weights.copy()
        weights[given.shared] = made.astype(np.float32)
        keeps = chosen.optimizer != 'fedavg'
        return Stepped(weights, moments.to_bytes(chosen.optimizer) if keeps else b'')

    def _before(self, state: bytes, count: int) -> Moments:
        """Return the moments before a round; before the first, v_-1 = tau^2 and m_-1 = 0."""
        chosen, adapting = self._settings, count if self._adaptive else 0
        if state:
            return Moments.from_bytes(state, chosen.optimizer, (count, adapting))
        return Moments(np.zeros(count), np.full(adapting, chosen.adaptivity**2))

    def _moments(self, given: RoundSum) -> Moments:
        """Return the moments after a round."""
        chosen, update = self._settings, given.average
        if chosen.optimizer == 'fedavg':
            return Moments(update, np.empty(0))
        before, kept = self._before(given.state, update.size), chosen.momentum
        if not self._adaptive:
            return Moments(kept * before.first + update, before.second)
        first = kept * before.first + (1.0 - kept) * update
        second, square = before.second, update * update
        if chosen.optimizer == 'fedadagrad':
            second = second + square
        elif chosen.optimizer == 'fedadam':
            second = chosen.decay * second + (1.0 - chosen.decay) * square
        else:
            second = second - (1.0 - chosen.decay) * square * np.sign(second - square)
        return Moments(first, second)
