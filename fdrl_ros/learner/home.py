# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A hospital's home policy: fine-tune after the last round, then choose privately what to use.

Fine-tuning is further blocks of the hospital's own ledger. The choice is one Gaussian release over
all patients (FDRL Eq. 5 at q = 1): each patient's differences of scores to the global policy are
clipped, summed and noised, and the greatest noised lead decides. Both are charged before any of
their noise is drawn, and both are repeated with the same draws after an interruption.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
import hashlib
import logging
from pathlib import Path
from typing import NamedTuple

from fdrl_ros.errors import (
    BudgetExceededError,
    NoiseErasedError,
    PolicyError,
    PrivacyError,
    RecordsError,
)
from fdrl_ros.learner.checkpoint import Checkpoint
from fdrl_ros.learner.learner import HomePolicy, Stage, TrainingProgress
from fdrl_ros.learner.privacy_cost import ChargedMechanism, Sized
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.settings import (
    CANDIDATES,
    HomeSettings,
    LearnerSettings,
    PrivacySettings,
)
from fdrl_ros.learner.trainer import Trainer, TrainingSetup
from fdrl_ros.policy import digest_of
from fdrl_ros.policy.network import Network
from fdrl_ros.policy.policy import check_weights, Policy
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.ledger.chain import Chain
from fdrl_ros.privacy.ledger.ledger import Ledger
from fdrl_ros.privacy.mechanism import clip_factors, noisy_mean
from fdrl_ros.privacy.noise_key import HOME_ROUNDS
import numpy as np
from numpy.typing import NDArray

log = logging.getLogger(__name__)

GLOBAL, PERSONAL, OWN_LAYERS, ALONE = CANDIDATES

HOME_CHECKPOINTS = ('home_checkpoint', 'alone_checkpoint')
"""Files beside the checkpoint of the rounds: of fine-tuning, and of training alone."""

Report = Callable[[TrainingProgress], None]
Stopped = Callable[[], bool]


def ledger_words(number: int) -> str:
    """Return what the ledger's round of a number is, in words; the number itself for a round."""
    kind, round = divmod(number, HOME_ROUNDS)
    if not 1 <= kind <= 3:
        return str(number)
    return (f'home {round}', f'choice {round}', 'alone')[kind - 1]


@dataclass(frozen=True, eq=False)
class HomeSetup:
    """
    How a hospital makes its home policy.

    ``start``: weights of the public start, shape (n_parameters,), for the candidate alone.
    ``network``: that is fine-tuned, if home.frozen gives it another order of the same tensors;
    None: the trainer's. ``keep``: stores a home policy durably before anything is done with it.
    ``kept``: returns what it stored last; None if nothing is stored, so nothing is erased.
    """

    settings: HomeSettings
    start: np.ndarray
    network: Network | None = None
    keep: Callable[[HomePolicy], None] = lambda made: None
    kept: Callable[[], HomePolicy | None] = lambda: None


class HomeTrainer(Trainer):
    """A trainer that also makes its hospital's home policy, in the same ledger."""

    def __init__(
        self, setup: TrainingSetup, records: Records, checkpoint: Path, home: HomeSetup
    ) -> None:
        """
        Bind a learner to one hospital; see :class:`Trainer`.

        :raises PrivacyError: if the choice has no noise though there is a budget.
        """
        super().__init__(setup, records, checkpoint)
        choice_charge(self.mechanism, setup.privacy, home.settings)
        self._home = home

    def home(
        self,
        weights: np.ndarray,
        round: int,
        *,
        own: np.ndarray | None = None,
        report: Report = lambda told: None,
        stopped: Stopped = lambda: False,
    ) -> HomePolicy:
        """
        Make the home policy, or return it as it is kept; see :func:`home_policy`.

        Once it is kept, its noise is erased: it never has to be made again.
        """
        made = self._kept(weights, round)
        if made is None:
            given = Released(weights, round, own)
            made = home_policy(self, self._home, given, report=report, stopped=stopped)
            self._home.keep(made)
        if self._kept(weights, round) is not None:
            for number in (2 * HOME_ROUNDS + round, 3 * HOME_ROUNDS):
                self.forget(number)
        return made

    def _kept(self, weights: np.ndarray, round: int) -> HomePolicy | None:
        kept, base = self._home.kept(), digest_of(weights)
        if kept is None or (kept.round, kept.base) != (round, base):
            return None
        # One that cost more was charged to another ledger.
        return kept if kept.epsilon <= self.ledger.epsilon() else None


