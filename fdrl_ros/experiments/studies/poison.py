# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What poisoning hospitals do to the policy of all, with and without grouped sums.

Hospitals learn by the plan of the study of mastery, with privacy; some of them poison. Updates are
quantised and added as integers, bucket by bucket, without masks and encryption, which change no
bit of a sum: `real` plays the same federation by the parties of the field. What counts is how
often the shared policy succeeds on unseen patients of the hospitals that do not poison.

Seeds, sizes and rules were fixed on the seeds 101 and 102, before those of the report were run.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from fdrl_ros.audit.poison import ATTACKS, Conspiracy, flipped_labels, Target, with_backdoor
from fdrl_ros.crypto.he.schemes import EncryptionSettings, projections_of
from fdrl_ros.crypto.masking.buckets import Buckets, dealt
from fdrl_ros.deployment.agreed_encryption import bound_of_round
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import save_policy
from fdrl_ros.experiments.intervals import interval, paired, RATIO
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.mastery.evaluation import tried, unseen
from fdrl_ros.experiments.studies.mastery.learning import (
    ByHospital,
    calibrated,
    collect,
    trainers_of,
)
from fdrl_ros.experiments.studies.mastery.settings import (
    base_plan,
    Cell,
    FULL,
    plan_of,
    planned,
    Recipe,
)
from fdrl_ros.experiments.studies.mastery.study import (
    learn_starts,
    start_parts,
    study_of_starts,
)
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.federation.key_authority.robust import combine
from fdrl_ros.federation.key_authority.state import Validation
from fdrl_ros.federation.plain import PlainFederation
from fdrl_ros.federation.virtual import PlainLearner, VirtualFederation
from fdrl_ros.learner.learner import Learner
from fdrl_ros.learner.pretraining import pretrain, Start
from fdrl_ros.learner.records.records import Records
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.selector.value.monte_carlo_reference import chooser_of
from fdrl_ros.surgery.gym.actions import ACTION_COUNT, CLOSE_JAW, OPEN_JAW, STAY
from fdrl_ros.surgery.patient.patient import Patient
import numpy as np

SEEDS = (1, 2, 3, 4, 5)
"""Of the report, fixed beforehand."""

CHOOSING_SEEDS = (101, 102)
"""On which rules, sizes and the norm were chosen."""

HOSPITALS = 30
TENTH, THIRD = 3, 9
"""Attackers: 10 and 30 % of the hospitals."""

BUCKETS = 10
"""As many as there can be: three hospitals in each."""

BACKDOOR = 'palpation'
"""Procedure in which the backdoor makes the arm stay still: three of four specialities do it."""

NOBODY_POISONS = 'none'

_CELL = Cell(1.0, 1.0, 100)
_RECIPE = Recipe(
    {
        'home': {'epochs': 0},
        'rounds': {'rounds': 4},
        'learner': {'transitions_per_patient': 15},
    }
)
_SIZES = replace(FULL, public=2000, steps=5000)
_OPEN_STEPS = 300  # of an attacker that learns without privacy


class Defence(NamedTuple):
    """
    How the key authority makes one update of many.

    :param rule: one of :data:`fdrl_ros.federation.key_authority.robust.RULES`.
    :param buckets: 0 for one sum.
    :param norm: largest norm of an update; 0: what an honest hospital can make at most.
    :param tested: whether buckets that alone fail on public patients are left out.
    """

    rule: str = 'mean'
    buckets: int = 0
    norm: float = 0.0
    tested: bool = False

    @property
    def name(self) -> str:
        """Return the name in tables and files."""
        named = f'{self.rule}, norm {self.norm:g}' if self.norm else self.rule
        return f'{named}, tested' if self.tested else named


UNDEFENDED = Defence()


