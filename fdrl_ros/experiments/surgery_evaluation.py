# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What evaluating surgery adds: selector, A_task on frozen states, risk, force (FDRL Eq. 7-11).

A row of :data:`SCORES` puts a number into ``summary.json``, the tables and the comparisons.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
import functools
from pathlib import Path

from fdrl_ros.deployment.layout import Layout
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.deployment.robot.public_value import fitted_with, kept_valuation
from fdrl_ros.errors import SettingError
from fdrl_ros.experiments.evaluation import (
    Contender,
    Evaluation,
    Evaluator,
    Extras,
    GuideContender,
    hospital_of,
    OWN_ROWS,
    unseen_patients,
)
from fdrl_ros.experiments.patient_results import (
    check_scores,
    mean_of,
    PatientResults,
    PATIENTS,
    RETURN,
    Score,
    Scores,
    SUCCESS,
)
from fdrl_ros.experiments.plots.selector import draw_operation
from fdrl_ros.experiments.plots.surgery import draw_force, draw_selection
from fdrl_ros.metrics.episode import EpisodeMetrics, write_csv, write_json
from fdrl_ros.metrics.following import informedness
from fdrl_ros.metrics.task import StateSet, task_accuracy, TaskAccuracy
from fdrl_ros.policy import Policy
from fdrl_ros.policy.policy import Action
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.runtime.worker_processes import run_tasks
from fdrl_ros.selector import (
    Candidate,
    HOLD,
    Observation,
    Selection,
    Selector,
    SelectorSettings,
    ShieldSettings,
    ValueModel,
)
from fdrl_ros.selector.candidates.candidate import HOME
from fdrl_ros.selector.candidates.policy_files import POLICIES, PolicyFiles
from fdrl_ros.surgery.gym.actions import STAY, TICK
from fdrl_ros.surgery.gym.episode import Episode, mixed_behaviour, run_episode
from fdrl_ros.surgery.gym.episode_metrics import OperationMeasures
from fdrl_ros.surgery.gym.operation import Operation
from fdrl_ros.surgery.gym.state import (
    OPERATION_LAYOUT,
    OPERATION_SIZE,
    PATIENT_LAYOUT,
    unscale,
)
from fdrl_ros.surgery.gym.surgery_env import SurgeryEnv
from fdrl_ros.surgery.patient.patient import Patient
from fdrl_ros.surgery.render.picture import picture
from fdrl_ros.surgery.task import SurgeryTask
from fdrl_ros.surgery.tasks.expert import expert_costs
from fdrl_ros.tasks import Choice
from fdrl_ros.tasks import Patient as AnyPatient
import numpy as np

PROFILED = ('expert', 'pretrained', 'global', 'selector')
"""Whose force on one patient is drawn."""

_LOOK = 10  # ticks from one picture of the arm to the next

FIRST_OF_STATES = 10**6
"""Number of the first patient of the frozen set: nobody is evaluated on it."""


@dataclass(frozen=True, eq=False)
class HoldContender(Contender):
    """Holds still."""

    name: str = HOLD

    def begin(self, patient: AnyPatient, plan: Plan) -> Choice:
        """Return the action that moves nothing."""
        return lambda state: STAY


@dataclass(frozen=True, eq=False)
class SelectorContender(Contender):
    """
    The selector over candidates, as the robot runs it (FDRL Eq. 7).

    :param candidates: those of robots everywhere, or by the hospital that they are of.
    """

    name: str
    candidates: Sequence[Candidate] | Mapping[str, Sequence[Candidate]]
    settings: SelectorSettings
    shield: ShieldSettings = ShieldSettings()

    def begin(self, patient: AnyPatient, plan: Plan) -> 'SelectorSession':
        """Return a fresh selector for this patient."""
        selector, own = Selector(self.settings, shield=self.shield), self.candidates
        if isinstance(own, Mapping):
            own = own[hospital_of(patient, plan)]
        selector.set_candidates(own)
        return SelectorSession(selector, patient)

    def chosen(self, choose: Choice) -> Sequence[str]:
        """Return the policy of each tick."""
        return [each.policy for each in selections_of(choose)]


class SelectorSession:
    """
    A selector that operates on one patient, with states as the two topics deliver them.

    ``selections`` holds what was chosen at each tick, and why.
    """

    def __init__(self, selector: Selector, patient: AnyPatient) -> None:
        if not isinstance(patient, Patient):
            raise TypeError(f'{patient}: expected a patient of surgery')
        self.selections: list[Selection] = []
        self._selector = selector
        self._patient = patient

    def __call__(self, state: np.ndarray) -> int:
        """Select a policy and return its action; to hold is to stay, if the shield lets it."""
        now, values = len(self.selections) * TICK, unscale(state)
        operation = observe(OPERATION_LAYOUT, values[:OPERATION_SIZE], now, self._patient)
        vitals = observe(PATIENT_LAYOUT, values[OPERATION_SIZE:], now, self._patient)
        self.selections.append(self._selector.select(operation, vitals, now))
        return self.selections[-1].action


