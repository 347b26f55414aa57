# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Losses of the learner `torch`, each with the module that it trains and the scores that act.

A loss must take a unit's transitions alone: any mean is over the transitions of one unit, so that
clipping bounds a unit's whole influence. Continuous actions are here numbers in [-1, 1], between
the limits of the task.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from fdrl_ros.errors import PolicyError
from fdrl_ros.learner.settings import LearnerSettings
from fdrl_ros.learner.torch.modules import Make
import torch
from torch import nn
from torch.nn import functional


class Tensors(NamedTuple):
    """
    A batch on the device; the first two axes are units and their transitions.

    ``observations``, ``next_observations``: (units, transitions, *shape), float32. ``actions``:
    (units, transitions), int64, or (units, transitions, k) for several. ``rewards``, ``discounts``
    (0 where no value follows), ``weights`` (of each loss): (units, transitions), float32.
    """

    observations: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    next_observations: torch.Tensor
    discounts: torch.Tensor
    weights: torch.Tensor

    def of(self, units: slice) -> 'Tensors':
        """Return the transitions of some units."""
        return Tensors(*(each[units] for each in self))

    def turned(self) -> 'Tensors':
        """Return the units in reverse order."""
        return Tensors(*(each.flip(0) for each in self))


@dataclass(frozen=True)
class Networks:
    """
    The module with three sets of weights; calls take and give (units, transitions, ...).

    ``trained``: with gradients. ``still``: the same weights, through which gradients flow to the
    inputs alone. ``target``: the target network's. Each is called with observations, as the
    module's forward, or by :meth:`part` of a submodule.
    """

    trained: 'Applied'
    still: 'Applied'
    target: 'Applied'


class Applied:
    """A module that is called with units and transitions as its first two axes."""

    def __init__(self, module: nn.Module, flat: bool) -> None:
        """:param flat: whether the module takes one leading axis only, so rows are joined."""
        self.module, self._flat = module, flat

    def part(self, name: str) -> 'Applied':
        """Return a submodule, called in the same way."""
        return Applied(self.module.get_submodule(name), self._flat)

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Give the outputs, (units, transitions, ...)."""
        if not self._flat:
            found: torch.Tensor = self.module(*inputs)
            return found
        leading = inputs[0].shape[:2]
        made: torch.Tensor = self.module(*(each.flatten(0, 1) for each in inputs))
        return made.unflatten(0, leading)


class Algorithm(ABC):
    """
    What is learned: the module that is trained, its loss, and the scores by which it acts.

    A class of your own is made with the settings of the learner, as these are.
    """

    continuous: bool | None = False
    """Whether actions are vectors of numbers; None: both kinds serve."""

    places: bool = False
    """Whether it also serves where an observation has a discrete action at each of its places."""

    def __init__(self, learner: LearnerSettings) -> None:
        """Take the settings of the learner."""
        self.learner = learner

    def module(self, make: Make, shape: tuple[int, ...], outputs: int) -> nn.Module:
        """
        Build the module that is trained.

        :param make: class of the module that the plan names.
        :param shape: of an observation.
        :param outputs: number of discrete actions, or of numbers in an action.
        """
        return make(shape, outputs)

    @abstractmethod
    def losses(self, networks: Networks, batch: Tensors) -> torch.Tensor:
        """Return the loss of each transition, (units, transitions)."""

    def errors(self, networks: Networks, batch: Tensors) -> torch.Tensor:
        """Return what a unit's priority comes from, (units, transitions)."""
        return self.losses(networks, batch)

    def penalty(self, errors: torch.Tensor) -> torch.Tensor:
        """Return Huber's loss or half the square of errors in value, same shape."""
        if self.learner.loss == 'huber':
            return functional.huber_loss(errors, torch.zeros_like(errors), reduction='none')
        return errors.square() / 2.0

    def scores(self, module: nn.Module, observations: torch.Tensor) -> torch.Tensor:
        """Score every action, or give the action of a continuous policy: (n, outputs)."""
        found: torch.Tensor = module(observations)
        return found


class DoubleDqn(Algorithm):
    """
    Double DQN (van Hasselt et al. 2016, Eq. 4): Q(s, a) towards r + gamma Q'(s', argmax Q(s', .)).

    With `conservative` it is conservative Q-learning (Kumar et al. 2020, Eq. 4).
    """

    def losses(self, networks: Networks, batch: Tensors) -> torch.Tensor:
        """Return Huber's or the squared loss of the error in value."""
        values = networks.trained(batch.observations)
        taken = at(values, batch.actions)
        found = self.penalty(taken - self._wanted(networks, batch))
        if self.learner.conservative:
            excess = torch.logsumexp(values, dim=-1) - taken
            found = found + self.learner.conservative * excess
        return found

    def errors(self, networks: Networks, batch: Tensors) -> torch.Tensor:
        """Return Q(s, a) minus its target."""
        taken = at(networks.still(batch.observations), batch.actions)
        return taken - self._wanted(networks, batch)

    def _wanted(self, networks: Networks, batch: Tensors) -> torch.Tensor:
        with torch.no_grad():
            # Of actions that are worth the same, argmax takes the first.
            best = networks.still(batch.next_observations).argmax(dim=-1)
            following = at(networks.target(batch.next_observations), best)
        return batch.rewards + batch.discounts * following


