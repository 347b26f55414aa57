# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What more hospitals bring: success and epsilon against their number, over several seeds.

Every number of hospitals gets a federation of its own, whose hospitals have the same number of
patients each. A seed has one public start for all of them. Policies are tried on unseen patients
of a sample of the hospitals: the shared one, and what each of these has at home, with the
federation or alone; and away, on those of hospitals that took no part. Rounds are those of
:class:`fdrl_ros.federation.plain.PlainFederation`, bit for bit those of the protocol.

With clusters, the hospitals of each speciality are a federation of their own as well. A speciality
is stated in public: no record tells who belongs together.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, ExitStack
from pathlib import Path

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.parties.hospital import open_records, open_training
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.policy_file import load_policy, save_policy
from fdrl_ros.deployment.prepare import learn_public_start
from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.intervals import Interval, interval, paired, SHARE
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.studies.heterogeneity import over_levels
from fdrl_ros.experiments.studies.mastery.evaluation import (
    controller_acts,
    summed,
    tried,
    unseen,
)
from fdrl_ros.experiments.studies.mastery.settings import AWAY
from fdrl_ros.experiments.study import chosen_settings, Part, Study, Work
from fdrl_ros.experiments.training import alone_path, train_alone
from fdrl_ros.federation.key_authority.server_step import Stepped
from fdrl_ros.federation.plain import PlainFederation
from fdrl_ros.federation.protocol.store import Store
from fdrl_ros.learner.home import HomeTrainer
from fdrl_ros.learner.records.records import Records
from fdrl_ros.learner.trainer import Trainer
from fdrl_ros.policy import decode_weights, encode_weights
from fdrl_ros.runtime.durable import make_private_directory
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.selector.value.monte_carlo_reference import chooser_of
from fdrl_ros.surgery.tasks.procedures import SPECIALITIES
from fdrl_ros.tasks.task import Chooser
import numpy as np

COUNTS = (3, 10, 30, 100, 300)
"""Numbers of hospitals that are compared."""

SHOWN = 10
"""Hospitals whose patients policies are tried on, at most; drawn by the seed."""

CONTROLLER, START = 'hand_written_controller', 'public_start'
ALONE, SHARED, HOME = 'alone', 'global', 'home'
WHO = (CONTROLLER, START, ALONE, SHARED, HOME)
"""Who operates: two that learn from no record, a hospital alone, and two of the federation."""

CLUSTER = 'cluster'
"""Who operates besides, with clusters: the shared policy of the hospitals of one speciality."""

CLUSTER_LEADS = ((CLUSTER, SHARED), (CLUSTER, ALONE))

FEWEST = 3
"""Hospitals of a federation at least."""

NEWCOMERS = (CONTROLLER, START, ALONE, SHARED)
"""Whose policies a hospital that took no part may get; `alone` is that of one other hospital."""

LEADS = ((SHARED, START), (SHARED, ALONE), (HOME, ALONE), (HOME, SHARED))
"""Whose success is compared, paired by seed: the first minus the second."""

Weights = Mapping[str, np.ndarray]
"""By the hospital."""


