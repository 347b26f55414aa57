# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How the rows of the study learn: together, alone, or with all records in one place.

Whoever learns with privacy does so by the learner, ledger and parties of the field, and spends
the same epsilon in all: what is chosen at home, and by which noise, is part of it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, ExitStack
from dataclasses import dataclass, replace
import math
from pathlib import Path
from tempfile import TemporaryDirectory

from fdrl_ros.deployment.parties.hospital import open_training
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.studies.mastery.settings import planned, Recipe, TARGET
from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.virtual import VirtualFederation
from fdrl_ros.learner.home import home_charges, HomeTrainer
from fdrl_ros.learner.learner import HomePolicy
from fdrl_ros.learner.pretraining import pretrain, Start
from fdrl_ros.learner.privacy_cost import ChargedMechanism
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.trainer import Trainer
from fdrl_ros.policy.network import Network
from fdrl_ros.privacy.accountant.accountant import Charge, epsilon_pld
from fdrl_ros.runtime.progress import Stopped
from fdrl_ros.runtime.random_streams import Stream
import numpy as np
from scipy import optimize

ByHospital = Mapping[str, Records]


@dataclass(frozen=True, eq=False)
class Learned:
    """
    What a row learned.

    :param network: of the weights.
    :param weights: that each hospital's robots use, by the hospital.
    :param shared: weights that a hospital which took no part would get; None if there are none.
    :param epsilon: that the hospital which spent most has spent; infinite without privacy.
    :param chosen: the candidate that each hospital chose at home.
    """

    network: Network
    weights: Mapping[str, np.ndarray]
    shared: np.ndarray | None
    epsilon: float
    chosen: Mapping[str, str] | None = None


def collect(plan: Plan, stopped: Stopped) -> dict[str, Records]:
    """Return the records of every hospital, by its surgeons."""
    simulator = HospitalSimulator(plan.task, plan.world, plan.collection)
    return {
        name: simulator.collect(cohort, stopped=stopped)
        for name, cohort in zip(plan.hospitals, plan.cohorts, strict=True)
    }


def pooled(records: ByHospital) -> Records:
    """Return the records of all hospitals in one place; patients' names tell hospitals apart."""
    every = list(records.values())
    starts, before = [np.zeros(1, np.int64)], 0
    for each in every:
        starts.append(each.starts[1:] + before)
        before += each.n_transitions

    def column(name: str) -> np.ndarray:
        return np.concatenate([getattr(each, name) for each in every])

    names = ('states', 'actions', 'rewards', 'next_states', 'terminals')
    states, actions, rewards, following, terminals = map(column, names)
    ended = (np.concatenate(starts), column('patients'), column('ends'))
    return Records(states, actions, rewards, following, terminals, *ended, task=every[0].task)


def charges(plan: Plan, records: Records, local: int = 0) -> list[Charge]:
    """
    Return what rounds, fine-tuning and choice cost a patient.

    :param local: further rounds, of each hospital by itself.
    :raises PrivacyError: if the settings give no guarantee for these records.
    """
    mechanism = ChargedMechanism.from_settings(records, plan.learner, plan.privacy)
    steps = (plan.rounds.rounds + local) * plan.learner.epochs * mechanism.steps_of_epoch
    at_home = home_charges(plan.learner, plan.privacy, plan.home, records)
    return [mechanism.charge(steps), *at_home]


def calibrated(plan: Plan, records: Records, local: int = 0) -> Plan:
    """Return a plan with the noise by which its :func:`charges` cost the target."""

    def changed(noise: float) -> Plan:
        return plan.replaced({'privacy': {'noise_multiplier': noise}})

    def excess(log_noise: float) -> float:
        costs = charges(changed(math.exp(log_noise)), records, local)
        return math.log(epsilon_pld(costs, plan.privacy.delta) / TARGET)

    found = math.exp(optimize.brentq(excess, math.log(0.4), math.log(60.0), xtol=1e-4))
    return changed(math.ceil(1e3 * found) / 1e3)  # upwards: epsilon stays below the target


def federate(
    plan: Plan, recipe: Recipe, records: ByHospital, start: np.ndarray, name: str
) -> Learned:
    """
    Let hospitals learn together: rounds, then the home policy if the recipe has one.

    :param plan: of the cell; the recipe changes it.
    :param name: of the row, by which its noise differs from that of other rows.
    """
    own = next(iter(records.values()))
    plan = calibrated(planned(plan, recipe), own, recipe.local)
    with trainers_of(plan, records, name, start) as trainers:
        personal, layout = plan.federation.personal_layers, plan.network.layout
        federation = VirtualFederation(
            trainers, start, layout, personal=personal, step=plan.server.step()
        )
        shared = federation.play(plan.rounds.rounds)
        made = federation.home()
        weights = {name: _own(federation, name, shared) for name in records}
        weights |= {name: each.weights for name, each in made.items()}
        for round in range(plan.rounds.rounds, plan.rounds.rounds + recipe.local):
            weights = {name: _train(trainers[name], weights[name], round + 1) for name in weights}
        epsilon = max(each.ledger.epsilon() for each in trainers.values())
    return Learned(plan.network, weights, shared, epsilon, _chosen(made))


