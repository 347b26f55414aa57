# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Settings of the private learner."""

from dataclasses import dataclass, replace
import math
from pathlib import Path

from fdrl_ros.errors import SettingError
from fdrl_ros.settings import named_among, setting, Settings

FROM_REWARDS = (
    'double_dqn',
    'advantage_weighted',
    'implicit_q',
    'actor_critic',
    'discrete_actor_critic',
)
"""Algorithms that need the reward of the recorded action."""


@dataclass(frozen=True)
class LearnerSettings(Settings):
    """How a hospital learns."""

    kind: str = setting(
        'dqn',
        'who trains: dqn (compiled), torch, or another registered learner; see `fdrl tasks`',
    )
    network: str = setting(
        '',
        'module that a learner of kind torch trains: mlp, plain_mlp, cnn, gru or FILE.py:CLASS; '
        'empty: mlp, plain_mlp for continuous actions, cnn for images',
    )
    algorithm: str = setting(
        '',
        'what is learned: double_dqn, behaviour_cloning or advantage_weighted; a learner of kind '
        'torch also takes implicit_q, actor_critic (continuous actions), discrete_actor_critic, '
        'supervised or FILE.py:CLASS; empty: double_dqn, or behaviour_cloning for continuous '
        'actions',
    )
    adapter_rank: int = setting(
        0,
        'rank of low-rank updates of dense layers, which alone a learner of kind torch then '
        'trains; 0: it trains all weights',
        limits=(0, 4096),
    )
    frozen: str = setting(
        '',
        'tensors or modules that stay as the public start has them, separated by commas, such as '
        'shared.0 or shared.1.weight; * stands for any letters',
    )
    offsets: str = setting(
        '',
        'inputs of the network whose offsets are learned too, through the bias of its first '
        'layer, whose matrix must be frozen; separated by commas, such as goal_error_x',
    )
    offset_rate: float = setting(
        0.005, 'step size of the optimizer for offsets of inputs', limits=(1e-8, 1000.0)
    )
    device: str = setting(
        'auto',
        'where a learner of kind torch computes; auto: on a GPU if there is one',
        choices=('auto', 'cpu', 'cuda'),
    )
    hidden: int = setting(64, 'units of each of the two shared layers', limits=(1, 4096))
    discount: float = setting(
        0.4,
        'gamma of the learner; short, as the reward is a difference of potentials',
        limits=(0.0, 1.0),
    )
    learning_rate: float = setting(0.004, 'step size of the optimizer', limits=(0.0, 1000.0))
    epochs: int = setting(12, 'local epochs E of a round', limits=(1, 1000))
    averaging: float = setting(
        0.0,
        'share of the steps of a round, the last ones, whose weights are averaged into its result '
        '(Polyak and Juditsky 1992), which costs no privacy; 0: the weights after the last step',
        limits=(0.0, 1.0),
    )
    transitions_per_patient: int = setting(
        60, 'transitions drawn of each included patient in a step', limits=(1, 10000)
    )
    expected_transitions: float = setting(
        0.0,
        'public guess of the transitions of a patient: the weight of a patient is its number of '
        'transitions divided by this, so every transition weighs the same; 0: every patient does',
        limits=(0.0, 1e6),
        unit='transitions',
    )
    idle_action: int = setting(
        -1, 'number of the action that does nothing; -1: none is known', minimum=-1
    )
    idle_weight: float = setting(
        1.0,
        'weight of transitions whose recorded action does nothing: below 1, waiting, which is '
        'recorded often, does not outvote the few moves that decide',
        limits=(0.0, 1.0),
    )
    target_period: int = setting(
        12, 'steps between two copies into the target network', limits=(1, 100000)
    )
    proximal: float = setting(0.01, 'lambda of the FedProx term, FDRL Eq. 3', limits=(0.0, 100.0))
    n_step: int = setting(
        1, 'steps whose rewards a return sums before it bootstraps', limits=(1, 1000)
    )
    frame_stack: int = setting(
        1,
        'observations of successive steps that one recorded state holds; with unit transition '
        'each step is charged as so many more',
        limits=(1, 1000),
    )
    loss: str = setting(
        'huber', 'loss of the error in value (Huber turns at 1)', choices=('huber', 'squared')
    )
    conservative: float = setting(
        0.0,
        'alpha of conservative Q-learning (Kumar et al. 2020), for records of other policies',
        limits=(0.0, 1000.0),
    )
    temperature: float = setting(
        1.0,
        'of advantage_weighted: by how much more than expected an operation must return for its '
        'actions to weigh e times as much',
        limits=(1e-6, 1e6),
    )
    most_weight: float = setting(
        20.0, 'of advantage_weighted: the largest weight of an action', limits=(1e-3, 1e6)
    )
    value_weight: float = setting(
        1.0,
        'of advantage_weighted: weight of the loss of the value beside that of the actions',
        limits=(0.0, 1e6),
    )
    optimizer: str = setting(
        'adam', 'what turns noised gradients into steps', choices=('adam', 'sgd')
    )
    replay: str = setting(
        'poisson',
        "who joins a step; uniform and prioritised (the paper's PER) have no finite epsilon, "
        'prioritised_poisson is charged without amplification',
        choices=('poisson', 'prioritised_poisson', 'uniform', 'prioritised'),
    )
    priority_exponent: float = setting(0.6, 'alpha of prioritised replay', limits=(0.0, 1.0))
    importance_exponent: float = setting(0.4, 'beta of prioritised replay', limits=(0.0, 1.0))
    expected_priority: float = setting(
        0.3, 'public guess of the mean priority, for prioritised_poisson', limits=(1e-3, 1.0)
    )

    @property
    def return_steps(self) -> int | None:
        """Steps whose rewards a return sums; None: all to the end of the episode."""
        return None if self.algorithm == 'advantage_weighted' else self.n_step

    def averaged_steps(self, steps: int) -> int:
        """Return how many of a round's steps, the last ones, are averaged; 0: none."""
        return max(1, int(self.averaging * steps + 0.5)) if self.averaging else 0

    @property
    def frozen_tensors(self) -> tuple[str, ...]:
        """Names of the tensors and submodules that stay as the public start has them."""
        return _listed(self.frozen)

    @property
    def offset_inputs(self) -> tuple[str, ...]:
        """Names of the inputs whose offsets are learned."""
        return _listed(self.offsets)


