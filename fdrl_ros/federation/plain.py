# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The policies of a federation of many hospitals, without its messages, masks and encryption.

Each hospital trains and quantises as it does in the field; the integers are added modulo the
plaintext modulus, and the sum is applied by the server's step. Masks cancel and decryption is
exact, so that the policies are those of :class:`fdrl_ros.federation.virtual.VirtualFederation`,
bit for bit, at the cost of the training alone.
"""

from collections.abc import Callable, Mapping

from fdrl_ros.crypto.he.schemes import EncryptionSettings, projections_of, STATED_LIMIT
from fdrl_ros.federation.key_authority.server_step import (
    fed_avg,
    RoundSum,
    ServerStep,
    Stepped,
)
from fdrl_ros.federation.protocol.update_codec import UpdateCodec
from fdrl_ros.learner.learner import Learner
from fdrl_ros.policy.layout import TensorLayout
import numpy as np


class PlainFederation:
    """
    Rounds in which every hospital takes part, nobody lies and no policy is rolled back.

    It protects nobody, and hides nothing: it is for studies whose results are the policies.

    :param learners: by the hospital's name.
    :param start: public starting weights, shape (n_parameters,).
    :param layout: of the weights; hospitals share all that are not frozen.
    :param encryption: how updates are quantised; a limit of 0 is 1.0.
    :param step: the server's step.
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
    ) -> None:
        chosen = encryption or EncryptionSettings()
        self._learners, self._shared, self._step = learners, layout.shared(), step
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
        codec, base, number = self._codec, self.weights, self.round + 1
        sizes = [each.n_units for each in self._learners.values()]
        total = np.zeros((codec.scheme.ciphertexts, codec.scheme.slots), dtype=np.int64)
        for learner in self._learners.values():
            trained = learner.train(base, number, report=lambda told: None, stopped=stopped)
            uniforms = learner.rounding(number, codec.n_parameters)
            share, own = learner.n_units / max(sizes), trained.weights[self._shared]
            total += np.stack(list(codec.encode(own, base[self._shared], share, uniforms)))
            total %= codec.scheme.plain_modulus
        average = codec.average(total, sizes, max(sizes))
        given = RoundSum(number, base, self._shared, average, self.released.state)
        self.released, self.round = self._step(given), number
        return self.weights