def selections_of(choose: Choice) -> list[Selection]:
    """Return what was chosen at each tick; nothing if no selector did."""
    return choose.selections if isinstance(choose, SelectorSession) else []


def observe(layout: str, values: np.ndarray, now: float, patient: Patient) -> Observation:
    """Return what one of the two state topics tells of a patient."""
    return Observation(patient.name, layout, values, now, patient.procedure.name)


@dataclass(frozen=True, eq=False)
class Probe:
    """The frozen set of states for A_task, with the patient of each case."""

    states: StateSet
    patients: tuple[Patient, ...]


def make_probe(plan: Plan) -> Probe:
    """
    Make the frozen set: states met by surgeons of the plan's skill on further test patients.

    It depends on nothing that was learned; the same plan gives the same digest.
    """
    chosen = plan.evaluation
    patients = unseen_patients(plan, chosen.state_patients, FIRST_OF_STATES)
    behave = mixed_behaviour(1.0 - plan.collection.exploration, plan.world)
    states, costs, cases = [], [], []
    with closing(SurgeryEnv(settings=plan.world)) as env:
        for case, patient in enumerate(patients):
            rng = np.random.default_rng([Stream.EVALUATION, plan.federation.seed, case])
            env.np_random = rng

            def choose(
                state: np.ndarray, patient: Patient = patient, rng: np.random.Generator = rng
            ) -> Action:
                return behave(state, patient, rng)

            met = run_episode(env, choose, patient).states[:-1]
            count = min(len(met), chosen.states_per_patient)
            kept = met[np.linspace(0, len(met) - 1, count).astype(int)]
            states.append(kept)
            costs.append(expert_costs(kept, patient, plan.world))
            cases.append(np.full(count, case))
    table = np.concatenate(costs)
    frozen = StateSet(np.concatenate(states), table, table.argmin(axis=1), np.concatenate(cases))
    return Probe(frozen, tuple(patients))


def actions_on(contender: Contender, probe: Probe, plan: Plan) -> np.ndarray:
    """Return what a contender does in each state of the set, case by case, shape (M,)."""
    actions = np.zeros(len(probe.states.cases), dtype=np.int64)
    for case, patient in enumerate(probe.patients):
        choose = contender.begin(patient, plan)
        for index in np.flatnonzero(probe.states.cases == case):
            actions[index] = choose(probe.states.states[index])
    return actions


def operate_once(
    env: SurgeryEnv,
    contender: Contender,
    patient: Patient,
    plan: Plan,
    look: Callable[[Operation], None] | None = None,
) -> tuple[Episode, list[Selection]]:
    """
    Return one operation, and what the selector chose at each tick, if it is one.

    :param look: called with the operation before each choice.
    """
    choose = contender.begin(patient, plan)

    def act(state: np.ndarray) -> int:
        if look is not None:
            look(env.operation)
        return int(choose(state))

    return run_episode(env, act, patient), selections_of(choose)


def draw_extremes(
    contender: SelectorContender, evaluation: Evaluation, plan: Plan, directory: Path
) -> None:
    """
    Let the selector operate again where it earned most and least, and draw both with the arm.

    :param evaluation: of the selector, on the unseen patients of the plan.
    :raises OSError: if a file cannot be written.
    """
    returns = evaluation.results.column('returns')
    patients = unseen_patients(plan, len(returns))
    with closing(SurgeryEnv(settings=plan.world)) as env:
        for name, place in (('best', returns.argmax()), ('worst', returns.argmin())):
            env.np_random = np.random.default_rng([Stream.EVALUATION, plan.federation.seed])
            seen: list[tuple[float, np.ndarray]] = []

            def look(operation: Operation, seen: list[tuple[float, np.ndarray]] = seen) -> None:
                if operation.ticks % _LOOK == 0:
                    seen.append((operation.ticks * TICK, picture(operation)))

            episode, selections = operate_once(env, contender, patients[place], plan, look)
            own = contender.candidates
            if isinstance(own, Mapping):
                own = own[hospital_of(patients[place], plan)]
            names = (*sorted({each.name for each in own} - {HOLD}, reverse=True), HOLD)
            path = directory / f'operation_{name}.png'
            draw_operation(episode, selections, names, path, seen)


def _accuracy(name: str) -> Callable[[PatientResults], float]:
    return lambda results: results.figures[name]