class Released(NamedTuple):
    """
    What a hospital has after a round.

    ``weights``: of the global policy, shape (n_parameters,), float32. ``own``: the same with the
    layers that the hospital kept to itself, if it kept some.
    """

    weights: np.ndarray
    round: int
    own: np.ndarray | None = None


def home_policy(
    trainer: Trainer,
    home: HomeSetup,
    given: Released,
    *,
    report: Report = lambda told: None,
    stopped: Stopped = lambda: False,
) -> HomePolicy:
    """
    Make a hospital's home policy after a round: the candidates, then the private choice.

    Where the budget does not pay for a candidate or for the choice, that is logged, nothing is
    drawn for it, and the home policy comes from what is there: the global policy at least. So it
    is with a candidate whose learning diverged, and where noise was erased.
    Repeated for the same round, it returns the same and spends nothing.

    :param trainer: of the hospital's rounds; its ledger is charged.
    :param report: told of the progress of fine-tuning, with stage home.
    :raises PolicyError: if weights do not fit.
    :raises PrivacyError: if something that was charged is asked for with other inputs.
    :raises TrainingStopped: as soon as `stopped` says so; the same call goes on.
    """
    check_weights(given.weights, trainer.network.layout.n_parameters)
    charge = choice_charge(trainer.mechanism, trainer.privacy, home.settings)
    stage = _Stage(trainer, home, given.round, charge)
    base, notes = given.weights.astype(np.float32), []
    found = {GLOBAL: base}
    for name in home.settings.names:
        try:
            if name == OWN_LAYERS and given.own is not None:
                found[name] = given.own.astype(np.float32)
            elif name == PERSONAL:
                start = base if given.own is None else given.own
                found[name], paid = stage.trained(name, start, report, stopped)
                if paid < home.settings.epochs:
                    notes.append(f'fine-tuned for {paid} of {home.settings.epochs} local epochs')
            elif name == ALONE:
                found[name], paid = stage.trained(name, home.start, report, stopped)
                if paid < home.settings.alone_epochs:
                    notes.append(f'alone for {paid} of {home.settings.alone_epochs} local epochs')
        except (BudgetExceededError, NoiseErasedError, PolicyError) as error:
            notes.append(f'no candidate {name}: {error}')
    leads: dict[str, float] = {}
    try:
        if len(found) > 1:
            leads = stage.leads(found)
    except (BudgetExceededError, NoiseErasedError) as error:
        notes.append(f'nothing is chosen, global stays: {error}')
    chosen = best_of(leads)
    for note in notes:
        log.warning('%s, home policy of round %d: %s', stage.hospital, given.round, note)
    return HomePolicy(
        given.round,
        digest_of(base),
        chosen,
        found[chosen],
        leads,
        trainer.ledger.epsilon(),
        tuple(notes),
    )


def best_of(leads: Mapping[str, float]) -> str:
    """Return the candidate of greatest lead above 0; global if none is, also if undefined."""
    ahead = {name: lead for name, lead in leads.items() if lead > 0.0}  # NaN is not
    return max(ahead, key=lambda name: ahead[name]) if ahead else GLOBAL


