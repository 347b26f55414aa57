# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What the selector is worth: against every single policy, other rules of choosing, and an oracle.

At each H and seed a federation is trained with differential privacy, its policies are valued on
public patients, and all operate on the same unseen ones. Finished parts are kept.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.public_value import public_patient
from fdrl_ros.experiments.evaluation import Contender, PolicyContender, unseen_patients
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.patient_results import PatientResults
from fdrl_ros.experiments.plots.selector import draw_operation
from fdrl_ros.experiments.reports.assessment import line_up
from fdrl_ros.experiments.studies.experiment import run_training
from fdrl_ros.experiments.studies.selector.baselines import (
    BASELINES,
    CandidateReturns,
    hindsight,
    oracle_returns,
)
from fdrl_ros.experiments.studies.selector.summary import (
    COLUMNS,
    GLOBAL,
    GLOBAL_OR_HOLD,
    SELECTOR,
)
from fdrl_ros.experiments.studies.selector.value_models import value_models
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.experiments.surgery_evaluation import (
    candidate,
    HoldContender,
    operate_once,
    SelectorContender,
)
from fdrl_ros.metrics.adaptation import state_change
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.progress import Progress
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.selector import HOLD, Selection
from fdrl_ros.selector.value.model import FORMAT
from fdrl_ros.selector.value.monte_carlo_reference import chooser_of
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.episode import Episode, roll_out, Rollouts
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.patient import Patient
import numpy as np
from numpy.typing import NDArray

TRIED = 300
"""Public patients of each procedure from whom other rules learn."""

_FIRST_TRIED = 3 * 10**6  # number of the first of those

FORESEEN = 40
"""Unseen patients that the oracle of true values operates on."""

SOON = 3
"""Ticks after a change of state within which a switch counts as its answer."""


def selector_study(
    directory: Path, plan: Plan, seeds: Sequence[int], levels: Sequence[float]
) -> tuple[Study, list[Part]]:
    """
    Return the study, and its parts: every seed at every H.

    :param directory: gets a run for each part in ``runs/``, and ``parts/``.
    """
    parts = []
    for level in levels:
        for seed in seeds:
            own = plan.changed(
                {'federation': {'seed': seed, 'heterogeneity': level, 'release': True}}
            )
            name = f'seed_{seed}_h_{level:g}'
            settings = {'plan': {**own.to_mapping(), 'model_format': FORMAT}}
            title = f'seed {seed}, H = {level:g}'
            parts.append(Part(name, settings, (directory / 'runs' / name, own), title))
    workers = plan.evaluation.workers
    return Study('selector', directory / 'parts', measure, _check_columns, workers), parts


def _check_columns(part: Json) -> None:
    """Refuse a part of a version that kept less."""
    for each in part['contenders'].values():
        if missing := set(COLUMNS) - each.keys():
            raise KeyError(', '.join(sorted(missing)))


def measure(directory: Path, plan: Plan, work: Work) -> Json:
    """
    Train, value and compare one seed at one H.

    :param directory: of the run.
    """
    name = f'seed {plan.federation.seed}, H = {plan.federation.heterogeneity:g}'
    alone = plan.changed({'evaluation': {'workers': 1}})
    layout, _ = run_training(directory, alone, work.caller)
    rows, choices = line_up(layout, plan, directory / 'policies')
    policies = {each: rows[each] for each in choices}
    values = value_models(
        directory / 'values',
        {**policies, HOLD: None},
        plan,
        rows['pretrained'],
        name,
        work.caller,
    )
    candidates = [candidate(each, policies.get(each), values[each]) for each in (*choices, HOLD)]
    only = [each for each in candidates if each.name in (GLOBAL, HOLD)]
    selector = SelectorContender(SELECTOR, candidates, plan.selector, plan.shield)
    contenders = [
        *(PolicyContender(each, policy) for each, policy in policies.items()),
        HoldContender(),
        SelectorContender(GLOBAL_OR_HOLD, only, plan.selector, plan.shield),
        selector,
    ]
    patients = unseen_patients(plan, plan.evaluation.patients)
    cases, selections, episodes = _operate_all(contenders, patients, plan, name, work)
    chosen = [[tick.policy for tick in each] for each in selections]

    names = (*choices, HOLD)
    public = _public_returns(names, policies, plan)
    unseen = CandidateReturns(
        names,
        np.array([each.states[0] for each in episodes], np.float64),
        np.array([PROCEDURE_NAMES.index(each.procedure.name) for each in patients]),
        np.stack([cases[each].column('returns') for each in names]),
    )
    arms = {name: rule(public, unseen) for name, rule in BASELINES.items()}
    arms['hindsight'] = hindsight(unseen)
    _draw_examples(directory / 'pictures', episodes, selections, names)
    columns = {each: _columns(cases[each]) for each in cases}
    for rule, arm_of in arms.items():
        picked = [columns[names[arm]] for arm in arm_of]
        columns[rule] = {
            key: [own[key][case] for case, own in enumerate(picked)] for key in columns[GLOBAL]
        }
    counts = Counter(name for each in chosen for name in each)
    return {
        'names': list(names),
        'procedures': [each.procedure.name for each in patients],
        'contenders': columns,
        'chosen': {name: counts[name] for name in sorted(counts)},
        'switching': switching_of(episodes, chosen, plan.selector.change_threshold),
        'oracle': _oracle(patients[:FORESEEN], policies, selector, plan, work),
    }


