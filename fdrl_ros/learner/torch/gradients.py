# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Gradients of any PyTorch module and loss, clipped per privacy unit (DP-DQN Alg. 1).

A unit's gradient must depend on no other unit, down to the last bit: otherwise removing one
changes what others add to the sum, and clipping does not bound that. Three ways hold it. Many
units take one pass of a fixed number of places (:mod:`fdrl_ros.learner.torch.per_unit`), where a
trial on made-up data shows the same bits at every place and in every company: one backward pass
for modules and losses that ship, a map over units that hides each from the others for code of a
user. All else runs one unit at a time.
"""

from collections.abc import Callable, Iterator, Sequence
import copy
import math
import os
import warnings

from fdrl_ros.errors import PolicyError, PrivacyError
from fdrl_ros.learner.records.transitions import Batch
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.torch.losses import ALGORITHMS, Applied, Networks, Tensors
from fdrl_ros.learner.torch.modules import BUILT_IN
from fdrl_ros.learner.torch.network import TorchNetwork
from fdrl_ros.learner.torch.per_unit import (
    aligned,
    Gradients,
    Held,
    Mapped,
    Passes,
    Rows,
    Together,
    Watched,
)
from fdrl_ros.privacy.mechanism import clip_factors
import numpy as np
from numpy.typing import NDArray
from opacus.validators import ModuleValidator
import torch
from torch import nn

Array = NDArray[np.float32]

Way = Callable[[Tensors], Iterator[Gradients]]
"""From a batch to the gradients of its units, some units after the other."""

FEWEST, MOST = 16, 128
"""Units of a whole pass; a power of two between them."""

_WORK = 2**25
"""Weights times transitions of a pass that is large enough to be efficient."""

_MOST_NUMBERS = 2**26
"""Most numbers in the gradients of one pass, 256 MB."""

LEADING = (nn.Linear, nn.LayerNorm, nn.Embedding)
"""Layers with weights that take any number of leading axes."""


class TorchGradients:
    """Gradients of a module's loss; weights are flat, in the order of the network's layout."""

    def __init__(
        self, network: TorchNetwork, learner: LearnerSettings, *, public: bool = False
    ) -> None:
        """
        Choose module, loss and device.

        PyTorch runs on one thread from then on: hospitals are processes side by side, and the
        bits of a result do not depend on the number of processors.

        :param public: whether frozen weights are trained too, on public records.
        :raises PolicyError: if there is no such device.
        """
        torch.set_num_threads(1)
        self.network, self.learner = network, learner
        self.device = device_named(learner.device)
        self.algorithm = network.algorithm_of(learner)
        module = network.build(np.random.default_rng(0)).to(self.device)
        self._frozen = 0 if public else network.layout.frozen
        self.trained = Held(module.train(), network.layout, self._frozen)
        self._still, self._target = (
            Held(copy.deepcopy(module).eval(), network.layout) for _ in range(2)
        )
        start = 0 if public else network.layout.start
        self.index: slice | NDArray[np.int64] = slice(start, None)
        """Indices of the trained weights: frozen ones come first."""
        self.size = network.n_parameters - start
        """Number of trained weights: the length of a gradient."""
        self._ways: dict[int, Way] = {}
        self._watched: list[Watched] = []

    def check_private(self) -> None:
        """
        Refuse a module in which one unit could change what another adds to the sum.

        :raises PrivacyError: if a layer mixes units, keeps statistics of them, or draws numbers;
            the message names what to take instead.
        :raises PolicyError: if the loss cannot be computed, or is not finite, on made-up data.
        """
        for fault in ModuleValidator.validate(self.trained.module, strict=False):
            if 'BatchNorm' in str(fault) or 'running stats' in str(fault):
                modules = self.trained.module.named_modules()
                named = [
                    f'layer {name!r} ({type(each).__name__})'
                    for name, each in modules
                    if hasattr(each, 'track_running_stats')
                ]
                raise PrivacyError(
                    f'the module cannot be private: {", ".join(named)} normalises over patients '
                    'or keeps statistics of them; take nn.GroupNorm or nn.LayerNorm instead'
                )
        transitions = self.learner.transitions_per_patient
        made = self._tried(2, transitions)
        if self.device.type != 'cpu':
            self._check_repeatable(made)
        before = [each.clone() for each in self.trained.module.buffers()]
        drawn = self._random_state()
        first, second, _, third = (
            _formed(self._one_by_one(each)) for each in (made, made, _larger(made), made)
        )
        if not torch.isfinite(first).all():
            raise PolicyError(
                f'{self.network.algorithm} of module {self.network.module}: the loss or its '
                'gradient is not finite on made-up transitions'
            )
        if not (torch.equal(first, second) and torch.equal(drawn, self._random_state())):
            raise PrivacyError(
                'the module cannot be private: the same transitions give two gradients; leave out '
                'nn.Dropout and whatever else draws numbers'
            )
        for old, new in zip(before, self.trained.module.buffers(), strict=True):
            if not torch.equal(old, new):
                raise PrivacyError(
                    'the module cannot be private: a buffer changes with the data; take '
                    'nn.GroupNorm or nn.LayerNorm instead of layers that keep statistics'
                )
        if not torch.equal(first, third):
            raise PrivacyError(
                'the module cannot be private: module or loss remembers the transitions that it '
                'saw, as a running maximum does; scale by constants of the task instead'
            )
        rows = made.observations.flatten(0, 1)[:4]
        with torch.no_grad():
            together = self.algorithm.scores(self._still.module, rows)
            alone = [self.algorithm.scores(self._still.module, row[None]) for row in rows]
        if not torch.allclose(together, torch.cat(alone), rtol=1e-3, atol=1e-4):
            raise PrivacyError(
                'the module cannot be private: what it gives for one observation depends on the '
                'others beside it; normalise over the axes of one observation'
            )
        self.way(transitions)

    def _check_repeatable(self, made: Tensors) -> None:
        """Refuse a module whose operations a GPU cannot repeat bit for bit."""
        try:
            for _ in self._one_by_one(made):
                pass
        except RuntimeError as error:
            if 'deterministic' not in str(error):
                raise
            raise PrivacyError(
                f'the module cannot be private on a GPU, take learner.device cpu: {error}'
            ) from error

    def clipped_sum(
        self, weights: Array, target: Array, batch: Batch, clip_norm: float
    ) -> NDArray[np.float64]:
        """Clip each unit's mean gradient and sum; see :mod:`fdrl_ros.learner.gradients`."""
        way = self.way(batch.actions.shape[1])
        self._load(weights, target)
        total = torch.zeros(self.size, dtype=torch.float64, device=self.device)
        places = total.split([each.numel() for each in self.trained.trained])
        for made in way(self._tensors(batch)):
            squares = torch.stack([each.squares() for each in made]).sum(dim=0)
            factors = clip_factors(squares.sqrt().cpu().numpy(), clip_norm)
            kept = torch.from_numpy(np.flatnonzero(factors)).to(self.device)
            if len(kept) < len(factors):  # 0 times what is not finite is not 0
                made = [each.of(kept) for each in made]
            scales = torch.from_numpy(factors[factors > 0.0]).to(self.device)
            for place, gradient in zip(places, made, strict=True):
                gradient.add_to(place, scales)
        found: NDArray[np.float64] = total.cpu().numpy()
        return found

    def mean(self, weights: Array, target: Array, batch: Batch) -> NDArray[np.float64]:
        """Return the mean gradient over all transitions; see :mod:`fdrl_ros.learner.gradients`."""
        self._load(weights, target)
        tensors = self._tensors(batch)
        found: NDArray[np.float64] = torch.cat(self._gradient(tensors)).double().cpu().numpy()
        return found

    def errors(self, weights: Array, target: Array, batch: Batch) -> Array:
        """Return what a unit's priority comes from; see :mod:`fdrl_ros.learner.gradients`."""
        self._load(weights, target)
        networks = self.networks(self.trained.module, flat=True)
        with torch.no_grad():
            found = [self.algorithm.errors(networks, own) for own in _units(self._tensors(batch))]
        errors: Array = torch.cat(found).cpu().numpy()
        return errors

    def networks(self, module: nn.Module, flat: bool) -> Networks:
        """Return what a loss is computed with, see :class:`Networks`."""
        modules = module, self._still.module, self._target.module
        return Networks(*(Applied(each, flat) for each in modules))

    def losses(self, networks: Networks, batch: Tensors) -> torch.Tensor:
        """
        Return the weighted loss of each transition, (units, transitions).

        :raises PolicyError: if the algorithm gives anything else.
        """
        found = self.algorithm.losses(networks, batch)
        if found.shape != batch.rewards.shape:
            raise PolicyError(
                f'{self.network.algorithm} gives losses of shape {tuple(found.shape)}: expected '
                f'one for each transition, {tuple(batch.rewards.shape)}'
            )
        return found * batch.weights

    def way(self, transitions: int) -> Way:
        """
        Return how gradients of units with so many transitions are computed.

        The trial, at the first use, sees made-up data alone: the choice reveals nothing.
        """
        if transitions not in self._ways:
            self._ways[transitions] = self._fast(transitions) or self._one_by_one
        return self._ways[transitions]

    def _fast(self, transitions: int) -> Passes | None:
        """Return the fastest way that is exact here, and blind to company; None: there is none."""
        if self.network.places > 1:
            return None  # one unit is enough work, and many would fill the memory
        enough = _WORK / (self.size * transitions)
        places = min(max(FEWEST, min(MOST, enough)), _MOST_NUMBERS / self.size)
        places = 2 ** math.floor(math.log2(max(1.0, places)))
        sizes = [size for size in (places, places // 2, places // 4, places // 8) if size > 1]
        if not sizes:
            return None
        for form in (self._together, self._mapped):
            before = list(self._watched)
            try:
                way = form(transitions, sizes)
                with warnings.catch_warnings():
                    warnings.simplefilter('ignore')  # that vmap is slow for some layers
                    if way and self._holds(way, self._tried(places, transitions)):
                        return way
            except Exception:  # whatever a module raises that does not fit the way
                pass
            self._watched = before
        return None

    def _together(self, transitions: int, sizes: Sequence[int]) -> Passes | None:
        """
        Return one backward pass for many units, if this code is known to treat units alike.

        Of code of a user no trial would show it: it may depend on values that made-up data lack.
        """
        flat = transitions == 1
        leading = all(
            isinstance(each, LEADING) or not list(each.parameters(recurse=False))
            for each in self.trained.module.modules()
        )
        known = self.network.module in BUILT_IN and self.network.algorithm in ALGORITHMS
        if not known or not (flat or leading):
            return None
        networks = self.networks(self.trained.module, flat=flat)
        watched = Watched(self.trained.module, self.network.layout, self._frozen)
        self._watched.append(watched)
        return Together(watched, networks, self.losses, flat=flat, places=sizes)

    def _mapped(self, transitions: int, sizes: Sequence[int]) -> Passes:
        """Return one run of the code that is mapped over units."""
        networks = self.networks(self.trained.module, flat=True)
        return Mapped(self.trained, networks, self.losses, sizes)

    def _holds(self, way: Passes, made: Tensors) -> bool:
        """
        Try whether a way is exact, and blind to company; keep the sizes of a pass that are.

        :param made: as many units as have a place.
        """
        sizes, way.places = way.places, way.places[:1]
        everyone = _factors(way(made))
        turned = [each.flip(0) for each in _factors(way(made.turned()))]
        some = _factors(way(made.of(slice(None, None, 3))))
        blind = _equal(everyone, turned) and _equal([each[::3] for each in everyone], some)
        way.places = sizes
        for size in sizes[1:]:
            few = _factors(way(made.of(slice(size - 1))))
            if not _equal([each[: size - 1] for each in everyone], few):
                way.places = sizes[:1]
        fast, slow = (_formed(each(made.of(slice(2)))) for each in (way, self._one_by_one))
        near = 1e-5 * float(slow.abs().max())
        return blind and torch.allclose(fast, slow, rtol=1e-3, atol=near)

    def _one_by_one(self, batch: Tensors) -> Iterator[Gradients]:
        """Yield the gradients of one unit after the other."""
        for own in _units(batch):
            yield [Rows(each[None]) for each in self._gradient(own)]

    def _gradient(self, batch: Tensors) -> list[torch.Tensor]:
        """Return the gradient of the mean loss, (n,) for each trained tensor."""
        loss = self.losses(self.networks(self.trained.module, flat=True), batch).mean()
        weights = self.trained.trained
        parts = torch.autograd.grad(loss, weights, allow_unused=True)
        pairs = zip(parts, weights, strict=True)
        return [(torch.zeros_like(w) if x is None else x).reshape(-1) for x, w in pairs]

    def _load(self, weights: Array, target: Array) -> None:
        """Put flat weights into all modules."""
        self.trained.load(weights)
        self._still.load(weights)
        self._target.load(target)
        for each in self._watched:
            each.held.load(weights)

    def _tensors(self, batch: Batch) -> Tensors:
        """Copy a batch to the device."""
        spec = self.network.spec

        def moved(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)

        scales = np.ones_like(batch.rewards) if batch.weights is None else batch.weights
        states = batch.states, batch.next_states
        now, after = (self.network.observations(moved(each)) for each in states)
        columns = (batch.actions, batch.rewards, batch.discounts, scales)
        actions, rewards, discounts, weights = map(moved, columns)
        if spec.continuous:
            low, high = (actions.new_tensor(each) for each in (spec.low, spec.high))
            actions = (actions - low) * (2.0 / (high - low)) - 1.0
        else:
            actions = actions.long()
        return Tensors(now, actions, rewards, after, discounts, weights)

    def _tried(self, units: int, transitions: int) -> Tensors:
        """Load drawn weights, and draw transitions that nobody made."""
        rng, spec, size = np.random.default_rng(3), self.network.spec, (units, transitions)
        self._load(self.network.draw(rng), self.network.draw(rng))

        def states() -> np.ndarray:
            if spec.dtype == 'uint8':
                return rng.integers(0, 256, (*size, spec.size)).astype(np.uint8)
            return rng.normal(size=(*size, spec.size)).astype(np.float32)

        places = (spec.places,) if spec.places > 1 else ()
        actions: np.ndarray = rng.integers(spec.n_actions, size=(*size, *places))
        if spec.continuous:
            actions = rng.uniform(spec.low, spec.high, (*size, spec.n_actions)).astype(np.float32)
        rewards = rng.normal(size=size).astype(np.float32)
        discounts = rng.choice(np.array([0.0, 0.9], np.float32), size)
        return self._tensors(Batch(states(), actions, rewards, states(), discounts))

    def _random_state(self) -> torch.Tensor:
        """Return the state of PyTorch's generator, which moves with each number drawn."""
        cuda = self.device.type == 'cuda'
        return torch.cuda.get_rng_state(self.device) if cuda else torch.get_rng_state()


class TrainableNetwork(TorchNetwork):
    """A network that brings its own gradients, see :func:`gradients_for`."""

    def gradients(self, learner: LearnerSettings, *, public: bool = False) -> TorchGradients:
        """
        Return what computes this network's gradients.

        :param public: whether the records are public: all weights are trained then.
        """
        return TorchGradients(self, learner, public=public)


def device_named(name: str, *, exact: bool = True) -> torch.device:
    """
    Return a device; on a GPU PyTorch is set to compute in full float32 precision.

    :param name: 'cpu', 'cuda', or 'auto', which takes a GPU if there is one.
    :param exact: on a GPU PyTorch refuses whatever it cannot repeat bit for bit, so that a
        repeated block is the same release.
    :raises PolicyError: if there is no GPU.
    """
    there = torch.cuda.is_available()
    if name == 'cuda' and not there:
        raise PolicyError('device cuda: PyTorch finds no GPU here; take auto or cpu')
    if name == 'cpu' or not there:
        return torch.device('cpu')
    if exact:
        os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
        torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    return torch.device('cuda')


def _units(batch: Tensors) -> Iterator[Tensors]:
    """Yield each unit as a batch of its own, in memory of its own, see :func:`aligned`."""
    for unit in range(len(batch.actions)):
        yield Tensors(*map(aligned, batch.of(slice(unit, unit + 1))))


def _larger(batch: Tensors) -> Tensors:
    """Return transitions with far larger observations and rewards."""
    now, after = batch.observations * 1e4, batch.next_observations * 1e4
    return batch._replace(observations=now, rewards=batch.rewards * 1e4, next_observations=after)


def _equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    """Tell whether tensors are the same, bit for bit."""
    return all(torch.equal(one, two) for one, two in zip(first, second, strict=True))


def _factors(gradients: Iterator[Gradients]) -> list[torch.Tensor]:
    """Return what determines the gradients of all units, each tensor with units first."""
    passes = [[x for each in made for x in each.factors()] for made in gradients]
    return [torch.cat(each) for each in zip(*passes, strict=True)]


def _formed(gradients: Iterator[Gradients]) -> torch.Tensor:
    """Return gradients as rows, (units, size)."""
    return torch.cat([torch.cat([x.formed() for x in each], dim=1) for each in gradients])
