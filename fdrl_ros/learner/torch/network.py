# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Any PyTorch module as the network of a federation: its layout, its start and its policies."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Self

from fdrl_ros.errors import FdrlError, PluginError, PolicyError
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.torch.flat_weights import flat, layout_of, load
from fdrl_ros.learner.torch.losses import Algorithm, ALGORITHMS
from fdrl_ros.learner.torch.modules import adapted, BUILT_IN, Make
from fdrl_ros.learner.torch.onnx_graph import onnx_graph
from fdrl_ros.policy.layout import TensorLayout
from fdrl_ros.policy.onnx_network import OnnxNetwork
from fdrl_ros.policy.policy import Action, check_weights, digest_of
from fdrl_ros.runtime.references import load_reference, reference_digest
from fdrl_ros.settings import named_among
from fdrl_ros.tasks.spec import TaskSpec
import numpy as np
from numpy.typing import NDArray
import torch
from torch import nn

Array = NDArray[np.float32]


@dataclass(frozen=True)
class TorchNetwork:
    """
    A module and what it is for; its weights travel flat, in the order of :attr:`layout`.

    :param module: name of a module that ships, or a reference to a class that is called with the
        shape of an observation and the number of outputs.
    :param algorithm: name of an algorithm that ships, or a reference to a class.
    :param hidden: units of a hidden layer of the modules that ship.
    :param frozen: names of tensors or of submodules that keep the public start's values.
    :param adapter_rank: if above 0, only low-rank updates of this rank are trained.
    :param files: SHA-256 of the two references' files, in hex.
    :param frames: successive observations that a flat vector holds, the oldest first.
    """

    spec: TaskSpec
    module: str = 'mlp'
    algorithm: str = 'double_dqn'
    hidden: int = 64
    frozen: tuple[str, ...] = ()
    adapter_rank: int = 0
    files: tuple[str, ...] = ()
    frames: int = 1

    @classmethod
    def from_settings(cls, spec: TaskSpec, learner: LearnerSettings) -> Self:
        """
        Make the network that a plan names.

        :raises PluginError: if a reference cannot be loaded.
        :raises PolicyError: if module, task and algorithm do not fit each other.
        """
        vector = 'plain_mlp' if spec.continuous else 'mlp'
        module = learner.network or ('cnn' if spec.dtype == 'uint8' else vector)
        usual = 'behaviour_cloning' if spec.continuous else 'double_dqn'
        algorithm = learner.algorithm or usual
        files = [
            reference_digest(reference).hex()
            for reference, known in ((module, BUILT_IN), (algorithm, ALGORITHMS))
            if reference not in known and ':' in reference
        ]
        made = cls(
            spec,
            module,
            algorithm,
            learner.hidden,
            learner.frozen_tensors,
            learner.adapter_rank,
            tuple(files),
            learner.frame_stack,
        )
        made.check()
        return made

    @property
    def name(self) -> str:
        """What it is: module, algorithm, sizes, and what a user's files hold, at any place."""
        shape = 'x'.join(map(str, self.shape))
        module, algorithm = (Path(each).name for each in (self.module, self.algorithm))
        parts = ['torch', module, algorithm, shape, str(self.actions), str(self.hidden)]
        return ' '.join((*parts, *(each[:16] for each in self.files)))

    @property
    def shape(self) -> tuple[int, ...]:
        """
        Shape of what the module takes: an observation, or (frames, numbers) of a burst.

        :raises PolicyError: if a vector does not hold so many frames.
        """
        if self.frames == 1 or len(self.spec.shape) > 1:
            return self.spec.shape
        if self.spec.size % self.frames:
            raise PolicyError(
                f'observations of {self.spec.size} numbers do not hold {self.frames} frames: '
                'set learner.frame_stack to as many as the task stacks'
            )
        return self.frames, self.spec.size // self.frames

    @property
    def states(self) -> int:
        """Numbers of a flat observation."""
        return self.spec.size

    @property
    def actions(self) -> int:
        """Number of discrete actions, or numbers of a continuous one."""
        return self.spec.n_actions

    @property
    def continuous(self) -> bool:
        """Whether an action is a vector of numbers."""
        return self.spec.continuous

    @property
    def places(self) -> int:
        """Places of an observation that have a discrete action each; 1 where it has one."""
        return self.spec.places

    def check(self) -> None:
        """
        Refuse a module that does not fit, before anything is spent.

        :raises PluginError: if a reference cannot be loaded or called.
        :raises PolicyError: on parameters that are not float32, on outputs of another shape than
            expected, and on actions of the wrong kind.
        """
        algorithm = self.algorithm_of(LearnerSettings())
        kind = algorithm.continuous
        if kind is not None and kind != self.spec.continuous:
            wanted = 'continuous' if kind else 'discrete'
            raise PolicyError(f'algorithm {self.algorithm}: it is for {wanted} actions')
        if self.places > 1 and not algorithm.places:
            raise PolicyError(
                f'algorithm {self.algorithm}: it is for one action at a time, but this '
                f'task has one at each of {self.places} places; take supervised'
            )
        self.layout.digest()  # refuses names of frozen tensors that do not fit
        acting = Acting(self, self.build(np.random.default_rng(0)))
        given = torch.zeros((2, self.states))
        with torch.no_grad(), self._own_code():
            found = acting(given)
        if found.shape[:2] != (2, self.actions) or found.shape[2:].numel() != self.places:
            expected = f'(2, {self.actions})' + f' at {self.places} places' * (self.places > 1)
            raise PolicyError(
                f'module {self.module}: 2 observations of shape {self.shape} give '
                f'{tuple(found.shape)}, expected {expected}'
            )

    def algorithm_of(self, learner: LearnerSettings) -> Algorithm:
        """
        Return the algorithm with its settings.

        :raises PluginError: if the reference is not one of a class of :class:`Algorithm`.
        """
        kind = ALGORITHMS.get(self.algorithm) or _loaded(self.algorithm, 'algorithms', ALGORITHMS)
        if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
            raise PluginError(self.algorithm, f'{kind!r}: expected a class of Algorithm')
        return kind(learner)

    def observations(self, states: torch.Tensor) -> torch.Tensor:
        """Turn flat states, (..., states), into what the module takes, (..., *shape), float32."""
        values = states.to(torch.float32)
        if self.spec.dtype == 'uint8':
            values = values / 255.0
        return values.reshape(*states.shape[:-1], *self.shape)

    def build(self, rng: np.random.Generator) -> nn.Module:
        """
        Build the module with drawn weights; PyTorch's own generator stays as it is.

        :raises PluginError: if the class cannot be called.
        :raises PolicyError: if it gives no module that can be trained.
        """
        return self._build(rng)[0]

    def _build(self, rng: np.random.Generator) -> tuple[nn.Module, list[str]]:
        """Build the module, and name the tensors that adapters freeze."""
        draws = torch.Generator()
        draws.manual_seed(int(rng.integers(2**63)))
        algorithm = self.algorithm_of(LearnerSettings())
        with torch.random.fork_rng(devices=[]), self._own_code():
            torch.set_rng_state(draws.get_state())
            module = algorithm.module(self._make(), self.shape, self.actions)
            _check_module(module)
            return adapted(module, self.adapter_rank) if self.adapter_rank else (module, [])

    def _make(self) -> Make:
        """Return what builds the module that the plan names."""
        if self.module in BUILT_IN:
            hidden = (self.hidden, self.hidden) if self.module.endswith('mlp') else self.hidden
            return partial(BUILT_IN[self.module], hidden=hidden)
        found = _loaded(self.module, 'modules', BUILT_IN)
        if not callable(found):
            raise PluginError(self.module, f'{found!r}: expected a class of torch.nn.Module')
        make: Make = found
        return make

    @contextmanager
    def _own_code(self) -> Iterator[None]:
        """Name the plan's module in whatever its code raises."""
        try:
            yield
        except FdrlError:
            raise
        except Exception as error:  # whatever a user's module raises
            raise PluginError(
                self.module,
                f'with observations of shape {self.shape} and {self.actions} '
                f'outputs it raises {type(error).__name__}: {error}',
            ) from error

    @cached_property
    def layout(self) -> TensorLayout:
        """Names and shapes of the tensors in the flat weight vector, frozen ones first."""
        module, fixed = self._build(np.random.default_rng(0))
        return layout_of(module, (*fixed, *self.frozen))

    @property
    def n_parameters(self) -> int:
        """Length of the flat weight vector."""
        return self.layout.n_parameters

    def draw(self, rng: np.random.Generator) -> Array:
        """
        Draw starting weights as the module's own initialisation does.

        :returns: flat, shape (n_parameters,), float32; they depend on the generator alone.
        """
        return self.flat(self.build(rng))

    def flat(self, module: nn.Module) -> Array:
        """Return the weights of a module of this network, shape (n_parameters,), float32."""
        return flat(module, self.layout)

    def load(self, module: nn.Module, weights: Array) -> None:
        """Copy flat weights into a module of this network."""
        load(module, self.layout, weights)

    def policy(self, weights: Array) -> 'TorchPolicy':
        """
        Return the policy of some weights.

        :param weights: flat, shape (n_parameters,), finite.
        :raises PolicyError: on another length or a value that is not finite.
        """
        return TorchPolicy(self, weights)

    def onnx_graph(self) -> bytes:
        """
        Return the graph that robots run without PyTorch.

        :raises PolicyError: if the module cannot be traced, or onnx is not installed.
        """
        acting = Acting(self, self.build(np.random.default_rng(0)))
        kind = np.dtype(self.spec.dtype)
        return onnx_graph(acting, self.layout, self.states, kind, continuous=self.spec.continuous)

    def __reduce__(self) -> tuple[object, ...]:
        """Copy the fields alone: modules of a user's file cannot be pickled."""
        return type(self), tuple(getattr(self, each.name) for each in fields(self))


