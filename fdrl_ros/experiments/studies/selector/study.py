# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What the selector is worth: against every single policy, other rules of choosing, and an oracle.

At each H and seed a federation is trained with differential privacy, its policies are valued on
public patients, and all operate on the same unseen ones. Finished parts are kept.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.valuation import public_patient
from fdrl_ros.experiments.cases import Cases
from fdrl_ros.experiments.contender import Contender, HoldContender, SelectorContender
from fdrl_ros.experiments.evaluation import operate_once, unseen_patients
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.plots.selector import draw_operation
from fdrl_ros.experiments.reports.assessment import line_up
from fdrl_ros.experiments.studies.experiment import run_training
from fdrl_ros.experiments.studies.selector.baselines import (
    BASELINES,
    dwells_of,
    hindsight,
    Outcomes,
    switches_of,
)
from fdrl_ros.experiments.studies.selector.oracle import oracle_returns
from fdrl_ros.experiments.studies.selector.summary import ALWAYS, SELECTOR, TIMID
from fdrl_ros.experiments.studies.selector.value_models import value_models
from fdrl_ros.experiments.study import Part, Study, Work
from fdrl_ros.metrics import state_change
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.progress import Progress
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.selector import HOLD, Selection
from fdrl_ros.selector.value.model import FORMAT
from fdrl_ros.selector.value.monte_carlo_reference import acting
from fdrl_ros.surgery.gym.actions import TICK
from fdrl_ros.surgery.gym.episode import Episode
from fdrl_ros.surgery.gym.rollout import roll_out
from fdrl_ros.surgery.gym.state import PROCEDURE_NAMES
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.patient import Patient
import numpy as np

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
    return Study('selector', directory / 'parts', measure, workers=plan.evaluation.workers), parts


def measure(directory: Path, plan: Plan, work: Work) -> Json:
    """
    Train, value and compare one seed at one H.

    :param directory: of the run.
    """
    report, stopped = work.report, work.stopped
    name = f'seed {plan.federation.seed}, H = {plan.federation.heterogeneity:g}'
    alone = plan.changed({'evaluation': {'workers': 1}})
    layout, _ = run_training(directory, alone, report=report, stopped=stopped)
    rows, choices = line_up(layout, plan, directory / 'policies')
    weights = {each.name: each.weights for each in rows if each.name in choices}
    start = next(Policy(each.weights, plan.shape) for each in rows if each.name == 'pretrained')
    policies = {each: Policy(chosen, plan.shape) for each, chosen in weights.items()}
    values = value_models(
        directory / 'values',
        {**policies, HOLD: None},
        plan,
        start,
        report=lambda done, count: report(Progress('value', name, done, count)),
        stopped=stopped,
    )
    selector = SelectorContender(SELECTOR, weights, values, plan.shape, plan.selector, plan.shield)
    singles = [each for each in rows if each.name in choices]
    timid = SelectorContender(
        TIMID,
        {ALWAYS: weights[ALWAYS]},
        {each: values[each] for each in (ALWAYS, HOLD)},
        plan.shape,
        plan.selector,
        plan.shield,
    )
    contenders: list[Contender] = [*singles, HoldContender(), timid, selector]
    patients = unseen_patients(plan, plan.evaluation.patients)
    cases, selections, episodes = _operate_all(contenders, patients, plan, name, work)
    chosen = [[tick.policy for tick in each] for each in selections]

    names = (*choices, HOLD)
    public = _public_outcomes(names, policies, plan)
    unseen = Outcomes(
        names,
        np.array([each.states[0] for each in episodes], np.float64),
        np.array([PROCEDURE_NAMES.index(each.procedure.name) for each in patients]),
        np.stack([cases[each].returns for each in names]),
    )
    arms = {name: rule(public, unseen) for name, rule in BASELINES.items()}
    arms['hindsight'] = hindsight(unseen)
    _draw_examples(directory / 'pictures', episodes, selections, names)
    return {
        'names': list(names),
        'procedures': [each.procedure.name for each in patients],
        'contenders': {each: _columns(cases[each]) for each in cases}
        | {rule: _picked(cases, names, chosen) for rule, chosen in arms.items()},
        'chosen': _counts(chosen),
        'switching': switching_of(episodes, chosen, plan.selector.change_threshold),
        'oracle': _oracle(patients, policies, selector, plan, work),
    }


