# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What each measure of risk and adaptation rewards: the expert, or policies worth nothing.

Who stays still, rams the organ, moves at random or to and fro should score worst. The paper's
measures (FDRL Eq. 9 to 11) do not see to that; those beside them do.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
import itertools
from pathlib import Path

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.experiments.evaluation import Contender, GuideContender, RandomContender
from fdrl_ros.experiments.intervals import interval, SHARE
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.patient_results import PatientResults, score_of
from fdrl_ros.experiments.study import chosen_settings, Part, Study, Work
from fdrl_ros.experiments.surgery_evaluation import operate_once, SCORES
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.surgery.gym.actions import ACTIONS, STAY
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.cohort import Cohort
from fdrl_ros.surgery.tasks.procedures import procedures_named
from fdrl_ros.tasks import Choice, Patient
import numpy as np

SHOWN = {
    name: SCORES[name]
    for name in (
        *('success', 'r_mit', 'alpha_adapt'),
        *('risk_adjusted_success', 'critical_errors', 'damage_share', 'informedness'),
    )
}
"""The measures, the paper's first."""

_BOUNDS = {'informedness': (-1.0, 1.0)}
"""Least and greatest value of the measures that are no shares."""

OVER_ALL = 'all'
"""What the patients of all procedures together are called."""

_NUMBERS = {action.name: number for number, action in enumerate(ACTIONS)}


@dataclass(frozen=True, eq=False)
class ScriptedContender(Contender):
    """Repeats some actions, whatever the state."""

    name: str
    actions: tuple[int, ...]

    def begin(self, patient: Patient, plan: Plan) -> Choice:
        """Return the actions, from the first on."""
        following = itertools.cycle(self.actions)
        return lambda state: next(following)


CONTENDERS: tuple[Contender, ...] = (
    ScriptedContender('idle', (STAY,)),
    ScriptedContender('ramming', (_NUMBERS['coarse -z'],)),
    RandomContender(),
    ScriptedContender('alternating', (_NUMBERS['coarse -z'], _NUMBERS['coarse +z'])),
    GuideContender(),
)


def run_measures(
    directory: Path | None, plan: Plan, seeds: Sequence[int], caller: Caller = NOBODY
) -> Json:
    """
    Measure everyone on the same unseen patients of the plan's procedures and hospitals.

    :param directory: keeps each seed; None keeps nothing.
    :returns: seeds, patients, and for each procedure and contender the intervals over seeds.
    """
    parts = [_part(plan.changed({'federation': {'seed': each}})) for each in seeds]
    study = Study('measures', directory, measure, workers=plan.evaluation.workers)
    found = study.run(parts, caller)
    first = found[0]['found']
    return {
        'seeds': list(seeds),
        'heterogeneity': plan.federation.heterogeneity,
        'mode': plan.world.mode,
        'patients': plan.evaluation.patients,
        'found': {
            procedure: {who: _over_seeds(found, procedure, who) for who in rows}
            for procedure, rows in first.items()
        },
    }


def _over_seeds(parts: Sequence[Json], procedure: str, who: str) -> Json:
    """Return the intervals of one contender's measures."""
    rows = [part['found'][procedure][who] for part in parts]
    return {
        name: interval([row[name] for row in rows], _BOUNDS.get(name, SHARE)) for name in SHOWN
    }


def _part(plan: Plan) -> Part:
    some = chosen_settings(plan, 'world', 'federation', evaluation=('patients',))
    return Part(f'seed_{plan.federation.seed}', {'plan': some}, (plan,))


def measure(plan: Plan, work: Work) -> Json:
    """Measure everyone for one seed."""
    found: Json = {}
    every: dict[str, list[PatientResults]] = {each.name: [] for each in CONTENDERS}
    with closing(SurgeryEnv(settings=plan.world)) as env:
        env.np_random = np.random.default_rng([Stream.EVALUATION, plan.federation.seed])
        for procedure in procedures_named(plan.federation.procedures):
            results = operate_all(env, procedure, plan, work)
            found[procedure] = scores_of(results)
            for name, each in results.items():
                every[name].append(each)
    joined = {name: PatientResults.joined(each, {}) for name, each in every.items()}
    return {'found': {**found, OVER_ALL: scores_of(joined)}}


def operate_all(
    env: SurgeryEnv, procedure: str, plan: Plan, work: Work | None = None
) -> dict[str, PatientResults]:
    """Return the results of everyone in one procedure, on the same unseen patients."""
    hospitals = [plan.population(each) for each in range(plan.federation.hospitals)]
    numbers = (divmod(each, len(hospitals)) for each in range(plan.evaluation.patients))
    patients = [
        cohort.patient(number, 'test', procedure)
        for number, each in numbers
        if isinstance(cohort := hospitals[each], Cohort)
    ]
    found = {}
    for contender in CONTENDERS:
        if work is not None:
            work.check()
        met = [operate_once(env, contender, each, plan)[0] for each in patients]
        found[contender.name] = PatientResults.of(met, plan)
    return found


def scores_of(results: Mapping[str, PatientResults]) -> Json:
    """Return the measures of everyone."""
    return {name: score_of(each, SHOWN) for name, each in results.items()}