def learn_alone(
    plan: Plan, recipe: Recipe, records: ByHospital, start: np.ndarray, name: str
) -> Learned:
    """Let each hospital learn without the others: its rounds, then its home policy if any."""
    plan = calibrated(planned(plan, recipe), next(iter(records.values())))
    learned, chosen = {}, {}
    with trainers_of(plan, records, name, start) as trainers:
        for hospital, trainer in trainers.items():
            weights = start
            for round in range(1, plan.rounds.rounds + 1):
                weights = _train(trainer, weights, round)
            learned[hospital] = weights
            if isinstance(trainer, HomeTrainer):
                made = trainer.home(weights, plan.rounds.rounds)
                learned[hospital], chosen[hospital] = made.weights, made.chosen
        epsilon = max(each.ledger.epsilon() for each in trainers.values())
    return Learned(plan.network, learned, None, epsilon, chosen or None)


def learn_pooled(
    plan: Plan, recipe: Recipe, records: ByHospital, start: np.ndarray, name: str
) -> Learned:
    """
    Learn from all records in one place, as one hospital with everybody's patients.

    With a home policy in the recipe, each hospital then makes its own of what was learned.
    """
    first, own = next(iter(records.items()))
    plan, count = calibrated(planned(plan, recipe), own), len(records)
    every = {
        'privacy': {'batch': plan.privacy.batch * count},
        'collection': {'patients': plan.collection.patients * count},
        'home': {'epochs': 0},
    }
    shared = start
    with trainers_of(plan.changed(every), {first: pooled(records)}, name) as trainers:
        for round in range(1, plan.rounds.rounds + 1):
            shared = _train(trainers[first], shared, round)
    learned, chosen = dict.fromkeys(records, shared), {}
    if plan.home.epochs:
        with trainers_of(plan, records, f'{name} home', start) as trainers:
            for hospital, trainer in trainers.items():
                assert isinstance(trainer, HomeTrainer)
                made = trainer.home(shared, plan.rounds.rounds)
                learned[hospital], chosen[hospital] = made.weights, made.chosen
    epsilon = epsilon_pld(charges(plan, own), plan.privacy.delta)
    return Learned(plan.network, learned, shared, epsilon, chosen or None)


def clone_alone(
    plan: Plan, recipe: Recipe, records: ByHospital, start: np.ndarray, name: str
) -> Learned:
    """Let each hospital learn alone, without privacy, by minibatches as the public start does."""
    plan = plan.changed(recipe.changes)
    begin, weights = Start(start, plan.network, plan.learner), {}
    for number, (hospital, own) in enumerate(records.items()):
        rng = np.random.default_rng([Stream.CLONING, plan.federation.seed, number])
        weights[hospital] = pretrain(own, begin, plan.pretraining, rng)
    return Learned(plan.network, weights, None, math.inf)


def clone_pooled(
    plan: Plan, recipe: Recipe, records: ByHospital, start: np.ndarray, name: str
) -> Learned:
    """Learn so from all records in one place."""
    found = clone_alone(plan, recipe, {name: pooled(records)}, start, name)
    weights = found.weights[name]
    return replace(found, weights=dict.fromkeys(records, weights), shared=weights)


def _chosen(made: Mapping[str, HomePolicy]) -> dict[str, str] | None:
    return {name: each.chosen for name, each in made.items()} or None


def _own(federation: VirtualFederation, name: str, shared: np.ndarray) -> np.ndarray:
    """Return the shared weights with the layers that a hospital kept to itself, if any."""
    party = federation.parties[name]
    assert isinstance(party, Hospital)
    own = party.with_own_layers()
    return shared if own is None else own


@contextmanager
def trainers_of(
    plan: Plan, records: ByHospital, name: str, start: np.ndarray | None = None
) -> Iterator[dict[str, Trainer]]:
    """Open a new ledger and a trainer for each hospital; they are gone afterwards."""
    with TemporaryDirectory() as folder, ExitStack() as stack:
        trainers = {}
        for hospital, own in records.items():
            directory = Path(folder) / hospital
            directory.mkdir(mode=0o700)
            made = open_training(directory, hospital, plan, own, purpose=name, start=start)
            stack.callback(made.ledger.close)
            trainers[hospital] = made
        yield trainers


def _train(trainer: Trainer, weights: np.ndarray, round: int) -> np.ndarray:
    return trainer.train(weights, round, report=lambda told: None, stopped=lambda: False).weights