class _Stage:
    """What a hospital does at home after one round, in the ledger of its rounds."""

    def __init__(self, trainer: Trainer, home: HomeSetup, round: int, choice: Charge) -> None:
        if not isinstance(trainer.records, Records):
            raise RecordsError('a home policy is made of records that do not grow')
        self._trainer, self._home, self._round, self._choice = trainer, home, round, choice
        self._records: Records = trainer.records
        self._ledger: Ledger = trainer.ledger
        self.hospital = trainer.ledger.owner.hospital

    @property
    def _choice_number(self) -> int:
        return 2 * HOME_ROUNDS + self._round

    def trained(
        self, name: str, start: np.ndarray, report: Report, stopped: Stopped
    ) -> tuple[np.ndarray, int]:
        """
        Train a candidate for as many local epochs as the budget pays for beside the choice.

        :param start: weights that it begins with, in the order of the federation's layout.
        :returns: its weights in the same order, and the local epochs.
        :raises BudgetExceededError: if it does not pay for one.
        """
        personal, settings, outer = name == PERSONAL, self._home.settings, self._trainer
        number = HOME_ROUNDS + self._round if personal else 3 * HOME_ROUNDS
        setup, ours = outer.setup, outer.network.layout
        if personal:
            network = self._home.network or setup.network
            learner = settings.fine_tuned(setup.learner)
            setup = replace(setup, network=network, learner=learner)
        else:
            setup = replace(setup, learner=replace(setup.learner, epochs=settings.alone_epochs))
        trainer = Trainer(setup, self._records, self._checkpoint(name), outer.steps_per_block)
        paid = self._epochs_paid(trainer, number)

        def told(progress: TrainingProgress) -> None:
            report(replace(progress, round=self._round, stage=Stage.HOME))

        layout = trainer.network.layout
        begin = layout.reordered(start, ours)
        try:
            result = trainer.train(begin, number, report=told, stopped=stopped, most=paid)
        except BudgetExceededError:  # blocks one by one are added with other rounding errors
            paid = self._ledger.chain.blocks(number)
            if not paid:
                raise
            result = trainer.train(begin, number, report=told, stopped=stopped, most=paid)
        return ours.reordered(result.weights, layout), paid

    def _checkpoint(self, name: str) -> Path:
        file = HOME_CHECKPOINTS[0] if name == PERSONAL else HOME_CHECKPOINTS[1]
        return self._trainer.checkpoint.with_name(file)

    def _epochs_paid(self, trainer: Trainer, number: int) -> int:
        """
        Return how many local epochs the budget pays for, keeping back the price of the choice.

        :raises BudgetExceededError: if it does not pay for one.
        """
        ledger, mechanism = self._ledger, trainer.mechanism
        done = ledger.chain.blocks(number)
        # What was chosen from does not change any more.
        chosen = ledger.chain.get(self._choice_number, 0) is not None
        left = 0 if chosen else trainer.learner.epochs - done

        def check(epochs: int) -> None:
            ledger.check(mechanism.charge(epochs * trainer.steps_per_block), self._choice)

        def is_refused(epochs: int) -> bool:
            try:
                check(epochs)
            except BudgetExceededError:
                return True
            return False

        if left > 0 and is_refused(left):
            left = bisect_left(range(1, left), True, key=is_refused)
        if not done + left:
            check(1)
            raise ledger.exceeded(ledger.epsilon(), ledger.epsilon())
        return done + left

    def leads(self, found: Mapping[str, np.ndarray]) -> dict[str, float]:
        """
        Release the noised mean lead of each candidate over the global policy.

        The whole is one Gaussian release of sensitivity `choice_clip`, of all patients.

        :param found: weights by the candidate's name, global among them.
        :raises BudgetExceededError: if the budget does not pay for it; nothing is drawn.
        """
        trainer, settings = self._trainer, self._home.settings
        names = [name for name in found if name != GLOBAL]
        sha = hashlib.sha256(trainer.start_digest(found[GLOBAL]))
        sha.update(repr((names, settings.choice_noise, settings.choice_clip)).encode())
        for name in names:
            sha.update(digest_of(found[name]))
        trainer.setup.source.check_drawable(self._choice_number)
        self._ledger.reserve(
            round=self._choice_number, block=0, charge=self._choice, inputs=sha.digest()
        )
        # The newest checkpoint also tells of this entry, should the ledger alone be restored.
        for path in (self._checkpoint(PERSONAL), trainer.checkpoint):
            if state := Checkpoint.read(path, self._ledger):
                state.save(path, self._ledger)
                break
        by_patient = trainer.privacy.unit == 'patient'
        scores = {
            name: agreement(trainer, trainer.network.policy(weights))
            for name, weights in found.items()
        }
        differences = np.column_stack([scores[name] - scores[GLOBAL] for name in names])
        # The number of patients is declared, that of transitions may be private.
        expected = trainer.mechanism.n_units if by_patient else trainer.privacy.batch
        noised = noisy_mean(
            clipped_sum(differences, settings.choice_clip),
            noise_multiplier=settings.choice_noise,
            clip_norm=settings.choice_clip,
            expected_batch=expected,
            noise=trainer.choice_noise(self._choice_number, len(names))
            if settings.choice_noise
            else np.zeros(len(names)),
        )
        return dict(zip(names, noised.tolist(), strict=True))


