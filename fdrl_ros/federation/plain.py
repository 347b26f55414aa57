# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The policies of a federation of many hospitals, without its messages, masks and encryption.

Each hospital trains and quantises as it does in the field; the integers are added modulo the
plaintext modulus, bucket by bucket if there are several, and the server's step applies what they
make together. Masks cancel and decryption is
exact, so that the policies are those of :class:`fdrl_ros.federation.virtual.VirtualFederation`,
bit for bit, at the cost of the training alone.
"""

from collections.abc import Callable, Collection, Mapping

from fdrl_ros.crypto.he.schemes import EncryptionSettings, projections_of, STATED_LIMIT
from fdrl_ros.crypto.masking.buckets import Buckets, within
from fdrl_ros.federation.key_authority.robust import combine_some
from fdrl_ros.federation.key_authority.server_step import (
    fed_avg,
    RoundSum,
    ServerStep,
    Stepped,
    Weights,
)
from fdrl_ros.federation.key_authority.state import Validation
from fdrl_ros.federation.protocol.update_codec import UpdateCodec
from fdrl_ros.learner.learner import Learner
from fdrl_ros.policy.layout import TensorLayout
import numpy as np


def accept(weights: np.ndarray) -> Validation:
    """Let any policy pass."""
    return Validation(True, '')


class PlainFederation:
    """
    Rounds in which every hospital takes part and nobody lies.

    It protects nobody, and hides nothing: it is for studies whose results are the policies.

    :param learners: by the hospital's name.
    :param start: public starting weights, shape (n_parameters,).
    :param layout: of the weights; hospitals share all that are not frozen.
    :param encryption: how updates are quantised; a limit of 0 is 1.0.
    :param step: the server's step.
    :param deal: who is summed together in a round; all unless given.
    :param combine: how averages of buckets become one.
    :param validate: test of each new policy.
    :param test_buckets: whether it leaves out buckets whose average alone fails it.
    :raises CryptoError: if no scheme sums so many updates.
    """

    def __init__(
        self,
        learners: Mapping[str, Learner],
        start: np.ndarray,
        layout: TensorLayout,
        *,
        encryption: EncryptionSettings | None = None,
        step: ServerStep = fed_avg,
        deal: Callable[[int], Buckets] = lambda number: (),
        combine: str = 'mean',
        validate: Callable[[Weights], Validation] = accept,
        test_buckets: bool = False,
    ) -> None:
        chosen = encryption or EncryptionSettings()
        self._learners, self._shared, self._step = learners, layout.shared(), step
        self._deal, self._combine = deal, combine
        self._validate, self._test_buckets = validate, test_buckets
        self._codec = UpdateCodec.agree(
            self._shared.size,
            len(learners),
            chosen.bits,
            chosen.limit or STATED_LIMIT,
            chosen.scheme,
            norm=chosen.norm,
            projections=projections_of(chosen, self._shared.size),
        )
        self.round = 0
        """The newest round that was played."""
        self.released = Stepped(np.asarray(start, dtype=np.float32))
        """Its weights, and the state of the server's step."""

    @property
    def weights(self) -> np.ndarray:
        """The newest global weights, shape (n_parameters,), float32."""
        return self.released.weights

    def play(self, stopped: Callable[[], bool] = lambda: False) -> np.ndarray:
        """
        Play one round, and return the new weights.

        :raises TrainingStopped: as soon as `stopped` says so; the round is played anew then.
        :raises FdrlError: if a hospital cannot train, or no policy comes of the sum.
        """
        number = self.round + 1
        most = max(each.n_units for each in self._learners.values())
        averages: list[np.ndarray | None] = []
        sizes = []
        for bucket in within(self._deal(number), tuple(self._learners)):
            own = [self._learners[name].n_units for name in bucket]
            total = self._sum(bucket, most, stopped)
            average = self._codec.average(total, own, most)
            passes = not self._test_buckets or self._passes(fed_avg(self._given(average)))
            averages.append(average if passes else None)
            sizes.append(own)
        combined = combine_some(self._combine, averages, sizes)
        if combined is not None:
            stepped = self._step(self._given(combined))
            if self._passes(stepped):
                self.released = stepped
        self.round = number
        return self.weights

    def _sum(self, names: Collection[str], n_max: int, stopped: Callable[[], bool]) -> np.ndarray:
        """Let hospitals train; return the sum of their updates, as slots."""
        codec, base, number = self._codec, self.weights, self.round + 1
        total = np.zeros((codec.scheme.ciphertexts, codec.scheme.slots), dtype=np.int64)
        for learner in map(self._learners.__getitem__, names):
            trained = learner.train(base, number, report=lambda told: None, stopped=stopped)
            uniforms = learner.rounding(number, codec.n_parameters)
            share, own = learner.n_units / n_max, trained.weights[self._shared]
            total += np.stack(list(codec.encode(own, base[self._shared], share, uniforms)))
            total %= codec.scheme.plain_modulus
        return total

    def _given(self, average: np.ndarray) -> RoundSum:
        state = self.released.state
        return RoundSum(self.round + 1, self.weights, self._shared, average, state)

    def _passes(self, stepped: Stepped) -> bool:
        return self._validate(stepped.weights).passed