def run_hospitals(
    directory: Path,
    plan: Plan,
    counts: Sequence[int],
    seeds: Sequence[int],
    clusters: bool = False,
    caller: Caller = NOBODY,
) -> Json:
    """
    Measure every number of hospitals with every seed, and sum up.

    :param directory: gets ``starts/`` and ``parts/``, one JSON file a seed and number, and is gone
        on from them.
    :param plan: its number of hospitals and seed do not count, and arms are kinematic.
    :param counts: numbers of hospitals, rising.
    :param clusters: whether each speciality's hospitals learn by themselves, too.
    :returns: settings, and what :func:`summarise` returns.
    :raises SettingError: if layers stay at home, or a speciality has fewer than three hospitals.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if a part is damaged, or of other settings.
    """
    if plan.federation.personal:
        raise SettingError('federation.personal', plan.federation.personal, 'none in this study')
    fewest = FEWEST * len(SPECIALITIES)
    if clusters and counts[0] < fewest:
        raise SettingError('counts', counts[0], f'{fewest} hospitals at least with clusters')
    plan = plan.changed({'world': {'mode': 'kinematic'}})
    workers = plan.evaluation.workers
    study = Study('public start', directory / 'starts', measure_start, workers=workers)
    learned = study.run([_start_part(plan, seed) for seed in seeds], caller)
    starts = [b64decode(each['weights']) for each in learned]
    study = Study('hospitals', directory / 'parts', measure, mean_success, workers)
    given = [
        (seed, decode_weights(each, len(each) // 4))
        for seed, each in zip(seeds, starts, strict=True)
    ]
    found = iter(
        study.run(
            [_part(plan, count, *each, clusters) for count in counts for each in given], caller
        )
    )
    rows = [[next(found) for _ in seeds] for _ in counts]
    federation = ('heterogeneity', 'gap', 'disturbances', 'procedures', 'noise')
    return {
        'seeds': list(seeds),
        'counts': list(counts),
        'private': plan.federation.noise == 'secure',
        'delta': plan.privacy.delta,
        'settings': {
            **chosen_settings(plan, *_GROUPS, federation=federation),
            'patients': plan.evaluation.patients,
            'shown': SHOWN,
        },
        **summarise(rows),
    }


_GROUPS = ('rounds', 'server', 'learner', 'privacy', 'home', 'collection', 'pretraining')


def _start_part(plan: Plan, seed: int) -> Part:
    own = plan.changed({'federation': {'hospitals': 3, 'seed': seed}})
    some = {
        'federation': ('seed', 'disturbances', 'procedures'),
        'collection': ('exploration', 'variation'),
    }
    settings = chosen_settings(own, 'learner', 'home', 'pretraining', 'world', **some)
    return Part(f'seed_{seed}', {'plan': settings}, (own,), f'seed {seed}')


def measure_start(plan: Plan, work: Work) -> Json:
    """Learn the public start of a seed; return its weights as text."""

    def tell(what: str, done: int, total: int) -> None:
        work.tell(done, total, what)

    weights = learn_public_start(plan, tell, work.caller.stopped)
    return {'weights': b64encode(encode_weights(weights)).decode()}


def _part(plan: Plan, count: int, seed: int, start: np.ndarray, clusters: bool) -> Part:
    own = plan.changed({'federation': {'hospitals': count, 'seed': seed}})
    groups = (*_GROUPS, 'federation', 'encryption', 'world')
    settings = {
        'plan': chosen_settings(own, *groups),
        'shown': SHOWN,
        'patients': plan.evaluation.patients,
        **({'clusters': True} if clusters else {}),
    }
    title = f'{count} hospitals, seed {seed}'
    return Part(
        f'{count}_hospitals_seed_{seed}', settings, (own, start, clusters), title, count + SHOWN
    )


def shown_hospitals(plan: Plan) -> list[str]:
    """Return the hospitals whose patients policies are tried on."""
    count, seed = plan.federation.hospitals, plan.federation.seed
    rng = np.random.default_rng([Stream.EVALUATION, seed, count])
    drawn = sorted(rng.choice(count, min(SHOWN, count), replace=False).tolist())
    return [plan.hospitals[each] for each in drawn]


def measure(plan: Plan, start: np.ndarray, clusters: bool, work: Work) -> Json:
    """
    Let the hospitals of one federation learn, together and alone, and try what they learned.

    :param plan: with the number of hospitals and the seed.
    :param start: weights of the public start.
    :param clusters: whether each speciality's hospitals learn by themselves, too.
    :returns: of everybody in :data:`WHO`: success by the hospital, and of each procedure patients
        and successes; of :data:`NEWCOMERS` the same `away`; and the epsilon spent: by the rounds,
        with what is made at home, and alone.
    """
    layout, names, stopped = Layout(work.directory), plan.hospitals, work.caller.stopped
    shown, records = shown_hospitals(plan), {}
    total = (1 + plan.rounds.rounds) * len(names) + 2 * len(shown)
    for done, name in enumerate(names):
        work.tell(done, total, f'{name} collects')
        make_private_directory(layout.party(name))
        records[name] = open_records(layout, name, plan, stopped=stopped)
    save_policy(layout.pretrained, start, plan)
    weights: dict[str, Weights] = {START: dict.fromkeys(shown, start)}
    epsilon = {}
    with ExitStack() as stack:
        trainers = {
            name: _opened(stack, layout.party(name), name, plan, own, start)
            for name, own in records.items()
        }
        shared, epsilon[SHARED] = _play(plan, trainers, start, work)
        weights[SHARED] = dict.fromkeys(shown, shared)
        weights[HOME] = {
            name: _at_home(trainers[name], shared, plan.rounds.rounds, stopped) for name in shown
        }
        epsilon[HOME] = max(trainers[name].ledger.epsilon() for name in shown)
    if clusters:
        of_cluster: dict[str, np.ndarray] = {}
        for speciality, members in by_speciality(plan).items():
            with ExitStack() as stack:
                trainers = {}
                for name in members:
                    make_private_directory(directory := layout.party(name) / CLUSTER)
                    own = records[name]
                    trainers[name] = _opened(stack, directory, name, plan, own, start, CLUSTER)
                found, _ = _play(plan, trainers, start, work, speciality)
                of_cluster |= dict.fromkeys(members, found)
        weights[CLUSTER] = of_cluster
    quiet = Caller(stopped=stopped)
    epsilon[ALONE] = max(train_alone(layout, name, plan, quiet) for name in shown)
    weights[ALONE] = {name: load_policy(alone_path(layout, name)).weights for name in shown}
    return {**_tried(plan, weights), 'epsilon': epsilon}


def by_speciality(plan: Plan) -> dict[str, list[str]]:
    """Return the hospitals that state each speciality."""
    found: dict[str, list[str]] = {}
    for cohort in plan.cohorts:
        found.setdefault(cohort.speciality, []).append(cohort.name)
    return found


def _opened(
    stack: ExitStack,
    directory: Path,
    name: str,
    plan: Plan,
    records: Records,
    start: np.ndarray,
    purpose: str = '',
) -> Trainer:
    """Open a hospital's trainer, whose ledger the stack closes."""
    made = open_training(directory, name, plan, records, purpose=purpose, start=start)
    stack.callback(made.ledger.close)
    return made


def _play(
    plan: Plan, trainers: Mapping[str, Trainer], start: np.ndarray, work: Work, name: str = 'all'
) -> tuple[np.ndarray, float]:
    """
    Play all rounds, or those that are missing.

    :returns: the shared weights, and the most that a hospital spent on them. That is kept, as what
        is made at home is charged to the same ledgers.
    """
    encryption, step = plan.encryption, plan.server.step()
    federation = PlainFederation(
        trainers, start, plan.network.layout, encryption=encryption, step=step
    )
    count, rounds = len(trainers), plan.rounds.rounds
    with closing(Store(work.directory / f'rounds_of_{name}.sqlite')) as store:
        if (kept := store.get('released')) is not None:
            federation.round, end = int.from_bytes(kept[:8], 'little'), 8 + 4 * start.size
            made = decode_weights(kept[8:end], start.size)
            federation.released = Stepped(made, kept[end:])
        while federation.round < rounds:
            detail = f'{name}: round {federation.round + 1} of {rounds}'
            work.tell(count * (1 + federation.round), count * (1 + rounds) + 1, detail)
            federation.play(work.caller.stopped)
            head = federation.round.to_bytes(8, 'little') + encode_weights(federation.weights)
            store.put('released', head + federation.released.state)
        if (told := store.get('epsilon')) is None:
            told = repr(max(each.ledger.epsilon() for each in trainers.values())).encode()
            store.put('epsilon', told)
    return federation.weights, float(told)


def _at_home(
    trainer: Trainer, shared: np.ndarray, round: int, stopped: Callable[[], bool]
) -> np.ndarray:
    """Return a hospital's home policy; the shared one if the plan makes none."""
    if not isinstance(trainer, HomeTrainer):
        return shared
    return trainer.home(shared, round, stopped=stopped).weights


def _tried(plan: Plan, weights: Mapping[str, Weights]) -> Json:
    """Try everybody at home, and on as many hospitals of another federation."""
    seed = plan.federation.seed + AWAY
    other = plan.changed({'federation': {'seed': seed}})
    own = list(weights[START])
    away = dict(zip(shown_hospitals(other), own, strict=True))
    return {
        **_tried_at(plan, dict(zip(own, own, strict=True)), weights, _who(weights)),
        'away': _tried_at(other, away, weights, NEWCOMERS),
    }


def _who(weights: Mapping[str, object]) -> tuple[str, ...]:
    """Return who operates: all of WHO, and a cluster's policy if there are clusters."""
    return (*WHO, CLUSTER) if CLUSTER in weights else WHO


def _tried_at(
    plan: Plan, places: Mapping[str, str], weights: Mapping[str, Weights], who: Sequence[str]
) -> Json:
    """
    Try some on the unseen patients of hospitals.

    :param plan: of these hospitals.
    :param places: hospital to the one whose weights are tried there.
    """
    cohorts = dict(zip(plan.hospitals, plan.cohorts, strict=True))
    success: dict[str, dict[str, float]] = {each: {} for each in who}
    procedures: dict[str, dict[str, list[float]]] = {each: {} for each in who}
    for hospital, owner in places.items():
        patients = unseen(cohorts[hospital], max(1, plan.evaluation.patients // len(places)))
        for each in who:
            acts: Chooser = controller_acts()
            if each != CONTROLLER:
                acts = chooser_of(plan.network.policy(weights[each][owner]))
            found = summed(patients, tried(patients, acts, plan.world))
            success[each][hospital] = found['success']
            for name, (tries, successes) in found['procedures'].items():
                before = procedures[each].get(name, [0, 0.0])
                procedures[each][name] = [before[0] + tries, before[1] + successes]
    return {'success': success, 'procedures': procedures}


def mean_success(part: Json) -> dict[str, float]:
    """Return the mean success over hospitals, by who operates."""
    return {who: float(np.mean(list(each.values()))) for who, each in part['success'].items()}


def summarise(rows: Sequence[Sequence[Json]]) -> Json:
    """
    Sum up over seeds.

    :param rows: the part of each number of hospitals (first) and seed (second).
    """
    everybody = rows[0][0]['success']
    done = sorted({name for row in rows for part in row for name in part['procedures'][START]})
    return {
        **_compared(rows),
        'away': _compared([[part['away'] for part in row] for row in rows]),
        'procedures': {
            name: {who: [_of_procedure(row, who, name) for row in rows] for who in everybody}
            for name in done
        },
        'epsilon': {
            who: [max(part['epsilon'][who] for part in row) for row in rows]
            for who in (SHARED, HOME, ALONE)
        },
    }


def _compared(rows: Sequence[Sequence[Json]]) -> Json:
    """Return success over seeds, its rises with the number of hospitals, and leads."""
    means = [[mean_success(part) for part in row] for row in rows]
    who = list(means[0][0])
    by_seed = list(zip(*means, strict=True))
    return {
        'success': {
            each: over_levels([[found[each] for found in seed] for seed in by_seed], SHARE)
            for each in who
        },
        'leads': {
            f'{one} minus {other}': [
                paired([each[one] for each in row], [each[other] for each in row]) for row in means
            ]
            for one, other in (*LEADS, *CLUSTER_LEADS)
            if {one, other} <= set(who)
        },
    }


def _of_procedure(row: Sequence[Json], who: str, name: str) -> Interval:
    """Return the success in one procedure over seeds; a seed without such a patient has none."""
    found = [part['procedures'][who].get(name) for part in row]
    return interval([each and each[1] / each[0] for each in found], SHARE)