def _operate_all(
    contenders: Sequence[Contender],
    patients: Sequence[Patient],
    plan: Plan,
    name: str,
    work: Work,
) -> tuple[dict[str, Cases], list[list[Selection]], list[Episode]]:
    """Return cases by contender, and of the last one what it chose and its episodes."""
    env = SurgeryEnv(settings=plan.world)
    found: dict[str, Cases] = {}
    total, done = len(contenders) * len(patients), 0
    try:
        for each in contenders:
            env.np_random = np.random.default_rng([Stream.SELECTOR_STUDY, plan.federation.seed])
            met, selections = [], []
            for patient in patients:
                work.check()
                episode, ticks = operate_once(env, each, patient, plan.world)
                met.append(episode)
                selections.append(ticks)
                done += 1
                if done % 20 == 0 or done == total:
                    work.report(Progress('operate', name, done, total, each.name))
            found[each.name] = Cases.of(met, plan.world, plan.value.discount)
    finally:
        env.close()
    return found, selections, met


def _draw_examples(
    folder: Path,
    episodes: Sequence[Episode],
    selections: Sequence[Sequence[Selection]],
    names: tuple[str, ...],
) -> None:
    """Draw of each procedure the operation with most happening: the longest with an event."""
    folder.mkdir(parents=True, exist_ok=True)
    for procedure in sorted({each.patient.procedure.name for each in episodes}):

        def eventful(place: int) -> tuple[bool, int]:
            events = episodes[place].patient.events
            length = len(episodes[place].actions)
            return any(each.start < length * TICK for each in events), length

        own = [
            place
            for place, each in enumerate(episodes)
            if each.patient.procedure.name == procedure
        ]
        shown = max(own, key=eventful)
        draw_operation(episodes[shown], selections[shown], names, folder / f'{procedure}.png')


def _public_outcomes(names: Sequence[str], policies: dict[str, Policy], plan: Plan) -> Outcomes:
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
        rngs = _rngs(len(patients), plan.federation.seed)
        rolled = roll_out(patients, acting(policies.get(name)), plan.world, rngs=rngs)
        earned = np.zeros(len(patients))
        np.add.at(earned, rolled.cases, plan.value.discount**rolled.ticks * rolled.rewards)
        returns.append(earned)
        states = rolled.states[rolled.ticks == 0].astype(np.float64)
    kinds = np.array([PROCEDURE_NAMES.index(each.procedure.name) for each in patients])
    return Outcomes(tuple(names), states, kinds, np.stack(returns))


def _rngs(count: int, seed: int) -> list[np.random.Generator]:
    return [
        np.random.default_rng([Stream.SELECTOR_STUDY_SENSORS, seed, each]) for each in range(count)
    ]


def _columns(cases: Cases) -> dict[str, list[Any]]:
    """Return what is kept of each patient."""
    return {
        'returns': cases.returns.tolist(),
        'risk': cases.risk.tolist(),
        'success': cases.column('success').tolist(),
        'adaptation': [None if np.isnan(each) else each for each in cases.adaptation.tolist()],
    }


def _picked(
    cases: dict[str, Cases], names: Sequence[str], chosen: np.ndarray
) -> dict[str, list[Any]]:
    """Return what a rule earns that takes one candidate for a whole operation."""
    columns = [_columns(cases[each]) for each in names]
    return {
        key: [columns[arm][key][case] for case, arm in enumerate(chosen)] for key in columns[0]
    }


def _counts(chosen: Sequence[Sequence[str]]) -> dict[str, int]:
    every = [name for each in chosen for name in each]
    return {name: every.count(name) for name in sorted(set(every))}


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
        changed = np.r_[False, state_change(states[1:], states[:-1], 1.0) > threshold]
        soon = np.convolve(changed, np.ones(SOON + 1))[: len(names)] > 0
        at = switches_of(names)
        counts['steps'] += len(names) - 1
        counts['switches'] += len(at)
        counts['steps_after'] += int(soon[1:].sum())
        counts['switches_after'] += int(soon[at].sum())
        dwells.extend(dwells_of(names).tolist())
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

    some = patients[:FORESEEN]
    discount = plan.value.discount
    candidates = [acting(each) for each in (*policies.values(), None)]
    found = {'oracle': oracle_returns(some, candidates, discount, plan.world, tick)}
    sessions = [selector.begin(each, plan.world) for each in some]

    def choose(states: Any, rows: Any, now: int) -> Any:
        return np.array([sessions[row](state) for row, state in zip(rows, states, strict=True)])

    calm = plan.changed({'world': {'force_noise': 0.0}}).world
    rest = {'selector': choose, 'global': acting(policies['global']), HOLD: acting(None)}
    for name, each in rest.items():
        rolled = roll_out(some, each, calm, tick=tick)
        earned = np.zeros(len(some))
        np.add.at(earned, rolled.cases, discount**rolled.ticks * rolled.rewards)
        found[name] = earned
    return {name: each.tolist() for name, each in found.items()}