def _informedness(results: PatientResults) -> float | None:
    after_rise, after_fall = (mean_of(f'after_{way}')(results) for way in ('rise', 'fall'))
    if after_rise is None or after_fall is None:
        return None
    return informedness(after_rise, after_fall)


def _known(results: PatientResults) -> int:
    return int((~np.isnan(results.column('adaptation'))).sum())


SCORES: Scores = {
    **SUCCESS,
    'a_task': Score(_accuracy('tolerant'), 'A_task', compared=True),
    'a_task_exact': Score(_accuracy('exact'), 'exact', minor=True),
    'a_task_chance': Score(_accuracy('chance_tolerant')),
    'a_task_ceiling': Score(_accuracy('ceiling_tolerant')),
    'a_task_on_policy': Score(mean_of('task_tolerant'), 'on policy', minor=True),
    'a_task_on_policy_exact': Score(mean_of('task_exact')),
    'r_mit': Score(
        lambda results: 1.0 - float(results.column('risk').mean()),
        'R_mit',
        compared=True,
        paired='risk',
        sign=-1.0,
    ),
    'alpha_adapt': Score(mean_of('adaptation'), 'alpha_adapt', over_seeds=True),
    'alpha_adapt_cases': Score(_known),
    'risk_adjusted_success': Score(
        lambda results: 1.0 - float(results.column('case_risk').mean()),
        'risk-adj.',
        compared=True,
        paired='case_risk',
        sign=-1.0,
    ),
    'critical_errors': Score(
        mean_of('critical_error'), 'critical', '.1%', minor=True, over_seeds=True
    ),
    'damage_share': Score(mean_of('damage_share'), 'damage', '.2%', minor=True, over_seeds=True),
    'informedness': Score(_informedness, 'informedness', '.2f', minor=True, over_seeds=True),
    'peak_force': Score(mean_of('peak_force'), 'peak N', '.2f', over_seeds=True),
    **RETURN,
    **PATIENTS,
}
"""
By name in ``summary.json``: ``success`` with its 95 % interval (Wilson); ``a_task`` tie-tolerant
and exact on the frozen set of states, with what random actions and the best function of the state
would reach, and on the states that the policy itself came into; ``r_mit``; ``alpha_adapt`` (None
where no case had a changed state) and how many cases it is the mean of; ours beside the paper's:
``risk_adjusted_success``, share of ``critical_errors``, mean ``damage_share``, ``informedness``
(None where no organ rose, or none fell); mean peak force in newtons; mean discounted return;
patients.
"""


def made_up_results() -> PatientResults:
    """Return one made-up patient, on which scores are tried."""
    of_type = {float: 0.0, str: 'none', bool: False}
    row = {each.name: of_type[each.type] for each in fields(EpisodeMetrics)}  # type: ignore[index]
    row |= {'hospital': '', 'total': 0.0, 'returns': 0.0, 'length': 1}
    row |= dict.fromkeys(OperationMeasures._fields, 0.0)
    figures = {each.name: 0.0 for each in fields(TaskAccuracy)}
    return PatientResults({name: np.array([value]) for name, value in row.items()}, figures)


check_scores(SCORES, made_up_results())


def require_surgery(plan: Plan) -> None:
    """
    Refuse a plan of another world, for studies of surgery.

    :raises SettingError: naming the task.
    """
    if not isinstance(plan.task, SurgeryTask):
        raise SettingError('federation.task', plan.federation.task, 'surgery: what this is about')