class BehaviourCloning(Algorithm):
    """
    Behaviour cloning: -log pi(a | s) of the recorded action (Pomerleau 1991).

    Discrete actions have the softmax of the scores; continuous ones a Gaussian of unit variance
    around the output, so the loss is half the squared distance, a mean over the numbers.
    """

    continuous = None

    def losses(self, networks: Networks, batch: Tensors) -> torch.Tensor:
        """Return the negative log-likelihood, without its constant."""
        scores = networks.trained(batch.observations)
        if batch.actions.is_floating_point():
            return (scores - batch.actions).square().flatten(2).mean(dim=2) / 2.0
        return -at(torch.log_softmax(scores, dim=-1), batch.actions)


class AdvantageWeighted(Algorithm):
    """
    Advantage-weighted cloning, the compiled learner's loss: see :mod:`fdrl_ros.learner.losses`.

    The value is the mean of the scores, which their softmax leaves free: so one module with one
    output for each action gives both. Rewards are returns to the end of the episode.
    """

    def losses(self, networks: Networks, batch: Tensors) -> torch.Tensor:
        """Return the weighted cross-entropy and the loss of the value."""
        learner, returns = self.learner, batch.rewards
        scores = networks.trained(batch.observations)
        with torch.no_grad():
            lead = returns - networks.target(batch.observations).mean(dim=-1)
            weights = torch.exp(lead / learner.temperature).clamp(max=learner.most_weight)
        chosen = at(torch.log_softmax(scores, dim=-1), batch.actions)
        value = self.penalty(scores.mean(dim=-1) - returns)
        return learner.value_weight * value - weights * chosen


class ImplicitQ(Algorithm):
    """
    Implicit Q-learning (Kostrikov et al. 2022) in one module with heads `q`, `value`, `policy`.

    Its three losses are added; each head has gradients of its own loss alone.
    """

    expectile = 0.7
    """tau of Eq. 5."""
    temperature = 3.0
    """beta of Eq. 7."""
    most_weight = 100.0
    """Limit of the weight of an action, as in the authors' code."""

    def module(self, make: Make, shape: tuple[int, ...], outputs: int) -> nn.Module:
        """Build three modules of the class: Q and policy over all actions, and the value."""
        sizes = {'q': outputs, 'value': 1, 'policy': outputs}
        return Heads({name: make(shape, size) for name, size in sizes.items()})

    def losses(self, networks: Networks, batch: Tensors) -> torch.Tensor:
        """Return the losses of value (Eq. 5), Q (Eq. 6) and policy (Eq. 7)."""
        now, after = batch.observations, batch.next_observations
        with torch.no_grad():
            target = at(networks.target.part('q')(now), batch.actions)
            following = networks.still.part('value')(after).squeeze(-1)
            wanted = batch.rewards + batch.discounts * following
        value = networks.trained.part('value')(now).squeeze(-1)
        lead = target - value
        side = torch.where(lead.detach() < 0.0, 1.0 - self.expectile, self.expectile)
        taken = at(networks.trained.part('q')(now), batch.actions)
        weight = torch.exp(self.temperature * lead.detach()).clamp(max=self.most_weight)
        chosen = at(torch.log_softmax(networks.trained.part('policy')(now), -1), batch.actions)
        return side * lead.square() + (taken - wanted).square() - weight * chosen

    def scores(self, module: nn.Module, observations: torch.Tensor) -> torch.Tensor:
        """Score every action by the policy."""
        found: torch.Tensor = module.get_submodule('policy')(observations)
        return found