def _operate_all(
    contenders: Sequence[Contender], patients: Sequence[Patient], plan: Plan, name: str, work: Work
) -> tuple[dict[str, PatientResults], list[list[Selection]], list[Episode]]:
    """Return cases by contender, and of the last one what it chose and its episodes."""
    found: dict[str, PatientResults] = {}
    total, done = len(contenders) * len(patients), 0
    with closing(SurgeryEnv(settings=plan.world)) as env:
        for each in contenders:
            env.np_random = np.random.default_rng([Stream.SELECTOR_STUDY, plan.federation.seed])
            met, selections = [], []
            for patient in patients:
                work.check()
                episode, ticks = operate_once(env, each, patient, plan)
                met.append(episode)
                selections.append(ticks)
                done += 1
                if done % 20 == 0 or done == total:
                    work.caller.report(Progress('operate', name, done, total, each.name))
            found[each.name] = PatientResults.of(met, plan)
    return found, selections, met


def _draw_examples(
    folder: Path,
    episodes: Sequence[Episode],
    selections: Sequence[Sequence[Selection]],
    names: tuple[str, ...],
) -> None:
    """Draw of each procedure the operation with most happening: the longest with an event."""
    folder.mkdir(parents=True, exist_ok=True)

    def eventful(place: int) -> tuple[bool, int]:
        length = len(episodes[place].actions)
        events = episodes[place].patient.events
        return any(each.start < length * TICK for each in events), length

    shown: dict[str, int] = {}
    for place in sorted(range(len(episodes)), key=eventful, reverse=True):
        shown.setdefault(episodes[place].patient.procedure.name, place)
    for procedure, place in shown.items():
        draw_operation(episodes[place], selections[place], names, folder / f'{procedure}.png')


def _public_returns(
    names: Sequence[str], policies: dict[str, Policy], plan: Plan
) -> CandidateReturns:
    """Operate on further public patients with every candidate, on kinematic arms."""
    patients = [
        public_patient(_FIRST_TRIED + each, plan, procedure)
        for procedure in plan.federation.names
        for each in range(TRIED)
    ]
    order = np.random.default_rng([Stream.SELECTOR_STUDY, plan.federation.seed, 1]).permutation(
        len(patients)
    )
    patients = [patients[each] for each in order]
    returns, states = [], np.zeros((0, 0))
    for name in names:
        rolled = roll_out(patients, chooser_of(policies.get(name)), plan.world)
        returns.append(earned(rolled, len(patients), plan.value.discount))
        states = rolled.states[rolled.ticks == 0].astype(np.float64)
    kinds = np.array([PROCEDURE_NAMES.index(each.procedure.name) for each in patients])
    return CandidateReturns(tuple(names), states, kinds, np.stack(returns))


def earned(rolled: Rollouts, patients: int, discount: float) -> NDArray[np.float64]:
    """Return the discounted return of each patient."""
    found = np.zeros(patients)
    np.add.at(found, rolled.cases, discount**rolled.ticks * rolled.rewards)
    return found


def _columns(cases: PatientResults) -> dict[str, list[float | None]]:
    """Return what is kept of each patient."""
    return {
        name: [None if np.isnan(each) else each for each in cases.column(name).tolist()]
        for name in COLUMNS
    }


def switching_of(
    episodes: Sequence[Episode], chosen: Sequence[Sequence[str]], threshold: float
) -> Json:
    """
    Count switches soon after changes of state, and how long choices last.

    :returns: switches and steps, those that come soon after a change of state, and dwell times
        in ticks.
    """
    counts = dict.fromkeys(('steps', 'switches', 'steps_after', 'switches_after'), 0)
    dwells: list[int] = []
    for episode, names in zip(episodes, chosen, strict=True):
        states = episode.states[: len(names)]
        changed = np.r_[False, state_change(states[1:], states[:-1]) > threshold]
        soon = np.convolve(changed, np.ones(SOON + 1))[: len(names)] > 0
        at = 1 + np.flatnonzero(np.array(names[1:]) != np.array(names[:-1]))
        counts['steps'] += len(names) - 1
        counts['switches'] += len(at)
        counts['steps_after'] += int(soon[1:].sum())
        counts['switches_after'] += int(soon[at].sum())
        dwells.extend(np.diff(np.r_[0, at]).tolist())
    return {**counts, 'dwells': dwells}


def _oracle(
    patients: Sequence[Patient],
    policies: dict[str, Policy],
    selector: SelectorContender,
    plan: Plan,
    work: Work,
) -> dict[str, list[float]]:
    """Return what the oracle of true values earns, and others beside it, on kinematic arms."""

    def tick(left: int) -> None:
        work.check()

    discount = plan.value.discount
    candidates = [chooser_of(each) for each in (*policies.values(), None)]
    found = {'oracle': oracle_returns(patients, candidates, discount, plan.world, tick)}
    sessions = [selector.begin(each, plan) for each in patients]

    def choose(
        states: NDArray[np.float32], rows: NDArray[np.int64], now: int
    ) -> NDArray[np.int64]:
        return np.array([sessions[row](state) for row, state in zip(rows, states, strict=True)])

    calm = plan.changed({'world': {'force_noise': 0.0}}).world
    rest = {'selector': choose, 'global': chooser_of(policies['global']), HOLD: chooser_of(None)}
    for name, each in rest.items():
        rolled = roll_out(patients, each, calm, tick=tick)
        found[name] = earned(rolled, len(patients), discount)
    return {name: each.tolist() for name, each in found.items()}