@dataclass(frozen=True)
class PrivacySettings(Settings):
    """What a hospital promises its patients."""

    unit: str = setting(
        'patient', 'privacy unit: whom epsilon protects', choices=('patient', 'transition')
    )
    clipped: str = setting(
        'unit',
        'what is sampled and clipped; with transition, those of a patient are charged together',
        choices=('unit', 'transition'),
    )
    most_transitions: int = setting(
        0,
        'public limit of the transitions of a patient, where those are clipped; 0: none',
        limits=(0, 1000000),
    )
    budget: float = setting(
        8.0, 'epsilon at which training stops; inf: never', limits=(1e-3, math.inf)
    )
    delta: float = setting(1e-4, 'delta; below 1 / n_i', limits=(1e-10, 0.5))
    account: str = setting(
        '',
        "file on the hospital's own site that ledgers of several federations charge, so that they "
        "share one budget; an absolute path, in which {hospital} is the hospital's name; empty: "
        'each ledger has a budget of its own',
        repr=False,  # it changes nothing that is trained, and the file may be moved
    )
    clip_norm: float = setting(0.4, 'C of DP-DQN Alg. 1', limits=(1e-6, 1e6))
    noise_multiplier: float = setting(
        2.6, 'sigma_m = s L / C; 0: NOT PRIVATE', limits=(0.0, 1000.0)
    )
    batch: int = setting(128, 'expected batch size L', limits=(1, 1000000), unit='units')

    def __post_init__(self) -> None:
        """Refuse an account whose place depends on where a program was started."""
        super().__post_init__()
        if self.account and not Path(self.account).is_absolute():
            raise SettingError('account', self.account, 'an absolute path, or nothing')
        if set('{}') & set(self.account.replace('{hospital}', '')):
            expected = 'a path in which {hospital} stands for the name, and no other brace'
            raise SettingError('account', self.account, expected)

    def account_of(self, hospital: str) -> Path | None:
        """Return the file of the account that a hospital's ledger charges, if there is one."""
        return Path(self.account.replace('{hospital}', hospital)) if self.account else None


def _listed(text: str) -> tuple[str, ...]:
    """Return the names in a text, which commas separate."""
    return tuple(name.strip() for name in text.split(',') if name.strip())


CANDIDATES = ('global', 'personal', 'own_layers', 'alone')
"""
What a hospital may choose its home policy from.

global: the federation's. personal: that one, fine-tuned on the hospital's records. own_layers: the
shared layers with the layers that the hospital kept to itself. alone: the public start, trained on
the hospital's records only.
"""


@dataclass(frozen=True)
class HomeSettings(Settings):
    """How a hospital makes the policy of its own robots, after the last round."""

    epochs: int = setting(
        0,
        'local epochs that fine-tune the global policy on own records after the last round; 0: '
        'the hospital has no home policy',
        limits=(0, 1000),
    )
    learning_rate: float = setting(
        0.004, 'step size of the optimizer in fine-tuning', limits=(0.0, 1000.0)
    )
    frozen: str = setting(
        '',
        'tensors or submodules that fine-tuning leaves as the global policy has them, separated '
        'by commas; empty: those of learner.frozen',
    )
    offsets: str = setting(
        '', 'inputs whose offsets fine-tuning learns; empty: those of learner.offsets'
    )
    offset_rate: float = setting(
        0.005, 'step size of offsets of inputs in fine-tuning', limits=(1e-8, 1000.0)
    )
    candidates: str = setting(
        'global, personal, own_layers',
        'what the home policy is chosen from: some of global, personal, own_layers (where '
        'federation.personal names layers) and alone, separated by commas; global always is one',
    )
    alone_epochs: int = setting(
        12, 'local epochs of the candidate alone, from the public start', limits=(1, 100000)
    )
    choice_noise: float = setting(
        10.0,
        'noise multiplier of the choice, which is charged as one step of all patients; 0: NOT '
        'PRIVATE',
        limits=(0.0, 1e6),
    )
    choice_clip: float = setting(
        0.2, "L2 norm that a patient's differences of scores are clipped to", limits=(1e-6, 100.0)
    )

    def __post_init__(self) -> None:
        """Refuse candidates that there are not."""
        super().__post_init__()
        for name in self._named:
            if name not in CANDIDATES:
                expected = named_among(name, 'candidates', CANDIDATES)
                raise SettingError('candidates', self.candidates, expected)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the candidates besides global, in the order of :data:`CANDIDATES`."""
        return tuple(name for name in CANDIDATES[1:] if name in self._named)

    def fine_tuned(self, learner: LearnerSettings) -> LearnerSettings:
        """Return the settings of fine-tuning: those of the rounds, with what differs at home."""
        changed = replace(learner, epochs=max(1, self.epochs), learning_rate=self.learning_rate)
        if self.frozen:
            changed = replace(changed, frozen=self.frozen)
        if self.offsets:
            changed = replace(changed, offsets=self.offsets, offset_rate=self.offset_rate)
        return changed

    @property
    def _named(self) -> tuple[str, ...]:
        return _listed(self.candidates)
