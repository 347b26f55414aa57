# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Measure every row in every cell, seed by seed, on the same unseen patients.

A seed first learns its public starts, which no cell changes. Then each cell makes records by its
surgeons, lets every row learn, and tries it: at home on unseen patients of the hospital whose it
is, and away on those of hospitals of another federation.
"""

from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import learn_public_start
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.mastery.evaluation import (
    controller_acts,
    summed,
    tried,
    unseen,
)
from fdrl_ros.experiments.studies.mastery.learning import (
    clone_alone,
    clone_pooled,
    collect,
    federate,
    learn_alone,
    learn_pooled,
    Learned,
)
from fdrl_ros.experiments.studies.mastery.settings import (
    ALONE,
    Changes,
    FEDERATED,
    OPEN_ALONE,
    OPEN_POOLED,
    POOLED,
    Sizes,
    STARTS,
)
from fdrl_ros.experiments.study import chosen_settings, Part, Study, Work
from fdrl_ros.policy import decode_weights, encode_weights
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.selector.value.monte_carlo_reference import chooser_of
from fdrl_ros.surgery.tasks.surgeon import habits_of, Surgeons
from fdrl_ros.tasks.task import Chooser
import numpy as np

AWAY = 10_000
"""Added to the seed of a federation, for the hospitals of another one."""

PUBLIC = 'public_start'


def start_plan(plan: Plan, name: str, sizes: Sizes) -> Plan:
    """Return the plan by which a public start is learned: that of no cell."""
    size = {'patients': sizes.public, 'steps': sizes.steps}
    neutral: Changes = {'federation': {'heterogeneity': 0.0, 'gap': 0.0}, 'pretraining': size}
    return plan.changed(neutral).changed(STARTS[name])


def start_parts(plan: Plan, seeds: Collection[int], sizes: Sizes) -> list[Part]:
    """Return the parts that learn the public starts of each seed."""
    parts = []
    for seed in seeds:
        for name in STARTS:
            own = start_plan(plan, name, sizes).changed({'federation': {'seed': seed}})
            groups = ('federation', 'learner', 'collection', 'pretraining', 'world')
            settings = {'plan': chosen_settings(own, *groups)}
            parts.append(Part(f'{name}_{seed}', settings, (own,), f'start {name}, seed {seed}'))
    return parts


def measure_start(plan: Plan, work: Work) -> Json:
    """Learn one public start."""

    def tell(what: str, done: int, total: int) -> None:
        work.tell(done, total, what)

    weights = learn_public_start(plan, tell, work.caller.stopped)
    return {'weights': b64encode(encode_weights(weights)).decode()}


def learn_starts(
    directory: Path, plan: Plan, seeds: Sequence[int], sizes: Sizes, caller: Caller = NOBODY
) -> dict[int, dict[str, np.ndarray]]:
    """Return the weights of the public starts of each seed by their names, kept once learned."""
    study = Study('mastery starts', directory, measure_start, workers=plan.evaluation.workers)
    found = iter(study.run(start_parts(plan, seeds, sizes), caller))
    size = plan.network.layout.n_parameters
    return {
        seed: {name: decode_weights(b64decode(next(found)['weights']), size) for name in STARTS}
        for seed in seeds
    }


class Bench:
    """
    Unseen patients of a cell, and everybody who was tried on them.

    :param plan: of the cell and seed.
    :param count: patients of each hospital.
    """

    def __init__(self, plan: Plan, count: int) -> None:
        self.plan, self.world = plan, plan.world
        self.home = {each.name: unseen(each, count) for each in plan.cohorts}
        other = plan.changed({'federation': {'seed': plan.federation.seed + AWAY}}).cohorts
        self.away = [each for cohort in other for each in unseen(cohort, count // len(other))]
        self.found: Json = {'home': {}, 'away': {}}

    def acting(self, weights: np.ndarray) -> Chooser:
        """Return a network as somebody who operates."""
        return chooser_of(self.plan.network.policy(weights))

    def try_at_home(self, name: str, acting: Mapping[str, Chooser]) -> None:
        """Try who operates in each hospital on its own patients."""
        self.found['home'][name] = {
            hospital: summed(patients, tried(patients, acting[hospital], self.world))
            for hospital, patients in self.home.items()
        }

    def try_away(self, name: str, acting: Sequence[Chooser]) -> None:
        """Try some on the patients of unseen hospitals; what counts is their mean."""
        tables = [tried(self.away, each, self.world) for each in acting]
        self.found['away'][name] = summed(self.away, np.mean(tables, axis=0))

    def try_learned(self, name: str, learned: Learned) -> None:
        """Try what was learned at home and away, where each hospital's serves in its turn."""
        acting = {each: self.acting(weights) for each, weights in learned.weights.items()}
        self.try_at_home(name, acting)
        same = len({weights.tobytes() for weights in learned.weights.values()}) == 1
        self.try_away(name, list(acting.values())[: 1 if same else None])
        self.found.setdefault('epsilon', {})[name] = learned.epsilon
        if learned.chosen:
            self.found.setdefault('chosen', {})[name] = dict(learned.chosen)


def measure_cell(
    plan: Plan,
    starts: Mapping[str, np.ndarray],
    count: int,
    work: Work,
    rows: Collection[str] | None = None,
) -> Json:
    """
    Let everybody learn and operate in one cell with one seed.

    :param plan: of the cell and seed.
    :param starts: weights of the public starts, by name.
    :param count: unseen patients of each hospital.
    :param rows: names of those that learn; all unless given.
    """
    bench = Bench(plan, count)
    fixed_rows(bench, starts)
    records = collect(plan, work.caller.stopped)
    for how, recipes in LEARNING.items():
        for name, recipe in recipes.items():
            if rows is None or name in rows:
                work.check()
                work.tell(len(bench.found['home']), len(ROWS), name)
                learned = how(plan, recipe, records, starts[recipe.start], name)
                bench.try_learned(name, learned)
    return bench.found


LEARNING = {
    learn_alone: ALONE,
    federate: FEDERATED,
    learn_pooled: POOLED,
    clone_alone: OPEN_ALONE,
    clone_pooled: OPEN_POOLED,
}
"""The rows that learn from records, by how they do."""

ROWS = tuple(name for recipes in LEARNING.values() for name in recipes)


def fixed_rows(bench: Bench, starts: Mapping[str, np.ndarray]) -> None:
    """Try who learns nothing in the hospitals."""
    plan = bench.plan
    novice, start = controller_acts(), bench.acting(starts['cloning'])
    known = {each.name: controller_acts(habits_of(each).experience) for each in plan.cohorts}
    horizons = {name: max(p.procedure.horizon for p in each) for name, each in bench.home.items()}
    surgeons = {
        each.name: Surgeons(
            habits_of(each),
            [
                np.random.default_rng([Stream.EVALUATION, plan.federation.seed, each.hospital, n])
                for n in range(len(bench.home[each.name]))
            ],
            horizons[each.name],
        ).act
        for each in plan.cohorts
    }
    bench.try_at_home('surgeons', surgeons)
    bench.try_at_home('controller', dict.fromkeys(known, novice))
    bench.try_at_home('controller_experienced', known)
    bench.try_at_home(PUBLIC, dict.fromkeys(known, start))
    bench.try_away('controller', [novice])
    bench.try_away(PUBLIC, [start])