@dataclass(frozen=True, eq=False)
class Scene:
    """
    What all federations of a seed have in common.

    :param patients: unseen ones, by hospital.
    :param order: of the hospitals; the first ones poison.
    :param norm: largest norm of an update that an honest hospital can make.
    """

    plan: Plan
    start: np.ndarray
    records: ByHospital
    patients: Mapping[str, Sequence[Patient]]
    order: Sequence[str]
    limit: float
    norm: float

    def public(self, weights: np.ndarray) -> float:
        """Return the share of public patients on whom a policy succeeds."""
        public, plan = self.plan.public_cohort(), self.plan
        patients = unseen(public, plan.validation.patients)
        found = tried(patients, chooser_of(plan.network.policy(weights)), plan.world)
        return float(found[:, 0].mean())

    @cached_property
    def _wanted(self) -> float:
        return self.public(self.start) - self.plan.validation.margin

    def validate(self, weights: np.ndarray) -> Validation:
        """Test a policy on public patients, against the public start."""
        share = self.public(weights)
        return Validation(share >= self._wanted, f'succeeds on {share:.0%} of the public patients')

    def encryption(self, norm: float) -> EncryptionSettings:
        """Return the settings of the updates, all of them numbers."""
        layout, chosen = self.plan.network.layout, self.plan.encryption
        trained = layout.trained(self.plan.learner.frozen_tensors).size
        projections = projections_of(chosen, trained)
        return replace(chosen, limit=self.limit, norm=norm or self.norm, projections=projections)


def scene_of(seed: int, directory: Path, patients: int) -> Scene:
    """
    Learn the public start of a seed and collect records.

    :param directory: where starts are kept.
    :param patients: unseen ones of each hospital.
    """
    base = base_plan().changed({'federation': {'hospitals': HOSPITALS}})
    study = study_of_starts(directory / 'starts', 1)
    parts = start_parts(base, [seed], _SIZES, ['cloning'])
    start = learn_starts(study, parts, NOBODY)[seed]['cloning']
    plan = plan_of(base, _CELL, seed)
    records = _records(plan, directory / 'records' / str(seed))
    plan = calibrated(planned(plan, _RECIPE), next(iter(records.values())))
    file = directory / 'starts' / f'start_{seed}.npz'
    save_policy(file, start, plan)
    bound = bound_of_round(plan, _CELL.patients, file)
    assert bound is not None
    rng = np.random.default_rng([Stream.CLONING, seed, HOSPITALS])
    order = [str(name) for name in rng.permutation(list(plan.hospitals))]
    every = {each.name: unseen(each, patients) for each in plan.cohorts}
    return Scene(plan, start, records, every, order, bound.limit, bound.norm_limit)


def _records(plan: Plan, folder: Path) -> dict[str, Records]:
    """Return the records of all hospitals, collected on the first call."""
    paths = {name: folder / f'{name}.npz' for name in plan.hospitals}
    if not all(each.exists() for each in paths.values()):
        folder.mkdir(parents=True, exist_ok=True)
        for name, own in collect(plan, lambda: False).items():
            own.save(paths[name])
    return {name: plan.load_records(path) for name, path in paths.items()}


def contrary() -> np.ndarray:
    """Return the contrary of each action: the other way, or the other motion of the jaw."""
    pairs = np.arange(ACTION_COUNT) ^ 1
    pairs[[STAY, OPEN_JAW, CLOSE_JAW]] = STAY, CLOSE_JAW, OPEN_JAW
    return pairs


def poisoned(records: Records, learns: str, plan: Plan) -> Records:
    """Return what an attacker learns from."""
    if learns == 'flipped':
        return flipped_labels(records, contrary().tolist())
    if learns == 'backdoor':
        return with_backdoor(records, plan.spec.names.index(BACKDOOR), STAY)
    return records


@contextmanager
def learners_of(
    scene: Scene, attack: str, count: int, defence: Defence, deal: Callable[[int], Buckets]
) -> Iterator[dict[str, Learner]]:
    """
    Open the learners of all hospitals, some of which poison.

    :param attack: a name of ATTACKS, or that of nobody.
    :param count: attackers.
    :param deal: the buckets of a round, which attackers that adapt know as they know the defence.
    """
    plan, guilty = scene.plan, scene.order[:count]
    if attack == NOBODY_POISONS:
        with trainers_of(plan, scene.records, 'poison', scene.start) as trainers:
            yield dict(trainers)
        return
    chosen, norm = ATTACKS[attack], scene.encryption(defence.norm).norm
    bad = {name: poisoned(scene.records[name], chosen.learns, plan) for name in guilty}
    records = scene.records if chosen.openly else {**scene.records, **bad}
    with trainers_of(plan, records, 'poison', scene.start) as trainers:
        honest: dict[str, Learner] = {name: trainers[name] for name in guilty}
        own = honest
        if chosen.openly:
            own = {name: _open_learner(scene, bad[name], name) for name in guilty}
        target = Target(deal, partial(combine, defence.rule), honest)
        yield {**trainers, **Conspiracy(chosen, own, norm, target).attackers()}