def _loaded(name: str, what: str, known: Collection[str]) -> object:
    """
    Load what a reference names.

    :param what: names that ship, in the plural.
    :raises PluginError: if it is neither one of those nor a reference that can be loaded.
    """
    if ':' not in name:
        raise PluginError(name, f'expected FILE.py:CLASS, or {named_among(name, what, known)}')
    return load_reference(name)


def _check_module(module: object) -> None:
    """
    Refuse what is no module, or has weights that cannot travel.

    :raises PolicyError: if it has no weights, or some that are not float32 or have no size yet.
    """
    if not isinstance(module, nn.Module):
        raise PolicyError(f'{module!r}: expected a torch.nn.Module')
    own = dict(module.named_parameters())
    if not own:
        raise PolicyError('the module has no weights to train')
    for name, weights in own.items():
        if isinstance(weights, nn.UninitializedParameter):
            raise PolicyError(f'{name} has no size before its first use: state it, not nn.Lazy...')
        if weights.dtype != torch.float32:
            raise PolicyError(f'{name} is {weights.dtype}: expected torch.float32')


class Acting(nn.Module):
    """
    A module as a policy calls it: flat states to scores or continuous actions, (n, outputs).

    Its parameters have the names of the layout.
    """

    def __init__(self, network: TorchNetwork, module: nn.Module) -> None:
        """:param module: of the network; it is not copied."""
        super().__init__()
        self._modules, self._parameters = module._modules, module._parameters
        self._buffers = module._buffers
        self.__dict__['inner'] = module
        self._spec, self._observations = network.spec, network.observations
        self._scores = network.algorithm_of(LearnerSettings()).scores

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Score flat states."""
        found = self._scores(self.__dict__['inner'], self._observations(states))
        if not self._spec.continuous:
            return found
        low, high = (found.new_tensor(each) for each in (self._spec.low, self._spec.high))
        return low + (found.clamp(-1.0, 1.0) + 1.0) * ((high - low) / 2.0)


class TorchPolicy:
    """
    The policy of a module: the action of highest score, or the module's own continuous action.

    It is immutable, so threads may share it.
    """

    def __init__(self, network: TorchNetwork, weights: Array) -> None:
        """
        Put weights into a module.

        :param weights: flat, shape (n_parameters,), finite.
        :raises PolicyError: on another length or a value that is not finite.
        """
        check_weights(weights, network.n_parameters)
        self.network = network
        self.weights = np.array(weights, dtype=np.float32)
        self.weights.flags.writeable = False
        self.digest = digest_of(self.weights)
        module = network.build(np.random.default_rng(0)).eval().requires_grad_(False)
        network.load(module, self.weights)
        self._acting = Acting(network, module)

    @property
    def n_parameters(self) -> int:
        """Number of weights."""
        return len(self.weights)

    def onnx(self) -> bytes:
        """
        Return the whole policy as an ONNX model.

        :raises PolicyError: if the module has no graph, or onnx is not installed.
        """
        return OnnxNetwork(self.network.onnx_graph()).model(self.weights)

    def q_values(self, states: np.ndarray) -> np.ndarray:
        """
        Score every action.

        :param states: flat, shape (..., states).
        :returns: shape (..., outputs), float32; of a continuous policy the action itself.
        """
        given = np.array(states)  # PyTorch takes no array that is read-only
        with torch.inference_mode():
            rows = self._acting(torch.from_numpy(given.reshape(-1, given.shape[-1])))
        found: np.ndarray = rows.numpy()
        return found.reshape(*given.shape[:-1], *found.shape[1:])

    def __call__(self, state: np.ndarray) -> Action:
        """
        Choose an action; of those with the highest score the one of the lowest number.

        :param state: flat, shape (states,).
        :returns: its number; of a continuous policy numbers within the task's limits; where there
            are several places, the class at each, in the shape that the module gives them.
        """
        found = self.q_values(np.asarray(state))
        if self.network.spec.continuous:
            return found
        best = found.argmax(axis=0)
        return int(best) if best.ndim == 0 else best

    def __reduce__(self) -> tuple[object, ...]:
        """Copy network and weights alone."""
        return type(self), (self.network, self.weights)
