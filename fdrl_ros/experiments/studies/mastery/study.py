# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Measure every row in every cell, seed by seed, on the same unseen patients.

A seed first learns its public starts, which no cell changes. Then each cell makes records by its
surgeons, lets every row learn, and tries it: at home on unseen patients of the hospital whose it
is, and away on those of the hospitals of another federation.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
import hashlib
from importlib.util import find_spec
from pathlib import Path

import fdrl_ros
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.prepare import learn_public_start
from fdrl_ros.errors import StoreError
from fdrl_ros.experiments.json_file import from_json, Json, write_json
from fdrl_ros.experiments.studies.mastery.ceiling import learn_ceiling
from fdrl_ros.experiments.studies.mastery.evaluation import (
    controller_acts,
    expert_acts,
    summed,
    surgeons_act,
    Table,
    tried,
    tried_with_motors,
    unseen,
    VARIATIONS,
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
from fdrl_ros.experiments.studies.mastery.ppo import learn_ppo, ppo_acts
from fdrl_ros.experiments.studies.mastery.selector import (
    GLOBAL,
    PUBLIC,
    Robot,
    SELECTOR,
    SelectorActs,
    SelectorBench,
    summed_with_oracle,
)
from fdrl_ros.experiments.studies.mastery.settings import (
    ALONE,
    AWAY,
    Cell,
    Changes,
    EVERYWHERE,
    FEDERATED,
    OPEN_ALONE,
    OPEN_POOLED,
    plan_of,
    POOLED,
    Recipes,
    ROBUST,
    Sizes,
    STARTS,
    UNDISTURBED,
    WITH_MOTORS,
)
from fdrl_ros.experiments.studies.mastery.sparse import measure_sparse
from fdrl_ros.experiments.studies.mastery.summary import summarise
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.policy import decode_weights, encode_weights
from fdrl_ros.policy.network import Network
from fdrl_ros.resources import resource
from fdrl_ros.runtime import kernels
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.selector import HOLD
from fdrl_ros.selector.value.monte_carlo_reference import chooser_of
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.tasks.surgeon import habits_of
from fdrl_ros.tasks.task import Chooser
import numpy as np

PPO = 'ppo_on_public'
CEILING = 'ceiling'

Starts = Mapping[str, np.ndarray]
"""Weights of the public starts by name; those of PPO too, if it is installed."""

Key = tuple[Cell, int]
"""A cell and a seed."""

AllStarts = dict[int, dict[str, np.ndarray]]
"""The same by seed."""

LEARNING: Mapping[Callable[..., Learned], Recipes] = {
    learn_alone: ALONE,
    federate: FEDERATED,
    learn_pooled: POOLED,
    clone_alone: OPEN_ALONE,
    clone_pooled: OPEN_POOLED,
}
"""The rows that learn from records, by how they do."""

ROWS = tuple(name for recipes in LEARNING.values() for name in recipes)


class Bench:
    """
    Unseen patients of a cell, and everybody who was tried on them.

    :param plan: of the cell and seed.
    :param count: patients of each hospital.

    `home` and `away_by` are the patients by the hospital, `away` those together; `learned` is
    what was learned and `acted` who operates in each hospital, by the row; `found` is what came
    out.
    """

    def __init__(self, plan: Plan, count: int) -> None:
        self.plan, self.world = plan, plan.world
        self.home = {each.name: unseen(each, count) for each in plan.cohorts}
        other = plan.changed({'federation': {'seed': plan.federation.seed + AWAY}}).cohorts
        self.away_by = {each.name: unseen(each, count // len(other)) for each in other}
        self.away = [patient for each in self.away_by.values() for patient in each]
        self.acted: dict[str, Mapping[str, Chooser]] = {}
        self.learned: dict[str, Learned] = {}
        self.found: Json = {'home': {}, 'away': {}, 'epsilon': {}, 'chosen': {}}

    def try_at_home(self, name: str, acting: Mapping[str, Chooser]) -> None:
        """Try who operates in each hospital on its own patients."""
        self.acted[name] = acting
        self.found['home'][name] = {
            hospital: summed(patients, tried(patients, acting[hospital], self.world))
            for hospital, patients in self.home.items()
        }

    def try_away(self, name: str, acting: Sequence[Chooser]) -> None:
        """Try some on the patients of unseen hospitals; what counts is their mean."""
        tables = [tried(self.away, each, self.world) for each in acting]
        self.found['away'][name] = summed(self.away, np.mean(tables, axis=0))

    def try_everywhere(
        self,
        name: str,
        network: Network,
        weights: Mapping[str, np.ndarray],
        shared: np.ndarray | None,
    ) -> None:
        """
        Try the network at home and away.

        :param weights: that each hospital has, tried on its own patients.
        :param shared: those of a hospital that took no part, tried away; without any, what counts
            away is the mean over the hospitals' ones.
        """
        made: dict[bytes, Chooser] = {}

        def acting(weights: np.ndarray) -> Chooser:
            text = encode_weights(weights)
            if text not in made:
                made[text] = chooser_of(network.policy(weights))
            return made[text]

        own = {hospital: acting(each) for hospital, each in weights.items()}
        self.try_at_home(name, own)
        self.try_away(name, list(own.values()) if shared is None else [acting(shared)])

    def try_learned(self, name: str, learned: Learned) -> None:
        """Try what was learned."""
        self.learned[name] = learned
        self.try_everywhere(name, learned.network, learned.weights, learned.shared)
        self.found['epsilon'][name] = learned.epsilon
        if learned.chosen:
            self.found['chosen'][name] = dict(learned.chosen)

    def try_some(
        self,
        names: Collection[str],
        patients: Mapping[str, Sequence[Patient]],
        how: Callable[..., Table] = tried,
    ) -> Json:
        """
        Try some rows on other patients.

        :param patients: by the hospital.
        :returns: mean success over hospitals by the row.
        """
        return {
            name: float(
                np.mean(
                    [
                        how(own, self.acted[name][hospital], self.world)[:, 0].mean()
                        for hospital, own in patients.items()
                    ]
                )
            )
            for name in names
            if name in self.acted
        }


def measure_cell(
    plan: Plan, starts: Starts, count: int, work: Work, rows: Collection[str] | None = None
) -> Bench:
    """
    Let everybody learn and operate in one cell with one seed.

    :param plan: of the cell and seed.
    :param count: unseen patients of each hospital.
    :param rows: names of those that learn; all unless given.
    """
    bench, rows = Bench(plan, count), ROWS if rows is None else rows
    _try_unlearned(bench, starts)
    records = collect(plan, work.caller.stopped)
    done = 0
    for how, recipes in LEARNING.items():
        for name in (each for each in recipes if each in rows):
            work.check()
            work.tell(done, len(rows) + 1, name)
            recipe = recipes[name]
            learned = how(plan, recipe, records, starts[recipe.start], name)
            bench.try_learned(name, learned)
            done += 1
    return bench


def _try_unlearned(bench: Bench, starts: Starts) -> None:
    """Try who learns nothing in the hospitals."""
    plan, novice = bench.plan, controller_acts()
    known = {each.name: controller_acts(habits_of(each).experience) for each in plan.cohorts}
    bench.try_at_home('surgeons', surgeons_act(plan.cohorts, bench.home))
    bench.try_at_home('controller', dict.fromkeys(known, novice))
    bench.try_at_home('controller_experienced', known)
    bench.try_away('controller', [novice])
    start = starts['cloning']
    bench.try_everywhere(PUBLIC, plan.network, dict.fromkeys(known, start), start)
    if PPO in starts:
        plain = ppo_acts(starts[PPO])
        bench.try_at_home(PPO, dict.fromkeys(known, plain))
        bench.try_away(PPO, [plain])


def measure(plan: Plan, cell: Cell, starts: Starts, sizes: Sizes, work: Work) -> Json:
    """Measure one cell with one seed; a default cell in every way."""
    first = sizes.first(plan.federation.seed)
    if not cell.default:
        return measure_cell(plan, starts, sizes.of(cell), work, EVERYWHERE).found
    slow = {name for each in LEARNING.values() for name, recipe in each.items() if recipe.few}
    rows = [name for name in ROWS if name not in slow or first and sizes.implicit]
    bench = measure_cell(plan, starts, sizes.of(cell), work, rows)
    made = learn_ceiling(plan, sizes.ceiling, work.caller.stopped)
    told = {each.name: made.acting(each.hospital, sizes.default) for each in plan.cohorts}
    bench.try_at_home(CEILING, told)
    found = bench.found
    some = {name: patients[: sizes.motors] for name, patients in bench.home.items()}
    found['with_motors'] = bench.try_some(WITH_MOTORS, some, tried_with_motors)
    found['home']['expert'] = {
        name: summed(own, tried(own, expert_acts(own, bench.world), bench.world))
        for name, own in ((name, each[: sizes.expert]) for name, each in bench.home.items())
    }
    if first:
        learn_undisturbed(bench, sizes, work)
        found['robust'] = measure_robust(bench, sizes.robust)
    return found


def learn_undisturbed(bench: Bench, sizes: Sizes, work: Work) -> None:
    """Let the hospitals learn together in a world without disturbances, from its public start."""
    stopped = work.caller.stopped
    plan = bench.plan.changed({'federation': {'disturbances': False}})
    start = learn_public_start(start_plan(plan, 'cloning', sizes), stopped=stopped)
    records, recipe = collect(plan, stopped), FEDERATED['federated']
    learned = federate(plan, recipe, records, start, UNDISTURBED)
    bench.acted[UNDISTURBED] = {
        hospital: chooser_of(learned.network.policy(own))
        for hospital, own in learned.weights.items()
    }


def measure_selector(plan: Plan, starts: Starts, sizes: Sizes, work: Work) -> Json:
    """
    Let each hospital's robots choose in every state whose policy acts, in a default cell.

    The hospitals learn together once more, with the same noise as in the cell.

    :returns: rows at home and away, as the cell has them, and what the selector is worth.
    """
    bench, stopped, start = Bench(plan, sizes.default), work.caller.stopped, starts['cloning']
    records, recipe = collect(plan, stopped), FEDERATED['federated']
    learned = federate(plan, recipe, records, start, 'federated')
    made = {each: learned.network.policy(own) for each, own in learned.weights.items()}
    assert learned.shared is not None  # rounds share weights
    policies = {
        GLOBAL: learned.network.policy(learned.shared),
        PUBLIC: plan.network.policy(start),
        **made,
        HOLD: None,
    }
    value = dict(zip(('patients', 'checked', 'redraws'), sizes.valued, strict=True))
    valued = plan.changed({'value': value})
    robots = {each: Robot(valued, policies, each, stopped) for each in ('', *bench.home)}
    home, away = (
        SelectorBench(valued, policies, sizes.chosen_for, sizes.foreseen) for _ in range(2)
    )
    places = (
        *((home, robots[each], patients) for each, patients in bench.home.items()),
        *((away, robots[''], patients) for patients in bench.away_by.values()),
    )
    for done, (place, robot, patients) in enumerate(places):
        work.check()
        work.tell(done, len(places) + 1, robot.owner or 'away')
        place.add(patients, robot)
    bench.try_at_home(SELECTOR, {each: SelectorActs(robots[each]) for each in bench.home})
    bench.try_away(SELECTOR, [SelectorActs(robots[''])])
    bench.found['epsilon'][SELECTOR] = learned.epsilon
    bench.found['selector'] = summed_with_oracle({'home': home, 'away': away})
    return bench.found


def measure_robust(bench: Bench, count: int) -> Json:
    """
    Try rows under disturbances, and at the hospitals of another federation.

    :param count: patients of each hospital.
    """
    found: Json = {}
    for name, vary in VARIATIONS.items():
        patients = {each.name: vary(each, count) for each in bench.plan.cohorts}
        found[name] = bench.try_some(ROBUST, patients)
    away = bench.found['away']
    found['unseen_hospital'] = {name: away[name]['success'] for name in ROBUST if name in away}
    return found


# Public starts ----------------------------------------------------------------------------------


def start_plan(plan: Plan, name: str, sizes: Sizes) -> Plan:
    """Return the plan by which a public start is learned: that of no cell."""
    size = {'patients': sizes.public, 'steps': sizes.steps}
    neutral: Changes = {
        'federation': {'heterogeneity': 0.0, 'gap': 0.0},
        'pretraining': size,
    }
    return plan.changed(neutral).changed(STARTS.get(name, {}))


def start_names(sizes: Sizes, seed: int) -> list[str]:
    """Return the names of a seed's public starts, and of PPO if it is installed."""
    slow = sizes.implicit and sizes.first(seed)
    names = [each for each in STARTS if slow or each != 'implicit_q']
    return [*names, PPO] if find_spec('stable_baselines3') is not None else names


def start_parts(
    plan: Plan, seeds: Collection[int], sizes: Sizes, names: Collection[str] | None = None
) -> list[Part]:
    """Return the parts that learn the public starts of each seed, all unless they are named."""
    parts = []
    for seed in seeds:
        for name in start_names(sizes, seed) if names is None else names:
            own = start_plan(plan, name, sizes).changed({'federation': {'seed': seed}})
            settings = {'plan': _relevant(own), 'ppo': sizes.ppo}
            title = f'{name}, seed {seed}'
            parts.append(Part(f'{name}_{seed}', settings, (name, own, sizes), title))
    return parts


def study_of_starts(directory: Path, workers: int) -> Study:
    """Return the study that learns public starts and keeps them in a directory."""
    return Study('mastery starts', directory, measure_start, workers=workers)


def measure_start(name: str, plan: Plan, sizes: Sizes, work: Work) -> Json:
    """Learn one public start; return its weights as text."""

    def tell(what: str, done: int, total: int) -> None:
        work.tell(done, total, what)

    if name == PPO:
        weights = learn_ppo(plan, sizes.ppo)
    else:
        weights = learn_public_start(plan, tell, work.caller.stopped)
    return {'weights': b64encode(encode_weights(weights)).decode()}


def learn_starts(study: Study, parts: Sequence[Part], caller: Caller) -> AllStarts:
    """
    Learn public starts, kept once they are.

    :param study: of :func:`study_of_starts`.
    :param parts: of :func:`start_parts`.
    :returns: weights by seed and name.
    """
    starts: AllStarts = {}
    for part, found in zip(parts, study.run(parts, caller), strict=True):
        name, own, _ = part.arguments
        data = b64decode(found['weights'])
        assert isinstance(own, Plan)
        starts.setdefault(own.federation.seed, {})[str(name)] = decode_weights(
            data, len(data) // 4
        )
    return starts


# The whole --------------------------------------------------------------------------------------


def code_digest() -> str:
    """
    Return a hash of all sources, compiled ones too, of the world's constants and of the plan.

    :raises PrivacyError: if the compiled arithmetic is not built, or from other sources.
    """
    kernels.check_built()
    root, sha = Path(fdrl_ros.__file__).parent, hashlib.sha256()
    for path in sorted(root.rglob('*.py')):
        place = path.relative_to(root)
        if place.parts[0] not in ('msg', 'srv'):  # made by the build
            sha.update(f'{place}\n'.encode() + path.read_bytes())
    sha.update(kernels.ffi.string(kernels.lib.FDRL_SOURCES))
    for name in ('world.yaml', 'paper/mastery.yaml'):
        sha.update(resource(f'config/{name}').read_bytes())
    return sha.hexdigest()


def run_mastery(directory: Path, plan: Plan, sizes: Sizes, caller: Caller = NOBODY) -> Json:
    """
    Measure all cells and seeds, and sum up.

    Public starts, cells, selector and sparse rewards are a study each, in a directory of its own.
    Each writes the hash of all sources down before its first part, and goes on with no other code.
    One that is finished keeps its figures, whatever the code is by then; the summary names its
    hash.

    :param directory: of the studies; each is gone on from what is there.
    :returns: what ``mastery.json`` holds.
    :raises StoreError: if the code of an unfinished study has changed, or a part is damaged.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    """
    workers, first = plan.evaluation.workers, start_parts(plan, sizes.seeds[0], sizes)
    code, study = {}, study_of_starts(directory / 'starts', workers)
    code['starts'] = write_down_code(study, first)
    starts = learn_starts(study, first, caller)
    keys = [(cell, seed) for cell in sizes.cells for seed in sizes.seeds_of(cell)]
    default = [key for key in keys if key[0].default]
    few = [key for key in default if sizes.first(key[1])]

    def run(
        what: str, how: Callable[..., Json], keys: Sequence[Key], *given: Callable[[Key], object]
    ) -> dict[Key, Json]:
        """Measure cells and seeds; `how` is called with the plan, what is given, and sizes."""
        parts = []
        for cell, seed in keys:
            own = plan_of(plan, cell, seed, sizes)
            name = f'h_{cell.heterogeneity:g}_gap_{cell.gap:g}_of_{cell.patients}_{seed}'
            chooses = how is measure_selector
            settings = {'plan': _relevant(own, chooses=chooses), 'sizes': _content(sizes)}
            arguments = (own, *(each((cell, seed)) for each in given), sizes)
            effort = cell.patients / 500 + 3.0 * cell.default
            parts.append(Part(name, settings, arguments, f'{what} {name}', effort))
        study = Study(f'mastery {what}', directory / what, how, workers=workers)
        code[what] = write_down_code(study, parts)
        return dict(zip(keys, study.run(parts, caller), strict=True))

    def start(key: Key) -> Starts:
        return starts[key[1]]

    cells = run('cells', measure, keys, lambda key: key[0], start)
    for key, chosen in run('selector', measure_selector, default, start).items():
        for what, rows in chosen.items():
            cells[key].setdefault(what, {}).update(rows)
    sparse = [(key[0], each) for key, each in run('sparse', measure_sparse, few).items()]
    return {'code': code, **summarise(list(cells.items()), sparse, plan)}


def write_down_code(study: Study, parts: Sequence[Part]) -> str:
    """
    Write down with which code a study runs, unless it is written.

    :returns: the hash of the code that measured, or will measure, the parts.
    :raises StoreError: if the study is of other code, and not finished.
    """
    assert study.directory is not None
    path, code = study.directory / 'code.json', code_digest()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {'code': code})
    known = str(from_json(path.read_text('utf-8'))['code'])
    if known != code and None in study.finished(parts):
        raise StoreError(
            f'{path} is of other code: its numbers do not go with those of this one. Take another '
            'directory'
        )
    return known


def _relevant(plan: Plan, *, chooses: bool = False) -> Json:
    """
    Return the settings that a part depends on.

    :param chooses: whether a selector chooses in it, and policies are valued.
    """
    unused = {'shield', 'safety', 'evaluation', 'validation'}
    unused |= set() if chooses else {'selector', 'value'}
    return {name: each for name, each in plan.to_mapping().items() if name not in unused}


def _content(sizes: Sizes) -> Json:
    """Return the sizes that a part depends on."""
    return {name: value for name, value in asdict(sizes).items() if name not in ('seeds', 'cells')}