class SurgeryEvaluator(Evaluator):
    """Compares policies of surgery, and the selector among them."""

    grouped = ('hospital',)
    learned = ('success',)

    @property
    def scores(self) -> Scores:
        """The numbers of a policy."""
        return SCORES

    @functools.cached_property
    def probe(self) -> Probe:
        """The frozen set of states."""
        return make_probe(self.plan)

    def rivals(self) -> tuple[str, ...]:
        """Return the public start and each hospital alone; of a user's variant chance too."""
        without = ('random', 'expert') if type(self.plan.task) is SurgeryTask else ('expert',)
        return tuple(each for each in super().rivals() if each not in without)

    def baselines(self) -> list[Contender]:
        """Return the expert; of a user's variant of surgery chance too."""
        return [GuideContender()] if type(self.plan.task) is SurgeryTask else super().baselines()

    def contenders(
        self,
        policies: Mapping[str, Policy],
        choices: Sequence[str],
        caller: Caller = NOBODY,
        robots: Sequence[Path] = (),
    ) -> list[Contender]:
        """
        Return all rows; where robots act the selector too.

        Its choices are valued now, but those that a robot of the run has valued for the same
        hospital with the same settings.
        """
        plan, alone = self.plan, super().contenders(policies, choices, caller)
        if not plan.task.robot:
            return alone
        home = self.own(policies, OWN_ROWS['home'])
        # Without home policies the robots of all hospitals have the same candidates.
        tasks = []
        for hospital in list(home) or ['']:
            chosen = {HOME: home[hospital]} if hospital else {}
            chosen |= {name: policies[name] for name in choices if name != hospital}
            known = [home[hospital]] if hospital else list(chosen.values())
            for name, each in {**chosen, HOLD: None}.items():
                tasks.append((robots, hospital, name, each, policies['pretrained'], known, plan))
        # A robot is of the first hospital: it may value the same policies just now.
        tasks.reverse()
        models = run_tasks(fit_one, tasks, workers=plan.evaluation.workers, caller=caller)
        found: dict[str, list[Candidate]] = {}
        for (_, hospital, name, policy, *_), model in zip(tasks[::-1], models[::-1], strict=True):
            found.setdefault(hospital, []).append(candidate(name, policy, model))
        candidates = found if home else found['']
        return [*alone, SelectorContender('selector', candidates, plan.selector, plan.shield)]

    def figures(self, contender: Contender) -> dict[str, float]:
        """Return A_task on the frozen set."""
        return vars(task_accuracy(self.probe.states, actions_on(contender, self.probe, self.plan)))

    def keep(self, layout: Layout) -> None:
        """Keep the frozen set."""
        self.probe.states.save(layout.directory / 'state_set.npz')

    def write_episodes(self, stem: Path, results: PatientResults) -> None:
        """Write the metrics of every operation as CSV and as JSON."""
        names = [each.name for each in fields(EpisodeMetrics)]
        rows = zip(*(results.columns[name].tolist() for name in names), strict=True)
        metrics = [EpisodeMetrics(*row) for row in rows]
        write_csv(stem.with_name(f'{stem.name}.csv'), metrics)
        write_json(stem.with_name(f'{stem.name}.json'), metrics)

    def extras(
        self, contenders: Sequence[Contender], evaluations: Mapping[str, Evaluation]
    ) -> Extras:
        """Return the bounds of A_task, what the selector chose, and forces on the stiffest."""
        plan, probe = self.plan, self.probe
        first = next(iter(evaluations.values())).score
        words = (
            f'A_task tie-tolerant on the frozen set {probe.states.digest[:12]}: chance '
            f'{first["a_task_chance"]:.3f}, ceiling {first["a_task_ceiling"]:.3f}'
        )
        stiffest = unseen_patients(plan, plan.federation.hospitals)[-1]
        with closing(SurgeryEnv(settings=plan.world)) as env:
            env.np_random = np.random.default_rng(plan.federation.seed)
            profile = {
                each.name: operate_once(env, each, stiffest, plan)[0].forces
                for each in contenders
                if each.name in PROFILED
            }
        plots = {'force': lambda axes: draw_force(axes, profile, stiffest)}
        chosen = {name: each.chosen for name, each in evaluations.items() if each.chosen}
        for each in chosen.values():
            plots['selection'] = functools.partial(draw_selection, chosen=each)
        pictures = [
            functools.partial(draw_extremes, each, evaluations[each.name], plan)
            for each in contenders
            if isinstance(each, SelectorContender) and each.name in evaluations
        ]
        details = {'state_set': probe.states.digest, 'chosen': chosen}
        return Extras((words,), details, plots, tuple(pictures))


def candidate(name: str, policy: Policy | None, value: ValueModel | None) -> Candidate:
    """Return a candidate with its value; no policy holds."""
    return Candidate(name, policy, value, b'' if policy is None else policy.digest)


def fit_one(
    robots: Sequence[Path],
    hospital: str,
    name: str,
    policy: Policy | None,
    start: Policy,
    known: Sequence[Policy],
    plan: Plan,
    caller: Caller,
) -> ValueModel:
    """
    Value one candidate on public patients; a piece of work for a worker process.

    :param robots: directories of robots; what one of them fitted with the same settings is taken.
    :param hospital: that the robot is of; empty for none.
    :param policy: None holds.
    :param start: the public start.
    :param known: as :class:`.public_value.PublicValuation` takes it.
    """
    digest = HOLD if policy is None else policy.digest.hex()
    settings = fitted_with(plan, start, known)
    for each in (robot for robot in robots if (robot / POLICIES).is_dir()):
        if (model := PolicyFiles(each).load_model(digest, None, settings)) is not None:
            return model
    told = caller.counter('value', f'{name} at {hospital}' if hospital else name)
    valuation = kept_valuation(plan, start, known)
    return replace(valuation, stopped=caller.stopped, progress=told).value_model(policy)