class ActorCritic(Algorithm):
    """
    Actor and two critics for continuous actions: TD3 with behaviour cloning (Fujimoto & Gu 2021).

    One backward pass serves all three: the critics' loss has no gradient for the actor, and the
    actor's passes through critics that stand still. Differences from the paper: the scale
    of Q (Eq. 5) is a mean over the unit's own transitions, the target has no smoothing noise, and
    the actor moves at every step.
    """

    continuous = True
    strength = 2.5
    """alpha of Eq. 5."""

    def module(self, make: Make, shape: tuple[int, ...], outputs: int) -> nn.Module:
        """
        Build an actor, and two critics of an observation joined with an action.

        :raises PolicyError: if an observation is not a vector.
        """
        if len(shape) != 1:
            raise PolicyError(
                f'observations of shape {shape}: actor_critic joins an action to a vector; '
                'clone the behaviour, or bring an algorithm of your own'
            )
        joined = (shape[0] + outputs,)
        return Heads(
            {
                'actor': Bounded(make(shape, outputs)),
                'first': make(joined, 1),
                'second': make(joined, 1),
            }
        )

    def losses(self, networks: Networks, batch: Tensors) -> torch.Tensor:
        """Return the squared errors of both critics (TD3 Alg. 1) and the actor's loss (Eq. 5)."""
        now, after = batch.observations, batch.next_observations
        both = torch.cat((now, batch.actions), dim=-1)
        with torch.no_grad():
            action = networks.target.part('actor')(after)
            following = torch.minimum(*self._critics(networks.target, after, action))
            wanted = batch.rewards + batch.discounts * following
        found = torch.zeros_like(batch.rewards)
        for name in ('first', 'second'):
            found = found + (networks.trained.part(name)(both).squeeze(-1) - wanted).square()
        action = networks.trained.part('actor')(now)
        value = networks.still.part('first')(torch.cat((now, action), dim=-1)).squeeze(-1)
        size = value.detach().abs().mean(dim=1, keepdim=True) + 1e-6
        cloned = (action - batch.actions).square().mean(dim=-1)
        return found + cloned - self.strength * value / size

    def _critics(
        self, network: Applied, observations: torch.Tensor, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        joined = torch.cat((observations, actions), dim=-1)
        first, second = (network.part(name)(joined).squeeze(-1) for name in ('first', 'second'))
        return first, second

    def scores(self, module: nn.Module, observations: torch.Tensor) -> torch.Tensor:
        """Give the actor's action."""
        found: torch.Tensor = module.get_submodule('actor')(observations)
        return found


class DiscreteActorCritic(Algorithm):
    """
    Actor and two critics for discrete actions, with behaviour cloning.

    Values are expected under the actor's softmax, as in discrete SAC (Christodoulou 2019, Eqs. 10
    to 12), with cloning in the place of entropy, as in TD3 with behaviour cloning (Fujimoto & Gu
    2021). Differences: the scale of Q is the mean distance from the mean over actions, since an
    offset of Q moves no softmax, and it is of the unit's own transitions; the actor follows the
    first critic. With `conservative` both critics have the term of conservative Q-learning.
    """

    strength = 2.5
    """alpha of Fujimoto & Gu 2021, Eq. 5."""

    def module(self, make: Make, shape: tuple[int, ...], outputs: int) -> nn.Module:
        """Build an actor and two critics over all actions."""
        return Heads({name: make(shape, outputs) for name in ('actor', 'first', 'second')})

    def losses(self, networks: Networks, batch: Tensors) -> torch.Tensor:
        """Return the losses of both critics and of the actor."""
        now, after, actions = batch.observations, batch.next_observations, batch.actions
        target, alpha = networks.target, self.learner.conservative
        with torch.no_grad():
            chances = torch.softmax(target.part('actor')(after), dim=-1)
            least = torch.minimum(target.part('first')(after), target.part('second')(after))
            wanted = batch.rewards + batch.discounts * (chances * least).sum(dim=-1)
            values = networks.still.part('first')(now)
            values = values - values.mean(dim=-1, keepdim=True)
            values = values / (values.abs().mean(dim=(1, 2), keepdim=True) + 1e-6)
        found = torch.zeros_like(batch.rewards)
        for name in ('first', 'second'):
            each = networks.trained.part(name)(now)
            taken = at(each, actions)
            found = found + (taken - wanted).square()
            if alpha:
                found = found + alpha * (torch.logsumexp(each, dim=-1) - taken)
        logs = torch.log_softmax(networks.trained.part('actor')(now), dim=-1)
        return found - at(logs, actions) - self.strength * (logs.exp() * values).sum(dim=-1)

    def scores(self, module: nn.Module, observations: torch.Tensor) -> torch.Tensor:
        """Score every action by the actor."""
        found: torch.Tensor = module.get_submodule('actor')(observations)
        return found


class Supervised(Algorithm):
    """
    Supervised learning: `actions` hold the target of each observation.

    Whole numbers are classes, one for each observation or one for each place of it, as in
    segmentation: the loss is the mean cross-entropy over places. Other numbers have the mean
    squared error. Rewards and next observations play no part.
    """

    continuous = None
    places = True

    def losses(self, networks: Networks, batch: Tensors) -> torch.Tensor:
        """Return the cross-entropy or the squared error of each observation."""
        outputs = networks.trained(batch.observations)
        if batch.actions.is_floating_point():
            wanted = batch.actions.reshape(outputs.shape)
            return (outputs - wanted).square().flatten(2).mean(dim=2)
        places = torch.log_softmax(outputs, dim=2).unsqueeze(-1).flatten(3)
        wanted = batch.actions.reshape(*outputs.shape[:2], 1, -1)
        return -places.gather(2, wanted).flatten(2).mean(dim=2)


class Heads(nn.ModuleDict):
    """Modules with a name each, which losses call one by one."""


class Bounded(nn.Module):
    """A module whose outputs are squashed into [-1, 1]."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Give bounded outputs."""
        return torch.tanh(self.inner(observations))


def at(values: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Select the value of an action: (..., actions) to (...)."""
    return values.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


ALGORITHMS: dict[str, type[Algorithm]] = {
    'double_dqn': DoubleDqn,
    'behaviour_cloning': BehaviourCloning,
    'advantage_weighted': AdvantageWeighted,
    'implicit_q': ImplicitQ,
    'actor_critic': ActorCritic,
    'discrete_actor_critic': DiscreteActorCritic,
    'supervised': Supervised,
}
"""What a plan names without a reference."""
