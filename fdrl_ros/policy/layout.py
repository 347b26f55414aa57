# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Names and shapes of the tensors in a flat weight vector, and which of them hospitals share."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
import hashlib
import json
import math
import re

from fdrl_ros.errors import PolicyError
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Tensor:
    """
    One tensor of a policy.

    :param name: in dots, as PyTorch names it: ``shared.0.weight``.
    :param shape: sizes of its axes; a scalar has none.
    """

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class TensorLayout:
    """
    The order of named tensors in a flat float32 vector: frozen ones first, then trained ones.

    :param tensors: all of them, in that order.
    :param frozen: how many of the first ones keep the values of the public start.
    """

    tensors: tuple[Tensor, ...]
    frozen: int = 0

    def __post_init__(self) -> None:
        """Refuse tensors without a name, of the same name, or with an empty axis."""
        names = [tensor.name for tensor in self.tensors]
        if len(set(names)) < len(names) or not all(names):
            raise PolicyError(f'tensors {names}: expected different names')
        empty = [tensor.name for tensor in self.tensors if min(tensor.shape, default=1) < 1]
        if empty:
            raise PolicyError(f'tensor {empty[0]} has an axis without a weight')
        if not 0 <= self.frozen < len(self.tensors):
            raise PolicyError(
                f'{self.frozen} of {len(names)} tensors are frozen: nothing is left to train'
            )

    @classmethod
    def of(cls, tensors: Sequence[Tensor], frozen: Collection[str] = ()) -> 'TensorLayout':
        """
        Order tensors.

        :param frozen: names of tensors or of the modules that hold them.
        :raises PolicyError: if a name is not there, or nothing is left to train.
        """
        chosen = named(tensors, frozen)
        first = [tensor for tensor in tensors if tensor in chosen]
        last = [tensor for tensor in tensors if tensor not in chosen]
        return cls((*first, *last), len(first))

    @property
    def n_parameters(self) -> int:
        """Length of the flat vector."""
        return sum(tensor.size for tensor in self.tensors)

    @property
    def start(self) -> int:
        """Index of the first trained weight."""
        return sum(tensor.size for tensor in self.tensors[: self.frozen])

    def split(self, weights: NDArray) -> dict[str, NDArray]:
        """View each tensor in a flat vector, by its name."""
        return {
            tensor.name: weights[first:last].reshape(tensor.shape)
            for tensor, first, last in self.places()
        }

    def reordered(self, weights: NDArray, other: 'TensorLayout') -> NDArray:
        """
        Put the weights of another layout, of the same tensors, into the order of this one.

        :param weights: in the order of `other`, shape (n_parameters,).
        :returns: same shape and type.
        :raises PolicyError: if the layouts hold other tensors.
        """
        if set(self.tensors) != set(other.tensors):
            raise PolicyError(f'tensors {other.to_json()[:200]}: expected those of this layout')
        split = other.split(weights)
        return np.concatenate([split[tensor.name].reshape(-1) for tensor in self.tensors])

    def places(self) -> Iterator[tuple[Tensor, int, int]]:
        """Yield each tensor with the index of its first weight and that after its last."""
        first = 0
        for tensor in self.tensors:
            yield tensor, first, first + tensor.size
            first += tensor.size

    def shared(self, personal: Collection[str] = ()) -> NDArray[np.int64]:
        """
        Return the indices of the weights that hospitals share: neither frozen nor personal.

        :param personal: names of tensors, or of the modules that hold them, that stay at home.
        :returns: rising, shape (shared weights,), int64.
        :raises PolicyError: if a name is not there, or nothing is left to share.
        """
        kept = self._outside(personal)
        if not len(kept):
            raise PolicyError('every trained tensor is personal: nothing is left to share')
        return kept

    def trained(self, frozen: Collection[str] = ()) -> NDArray[np.int64]:
        """
        Return the indices of the weights that are trained.

        :param frozen: names of tensors, or of the modules that hold them, that are not, beside the
            first ones.
        :returns: rising, shape (trained weights,), int64.
        :raises PolicyError: if a name is not there, or nothing is left to train.
        """
        kept = self._outside(frozen)
        if not len(kept):
            raise PolicyError('every tensor is frozen: nothing is left to train')
        return kept

    def _outside(self, names: Collection[str]) -> NDArray[np.int64]:
        """Return the indices of the weights that are neither frozen nor of some names."""
        left_out = named(self.tensors, names)
        kept = [
            np.arange(first, last)
            for number, (tensor, first, last) in enumerate(self.places())
            if number >= self.frozen and tensor not in left_out
        ]
        return np.concatenate([np.empty(0, np.int64), *kept])

    def to_json(self) -> str:
        """Return the canonical text of this layout."""
        rows = [[tensor.name, list(tensor.shape)] for tensor in self.tensors]
        return json.dumps({'frozen': self.frozen, 'tensors': rows}, separators=(',', ':'))

    @classmethod
    def from_json(cls, text: str) -> 'TensorLayout':
        """
        Read what :meth:`to_json` wrote.

        :raises PolicyError: on anything else.
        """
        try:
            found = json.loads(text)
            tensors = tuple(
                Tensor(str(n), tuple(map(int, shape))) for n, shape in found['tensors']
            )
            made = cls(tensors, int(found['frozen']))
        except (ValueError, TypeError, KeyError) as error:
            raise PolicyError(f'not the layout of a policy: {text[:80]!r}') from error
        return made

    def digest(self) -> bytes:
        """Return the SHA-256 of the canonical text, 32 bytes."""
        return hashlib.sha256(self.to_json().encode()).digest()


def named(tensors: Sequence[Tensor], names: Collection[str]) -> set[Tensor]:
    """
    Return the tensors of some names, each of a tensor or of the module that holds it.

    :param names: in which * stands for any letters, dots too: `encoder.*.q`.
    :raises PolicyError: if nothing has such a name.
    """
    found = set()
    for name in names:
        form = re.compile(re.escape(name).replace(r'\*', '.*') + r'(\..*)?', re.DOTALL)
        mine = {tensor for tensor in tensors if form.fullmatch(tensor.name)}
        if not mine:
            known = ', '.join(tensor.name for tensor in tensors)
            raise PolicyError(f'no tensor or module {name!r}: expected some of {known}')
        found |= mine
    return found
