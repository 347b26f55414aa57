# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What our learner is compared with: PyTorch's plain DQN step, Opacus, Stable-Baselines3.

Each peer does what our step does: it draws a batch, values what follows by double DQN with a
target network, takes the gradient of the Huber loss and goes down it. A peer's batch has a fixed
size and is drawn with replacement, which is quicker than Poisson sampling; nobody keeps a ledger.
"""

from collections.abc import Callable
import itertools
from typing import Any
import warnings

from benchmarking import has, Skipped, Work
import gymnasium
from learner_work import (
    CART_BATCH,
    CART_DISCOUNT,
    CART_HIDDEN,
    CART_POLE,
    CLIP_NORM,
    DISCOUNT,
    HOSPITALS,
    LEARNING_RATE,
    LENGTH,
    NOISE,
    ONLINE,
    PATIENTS,
    records,
    SEED,
    Size,
    TARGET_PERIOD,
)

PACKAGES = ('torch', 'opacus', 'stable-baselines3')
PIECE = 100
"""Steps that a peer takes before the clock is looked at."""
CART_STEPS = 2000
"""Steps of Stable-Baselines3 in one go; the first batch is all that it waits for."""


def require(*packages: str) -> Any:
    """
    Return torch, on one thread.

    :raises Skipped: if one of the packages is not installed.
    """
    for each in packages:
        if not has(each):
            raise Skipped(f'{each} is missing: pip install -r requirements/benchmark.txt')
    import torch

    torch.set_num_threads(1)
    return torch


def network(size: Size, dueling: bool) -> Any:
    """Return the network: dueling as ours is, or one dense layer less and so cheaper."""
    nn = require('torch').nn
    module: Any = nn.Module

    class Dueling(module):
        """Q = V + A - mean(A)."""

        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Sequential(
                nn.Linear(size.states, size.hidden),
                nn.Tanh(),
                nn.Linear(size.hidden, size.hidden),
                nn.Tanh(),
            )
            self.value = nn.Linear(size.hidden, 1)
            self.advantage = nn.Linear(size.hidden, size.actions)

        def forward(self, states: Any) -> Any:
            """Value every action."""
            hidden = self.shared(states)
            advantage = self.advantage(hidden)
            return self.value(hidden) + advantage - advantage.mean(-1, keepdim=True)

    if dueling:
        return Dueling()
    return nn.Sequential(
        nn.Linear(size.states, size.hidden),
        nn.Tanh(),
        nn.Linear(size.hidden, size.hidden),
        nn.Tanh(),
        nn.Linear(size.hidden, size.actions),
    )


def dqn_step(size: Size, dueling: bool, private: bool, seed: int = SEED) -> Callable[[], None]:
    """
    Return one step of DQN by SGD in PyTorch.

    :param dueling: see :func:`network`.
    :param private: whether Opacus clips each transition's gradient, by its hooks, and adds noise.
    """
    torch = require('torch', 'opacus') if private else require('torch')
    functional = torch.nn.functional
    draws = torch.Generator().manual_seed(seed)
    own, target = network(size, dueling), network(size, dueling)
    target.load_state_dict(own.state_dict())
    trained, optimizer = own, torch.optim.SGD(own.parameters(), lr=LEARNING_RATE)
    if private:
        trained, optimizer = _by_opacus(own, optimizer, size)
    known, count = records(size, seed), PATIENTS * LENGTH
    data = (
        torch.from_numpy(known.states),
        torch.from_numpy(known.actions)[:, None],
        torch.from_numpy(known.rewards)[:, None],
        torch.from_numpy(known.next_states),
        torch.from_numpy((DISCOUNT * ~known.terminals).astype('f'))[:, None],
    )
    steps = itertools.count()

    def step() -> None:
        if next(steps) % TARGET_PERIOD == 0:
            target.load_state_dict(own.state_dict())
        index = torch.randint(count, (size.batch,), generator=draws)
        states, actions, rewards, following, discounts = (
            each.index_select(0, index) for each in data
        )
        with torch.no_grad():
            best = own(following).argmax(1, keepdim=True)
            targets = rewards + discounts * target(following).gather(1, best)
        loss = functional.smooth_l1_loss(trained(states).gather(1, actions), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _by_opacus(own: Any, optimizer: Any, size: Size) -> tuple[Any, Any]:
    """Let Opacus clip each transition's gradient and add its noise, as its engine would."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    warnings.filterwarnings('ignore', 'Full backward hook is firing')  # inputs need no gradient
    private = DPOptimizer(
        optimizer, noise_multiplier=NOISE, max_grad_norm=CLIP_NORM, expected_batch_size=size.batch
    )
    return GradSampleModule(own), private


def torch_steps(size: Size, *, dueling: bool, private: bool) -> Work:
    """Return work that takes steps of DQN in PyTorch; see :func:`dqn_step`."""
    step = dqn_step(size, dueling, private)

    def work() -> int:
        for _ in range(PIECE):
            step()
        return PIECE

    return work


def opacus_hospitals(size: Size, *, dueling: bool) -> Work:
    """Return work that trains the next of 30 hospitals, each its own network and records."""
    steps = [dqn_step(size, dueling, True, SEED + i) for i in range(HOSPITALS)]
    turn = itertools.cycle(steps)

    def work() -> int:
        step = next(turn)
        for _ in range(PIECE):
            step()
        return PIECE

    return work


def stable_baselines_steps() -> Work:
    """
    Return work that learns CartPole from nothing, not privately; it counts steps in the env.

    One update for each step, and random actions fall as ours do, over the same share of it.
    """
    require('torch', 'stable-baselines3')
    from stable_baselines3 import DQN

    def work() -> int:
        model = DQN(
            'MlpPolicy',
            gymnasium.make(CART_POLE),
            learning_rate=LEARNING_RATE,
            buffer_size=50_000,
            learning_starts=CART_BATCH,
            batch_size=CART_BATCH,
            gamma=CART_DISCOUNT,
            train_freq=1,
            gradient_steps=1,
            target_update_interval=TARGET_PERIOD,
            exploration_fraction=ONLINE.exploration_rounds / ONLINE.rounds,
            exploration_initial_eps=ONLINE.exploration,
            exploration_final_eps=ONLINE.final_exploration,
            policy_kwargs={'net_arch': [CART_HIDDEN, CART_HIDDEN]},
            seed=SEED,
            device='cpu',
        )
        model.learn(CART_STEPS, log_interval=None)
        return CART_STEPS

    return work