def _open_learner(scene: Scene, records: Records, name: str) -> Learner:
    """Return a learner without privacy that trains all weights, as an attacker may."""
    plan = scene.plan.with_all_weights()
    settings = replace(plan.pretraining, steps=_OPEN_STEPS)
    number = scene.order.index(name)

    def step(weights: np.ndarray, round: int) -> np.ndarray:
        rng = np.random.default_rng([Stream.CLONING, plan.federation.seed, number, round])
        return pretrain(records, Start(weights, plan.network, plan.learner), settings, rng)

    return PlainLearner(step, n_units=records.n_patients, seed=number)


def play(
    scene: Scene,
    learners: Mapping[str, Learner],
    defence: Defence,
    deal: Callable[[int], Buckets],
) -> np.ndarray:
    """
    Play the rounds, and return the shared policy's weights.

    :param deal: the buckets of a round.
    """
    federation = PlainFederation(
        learners,
        scene.start,
        scene.plan.network.layout,
        encryption=scene.encryption(defence.norm),
        deal=deal,
        **defence_options(scene, defence),
    )
    for _ in range(scene.plan.rounds.rounds):
        federation.play()
    return federation.weights


def defence_options(scene: Scene, defence: Defence) -> dict[str, Any]:
    """Return what a federation is given of a defence besides its buckets."""
    tested = {'validate': scene.validate, 'test_buckets': True} if defence.tested else {}
    return {'combine': defence.rule, **tested}


def deal_of(scene: Scene, defence: Defence) -> Callable[[int], Buckets]:
    """Return the buckets of each round of a seed."""

    def deal(round: int) -> Buckets:
        key = hashlib.sha256(f'poison {scene.plan.federation.seed} {round}'.encode()).digest()
        return dealt(scene.plan.hospitals, key, max(1, defence.buckets))

    return deal


def success(scene: Scene, weights: np.ndarray) -> Json:
    """Return how often a policy succeeds, by hospital, and by hospital in the backdoor's case."""
    names = list(scene.patients)
    every = [patient for name in names for patient in scene.patients[name]]
    policy = scene.plan.network.policy(weights)
    found = tried(every, chooser_of(policy), scene.plan.world)[:, 0]
    there = np.array([each.procedure.name == BACKDOOR for each in every])
    found, there = found.reshape(len(names), -1), there.reshape(len(names), -1)
    return {
        'success': dict(zip(names, found.mean(axis=1).tolist(), strict=True)),
        'backdoor': {
            name: [int(at.sum()), float(row[at].sum())]
            for name, row, at in zip(names, found, there, strict=True)
        },
    }


_scenes: dict[tuple[int, str, int], Scene] = {}  # the newest one: parts of a seed follow


def measure(
    seed: int,
    attack: str,
    count: int,
    defences: Sequence[Defence],
    patients: int,
    directory: Path,
    work: Work,
) -> Json:
    """Let the hospitals of a seed learn under an attack with each defence."""
    key = seed, str(directory), patients
    if key not in _scenes:
        _scenes.clear()
        _scenes[key] = scene_of(seed, directory, patients)
    scene = _scenes[key]
    found: Json = {'order': list(scene.order), 'norm': scene.norm, 'limit': scene.limit}
    found['start'] = success(scene, scene.start)
    for done, defence in enumerate(defences):
        work.check()
        work.tell(done, len(defences), defence.name)
        deal = deal_of(scene, defence)
        with learners_of(scene, attack, count, defence, deal) as learners:
            weights = play(scene, learners, defence, deal)
        found[defence.name] = success(scene, weights)
    return found


