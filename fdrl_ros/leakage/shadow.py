# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Shadow models: what an attacker trains, by the hospital's own arithmetic, to know what is usual.

The weights are those that :class:`fdrl_ros.learner.trainer.Trainer` ends with for the same coins
and the same noise, bit for bit (native/shadow.c). There is no ledger, no checkpoint and no secret
noise, so nothing made here may be released: :class:`ShadowWeights` is no policy, and nothing turns
it into one.
"""

from dataclasses import dataclass
import math

from fdrl_ros.errors import PolicyError, PrivacyError, SettingError
from fdrl_ros.learner.gradient import DuelingGradients
from fdrl_ros.learner.network_kernel import NetworkKernel
from fdrl_ros.learner.optimizer import BETAS
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.policy import NetworkShape
from fdrl_ros.privacy.mechanism import clip_limit, grid_of, poisson_sample
from fdrl_ros.privacy.noise import NoiseSource
from fdrl_ros.runtime.kernels import check_built, ffi, gaussian, lib
import numpy as np
from numpy.typing import NDArray

_UNSUPPORTED = (
    ('averaging', 0.0),
    ('frozen', ''),
    ('offsets', ''),
    ('replay', 'poisson'),
    ('idle_weight', 1.0),
)
"""Settings of the trainer that the compiled loop does not have, at the values that it takes."""


@dataclass(frozen=True, eq=False)
class ShadowWeights:
    """
    Weights of a shadow model: NEVER TO BE RELEASED, since no budget was charged for them.

    ``values``: flat, shape (n_parameters,), float32, read-only.
    """

    values: NDArray[np.float32]

    def __post_init__(self) -> None:
        """
        Keep a copy that nobody can change.

        :raises PolicyError: if a weight is not finite.
        """
        values = np.array(self.values, np.float32)
        if not np.isfinite(values).all():
            raise PolicyError('a shadow model diverged: a lower learning_rate may hold it')
        values.setflags(write=False)
        object.__setattr__(self, 'values', values)


@dataclass(frozen=True, eq=False)
class Draws:
    """
    The coins and the noise of some steps.

    ``joined``: numbers of the members that join, step by step in one run, int64. ``starts``: where
    each step begins in it, then its length, shape (steps + 1,), int64. ``noise``: N(0, 1), shape
    (steps, n_parameters), or None without noise.
    """

    joined: NDArray[np.int64]
    starts: NDArray[np.int64]
    noise: NDArray[np.float64] | None = None

    @property
    def steps(self) -> int:
        """Steps that these are the draws of."""
        return len(self.starts) - 1

    @classmethod
    def seeded(
        cls,
        rng: np.random.Generator,
        steps: int,
        members: int,
        rate: float,
        noise: int = 0,
    ) -> 'Draws':
        """
        Draw fast, NOT PRIVATE.

        :param members: how many toss a coin in each step.
        :param rate: q, chance of each to join.
        :param noise: numbers of noise in a step; 0 draws none.
        """
        coins = rng.random((steps, members)) < rate
        starts = np.concatenate(([0], np.cumsum(coins.sum(axis=1)))).astype(np.int64)
        drawn = None
        if noise:
            words = rng.integers(2**64, size=2 * -(-steps * noise // 2), dtype=np.uint64)
            drawn = gaussian(words)[: steps * noise].reshape(steps, noise)
        return cls(np.nonzero(coins)[1], starts, drawn)

    @classmethod
    def of_trainer(
        cls,
        source: NoiseSource,
        round: int,
        steps: int,
        members: int,
        rate: float,
        noise: int = 0,
    ) -> 'Draws':
        """
        Draw what a trainer with this source draws in a round.

        :raises PrivacyError: if the source is not seeded: shadows never touch a hospital's noise.
        """
        if source.private:
            raise PrivacyError('shadow models take seeded noise only: theirs is not a release')
        each = [poisson_sample(members, rate, source, round, step) for step in range(steps)]
        starts = np.cumsum([0, *map(len, each)]).astype(np.int64)
        drawn = None
        if noise:
            drawn = np.array(
                [source.gaussian('gradient', round, step, noise) for step in range(steps)]
            )
        return cls(np.concatenate(each), starts, drawn)


class ShadowTrainer:
    """
    Trains shadow models of one network on tables of transitions, without a ledger.

    A member is one transition and one privacy unit, as in the FDRL paper's world.
    """

    def __init__(
        self, shape: NetworkShape, learner: LearnerSettings, privacy: PrivacySettings
    ) -> None:
        """
        Choose network, loss, clipping and noise.

        :param privacy: its clip_norm, noise_multiplier and batch count, nothing else.
        :raises PrivacyError: if the compiled arithmetic is missing.
        :raises SettingError: on a setting that shadow models do not have.
        """
        check_built()
        for name, only in _UNSUPPORTED:
            if getattr(learner, name) != only:
                raise SettingError(name, getattr(learner, name), f'{only!r} for shadow models')
        self.shape, self.learner, self.privacy = shape, learner, privacy
        trained = DuelingGradients(shape, learner).trained
        self.kernel = NetworkKernel(shape, learner, trained)
        size, sigma = shape.n_parameters, privacy.noise_multiplier
        grid = grid_of(sigma, privacy.clip_norm, size) if sigma else 1.0
        self._how = ffi.new(
            'fdrl_descent *',
            {
                'limit': clip_limit(privacy.clip_norm),
                'batch': privacy.batch,
                'grid': grid,
                'per_noise': sigma * privacy.clip_norm / grid,
                'share': grid / privacy.batch,
                'proximal': learner.proximal,
                'rate': learner.learning_rate,
                'mean_decay': BETAS[0],
                'square_decay': BETAS[1],
                'target_period': learner.target_period,
                'adam': learner.optimizer == 'adam',
            },
        )

    @property
    def noise_size(self) -> int:
        """Numbers of noise in a step: all weights, or none without noise."""
        return self.shape.n_parameters if self.privacy.noise_multiplier else 0

    def rate(self, declared: int) -> float:
        """Return q = L / n, for the n that a hospital declares."""
        return min(1.0, self.privacy.batch / declared)

    def round_steps(self, declared: int) -> int:
        """Return the steps of E local epochs."""
        return self.learner.epochs * math.ceil(1.0 / self.rate(declared))

    def train(
        self,
        start: NDArray[np.float32],
        table: NDArray[np.float32],
        members: NDArray[np.int64],
        draws: Draws,
    ) -> NDArray[np.float64]:
        """
        Take the steps of one round, from a fresh optimizer.

        :param start: weights, which the proximal term pulls towards, shape (n_parameters,).
        :param table: transitions as lines, see
            :attr:`fdrl_ros.learner.records.transitions.Transitions.table`.
        :param members: lines of the table that are trained on.
        :returns: weights in double precision, shape (n_parameters,).
        :raises SettingError: if weights, noise or lines do not fit.
        :raises PolicyError: if the weights diverged.
        """
        size, width = self.shape.n_parameters, 2 * self.shape.states + 3
        table = np.ascontiguousarray(table, np.float32)
        if table.ndim != 2 or table.shape[1] != width:
            raise SettingError('table', table.shape, f'lines of {width} numbers')
        if start.shape != (size,):
            raise SettingError('start', start.shape, f'{size} numbers')
        noise = draws.noise
        if (noise is None) != (not self.noise_size):
            raise SettingError('noise', noise is not None, 'noise exactly where some is asked for')
        if noise is not None and noise.shape != (draws.steps, size):
            raise SettingError('noise', noise.shape, f'{draws.steps} steps of {size} numbers')
        if len(draws.joined) and draws.joined.max() >= len(members):
            raise SettingError('joined', int(draws.joined.max()), f'below {len(members)} members')
        anchor = np.ascontiguousarray(start, np.float32)
        weights = anchor.astype(np.float64)
        lines = np.ascontiguousarray(members[draws.joined], np.int64)
        done = lib.fdrl_local_steps(
            self.kernel.network,
            self.kernel.loss,
            self._how,
            ffi.from_buffer('float[]', anchor),
            ffi.from_buffer('float[]', table),
            len(table),
            ffi.from_buffer('int64_t[]', lines),
            ffi.from_buffer('int64_t[]', np.ascontiguousarray(draws.starts, np.int64)),
            draws.steps,
            ffi.NULL if noise is None else ffi.from_buffer('double[]', noise),
            ffi.from_buffer('double[]', weights),
        )
        if done == lib.FDRL_NOT_FINITE:
            raise PolicyError('a shadow model diverged: a lower learning_rate may hold it')
        self.kernel.check(done, len(table))
        return weights