def choice_charge(
    mechanism: ChargedMechanism, privacy: PrivacySettings, home: HomeSettings
) -> Charge:
    """
    Return the charge of the choice: one step of all units, without amplification.

    Where a transition is the unit, each joins by itself, and a step may be part of the states of
    several: they are charged as in training.

    :raises PrivacyError: if there is no noise, and a budget.
    """
    if not home.choice_noise and not np.isinf(privacy.budget):
        raise PrivacyError(
            f'a choice without noise keeps no budget of {privacy.budget:g}: set home.choice_noise'
        )
    by_transition = privacy.unit == 'transition'
    group = mechanism.group if by_transition else 1
    # Records that are changed, not removed, move a sum by up to 2 C each.
    return Charge(home.choice_noise / (2.0 if group > 1 else 1.0), 1.0, 1, group)


def home_charges(
    learner: LearnerSettings,
    privacy: PrivacySettings,
    home: HomeSettings,
    size: Sized,
    chain: Chain | None = None,
    round: int = 0,
) -> tuple[Charge, ...]:
    """
    Return what the home policy after a round costs at most, beside what is charged of it already.

    :param chain: of the hospital's ledger; None for a new one.
    :param round: after which it is made.
    :raises PrivacyError: if the settings give no guarantee for the size.
    """
    if not home.epochs:
        return ()
    mechanism = ChargedMechanism.from_settings(size, learner, privacy)
    choice = choice_charge(mechanism, privacy, home)
    if chain is not None and chain.get(2 * HOME_ROUNDS + round, 0) is not None:
        return ()  # what was chosen from does not change any more
    epochs = 0
    for name, planned, number in (
        (PERSONAL, home.epochs, HOME_ROUNDS + round),
        (ALONE, home.alone_epochs, 3 * HOME_ROUNDS),
    ):
        charged = 0 if chain is None else chain.blocks(number)
        epochs += max(0, planned - charged) * (name in home.names)
    if not epochs:
        return (choice,)
    return mechanism.charge(epochs * mechanism.steps_of_epoch), choice


def clipped_sum(differences: NDArray[np.float64], clip_norm: float) -> NDArray[np.float64]:
    """
    Clip each unit's differences to L2 norm C and sum them.

    One unit more or less moves the sum by at most C. A unit with an undefined score adds nothing.

    :param differences: shape (units, candidates).
    :returns: shape (candidates,).
    """
    factors = clip_factors(np.linalg.norm(differences, axis=1), clip_norm)
    kept = factors > 0.0
    found: NDArray[np.float64] = factors[kept] @ differences[kept]
    return found


def agreement(trainer: Trainer, policy: Policy) -> NDArray[np.float64]:
    """
    Score a policy for each privacy unit: the share of recorded ticks where it does as recorded.

    What counts is the action that the robot would carry out. Softmax of its scores would be a
    probability for some learners only, and depend on the scale of the reward for others.
    Continuous actions count as 1 / (1 + mean square difference). A unit's score depends on no
    other unit: each is computed alone.

    :param trainer: whose records are scored, in the form of its network's input.
    :returns: in [0, 1], shape (units,).
    """
    records, transitions = trainer.records, trainer.transitions
    assert isinstance(records, Records)
    count = len(records.actions)
    starts = records.starts if trainer.privacy.unit == 'patient' else np.arange(count + 1)
    scores = np.empty(len(starts) - 1)
    for unit, (first, last) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
        rows = np.arange(first, last)
        given = policy.q_values(transitions.column('states', rows))
        actions = records.actions[first:last].reshape(len(rows), -1)
        if trainer.network.continuous:
            squares = np.square(np.asarray(given, np.float64).reshape(len(rows), -1) - actions)
            ticks = 1.0 / (1.0 + squares.mean(axis=1))
        else:
            ticks = given.argmax(axis=1).reshape(len(rows), -1) == actions
        scores[unit] = ticks.mean()
    return scores