def run_poison(
    directory: Path,
    seeds: Sequence[int],
    attacks: Sequence[tuple[str, int]],
    defences: Sequence[Defence],
    patients: int,
    caller: Caller = NOBODY,
    workers: int = 1,
) -> Json:
    """
    Measure each attack with each seed and defence.

    :param directory: gets ``parts/``, one JSON file a seed and attack, and is gone on from them.
    :param attacks: by name, with the number of attackers.
    :param patients: unseen ones of each hospital.
    :returns: by attack and defence, success with intervals; see :func:`summarise`.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    """
    told = [dict(each._asdict()) for each in defences]
    parts = [
        Part(
            f'seed_{seed}_{attack}_{count}',
            {'seed': seed, 'attack': attack, 'count': count, 'defences': told}
            | {'patients': patients},
            (seed, attack, count, tuple(defences), patients, directory),
            f'seed {seed}, {attack} by {count}',
        )
        for seed in seeds
        for attack, count in attacks
    ]
    study = Study('poison', directory / 'parts', measure, workers=workers)
    found = iter(study.run(parts, caller))
    rows = {seed: {each: next(found) for each in attacks} for seed in seeds}
    return summarise(rows, defences)


Row = Mapping[tuple[str, int], Json]


def clean(row: Json, name: str, count: int, what: str = 'success') -> float:
    """
    Return the mean success of hospitals that do not poison.

    :param name: of the defence.
    :param count: attackers, who are the first in the order.
    """
    honest = row['order'][count:]
    if what == 'success':
        return float(np.mean([row[name]['success'][each] for each in honest]))
    done, succeeded = np.sum([row[name]['backdoor'][each] for each in honest], axis=0)
    return float(succeeded / done)


def summarise(rows: Mapping[int, Row], defences: Sequence[Defence]) -> Json:
    """
    Sum up over seeds: success of the hospitals that do not poison, in %.

    Beside each stands what is kept of what these very hospitals have if nobody poisons and nothing
    defends (the clean return), and the difference to it, paired by seed.

    :param rows: by seed and attack.
    """
    found: Json = {'seeds': list(rows), 'attacks': []}
    keys = next(iter(rows.values()))
    none = (NOBODY_POISONS, 0)
    for key in keys:
        attack, count = key
        entry: Json = {'attack': attack, 'attackers': count, 'defences': {}}
        for name in ('start', *(each.name for each in defences)):
            own, base = [], []
            there, there_base = [], []
            for each in rows.values():
                own.append(100.0 * clean(each[key], name, count))
                base.append(100.0 * clean(each[none], UNDEFENDED.name, count))
                there.append(100.0 * clean(each[key], name, count, 'backdoor'))
                there_base.append(100.0 * clean(each[none], UNDEFENDED.name, count, 'backdoor'))
            entry['defences'][name] = {
                'success': interval(own, (0.0, 100.0)),
                'kept': interval([a / b for a, b in zip(own, base, strict=True)], RATIO),
                'lead': paired(own, base),
                'in_backdoor': interval(there, (0.0, 100.0)),
                'lead_in_backdoor': paired(there, there_base),
            }
        found['attacks'].append(entry)
    return found


def is_real(scene: Scene, attack: str, count: int, defence: Defence) -> bool:
    """
    Tell whether the parties of the field, with masks and encryption, make the very same policy.

    They deal other buckets than :func:`deal_of`, by their roster; both are played with those.
    """
    deals: list[Callable[[int], Buckets]] = []
    with learners_of(scene, attack, count, defence, lambda number: deals[0](number)) as learners:
        federation = VirtualFederation(
            learners,
            scene.start,
            scene.plan.network.layout,
            encryption=scene.encryption(defence.norm),
            buckets=defence.buckets,
            **defence_options(scene, defence),
        )
        deals.append(deal := federation.roster.buckets_of)
        real = federation.play(scene.plan.rounds.rounds)
    with learners_of(scene, attack, count, defence, deal) as learners:
        made = play(scene, learners, defence, deal)
    return real.tobytes() == made.tobytes()
