# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How often the intervals of value models hold the Monte-Carlo expectation E[J given s].

States are those of operations on unseen patients, with what happens to them; the expectation is
over many public patients whose first state is the same. The model has no part in it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
import hashlib
import json

from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import RecordsError, SettingError, StoreError
from fdrl_ros.experiments.json_file import Json
from fdrl_ros.experiments.reports.assessment import line_up
from fdrl_ros.experiments.run_directory import RunDirectory
from fdrl_ros.experiments.studies.selector.coverage_estimate import (
    Array,
    CONFIDENCES,
    coverage_of,
    widening,
)
from fdrl_ros.experiments.studies.selector.value_models import value_models
from fdrl_ros.experiments.study import chosen_settings, Part, Study, Work
from fdrl_ros.policy import Policy
from fdrl_ros.runtime.progress import Caller, NOBODY
from fdrl_ros.runtime.random_streams import Stream
from fdrl_ros.selector import HOLD, reference, StateValue, ValueModel
from fdrl_ros.selector.value.model import FORMAT
from fdrl_ros.selector.value.monte_carlo_reference import (
    Alike,
    alike_states,
    draw_meeting,
    NEAREST,
)
from fdrl_ros.surgery.patient.cohort import Cohort, Mixture
from fdrl_ros.surgery.patient.matched_patients import matched_patients
import numpy as np

FIRST_UNSEEN = 2 * 10**6
"""Number of the first unseen patient: `fdrl evaluate` and the frozen states use lower ones."""

FIRST_REDRAWN = 10**8
"""Number of the first public patient that is drawn anew; models are fitted to lower ones."""

APART = 10**6
"""Numbers kept for what is drawn anew for one patient."""

COLUMNS = ('patient', 'tick', 'start', 'exact', 'mean', 'std') + (
    *('reference', 'error', 'closer', 'closer_error'),
)
"""What is kept of each state."""

FEWER = 4
"""How many times fewer patients the check averages over."""


@dataclass(frozen=True)
class CoverageSettings:
    """
    How much is measured.

    :param policies: names; whose models are measured.
    :param patients: unseen ones of each procedure, half of them handed over.
    :param states: of each operation, at most, beside the start.
    :param redraws: public patients with the same first state, for each.
    :param seed: other ones are other patients.
    :param public: on further public patients, as models are fitted to, instead of unseen ones.
    """

    policies: tuple[str, ...] = ('global',)
    patients: int = 40
    states: int = 4
    redraws: int = 1000
    seed: int = 0
    public: bool = False

    def __post_init__(self) -> None:
        """
        Refuse what cannot be measured.

        :raises SettingError: on numbers too small, or no policy.
        """
        if not self.policies or len(set(self.policies)) < len(self.policies):
            raise SettingError('policies', self.policies, 'different names, at least one')
        for name, least in (('patients', 2), ('states', 0), ('redraws', 2 * NEAREST), ('seed', 0)):
            if getattr(self, name) < least:
                raise SettingError(name, getattr(self, name), f'at least {least}')
        if self.patients >= 1000:
            raise SettingError('patients', self.patients, 'below 1000')


def run_coverage_study(
    run: RunDirectory, plan: Plan, settings: CoverageSettings, caller: Caller = NOBODY
) -> list[Json]:
    """
    Measure every procedure of a finished run.

    :param run: gets ``values/`` with the models, and in ``coverage/`` for these settings a folder
        with one JSON file for each procedure; gone on from there.
    :returns: the parts; each with columns of its states by policy.
    :raises TrainingStopped: as soon as the caller says so; call it again to go on.
    :raises StoreError: if it is no finished run, or a part is damaged or of other settings.
    :raises SettingError: if it has no such policy.
    """
    read_policies(run, plan, settings.policies)
    relevant = _relevant_settings(plan, settings)
    stem = hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()[:12]
    parts = [
        Part(each, {'of': relevant}, (each, run, plan, settings)) for each in plan.federation.names
    ]
    study = Study(
        'coverage', run.path / 'coverage' / stem, measure, workers=plan.evaluation.workers
    )
    if None in study.finished(parts):
        _models(run, plan, settings, caller)  # before many processes want them at once
    return study.run(parts, caller)


def _models(
    run: RunDirectory, plan: Plan, settings: CoverageSettings, caller: Caller
) -> tuple[Policy, dict[str, Policy | None], dict[str, ValueModel]]:
    """Return the public start, the policies and their value models; fit those not kept yet."""
    policies = read_policies(run, plan, settings.policies)
    start = policies.pop('pretrained')
    assert start is not None
    values = value_models(run.path / 'values', policies, plan, start, 'models', caller)
    return start, policies, values


def read_policies(
    run: RunDirectory, plan: Plan, wanted: Sequence[str]
) -> dict[str, Policy | None]:
    """
    Read the policies of a run that a selector may choose, and the public start beside them.

    :raises StoreError: if it is no finished run.
    :raises SettingError: if one is not there.
    """
    if not run.layout.pretrained.exists():
        raise StoreError(f'{run.path} is no finished run: it has no federation/pretrained.npz')
    rows, choices = line_up(run.layout, plan, run.policies)
    for name in wanted:
        if name not in (*choices, HOLD):
            raise SettingError('policies', name, 'some of ' + ', '.join((*choices, HOLD)))
    return {name: rows.get(name) for name in (*wanted, 'pretrained')}


def _relevant_settings(plan: Plan, settings: CoverageSettings) -> Json:
    """Return what the numbers depend on, as JSON reads it back."""
    kept = chosen_settings(plan, 'federation', 'value', 'world')
    own = {**asdict(settings), 'policies': list(settings.policies)}
    return {**kept, 'coverage': own, 'model_format': FORMAT}


def measure(
    procedure: str, run: RunDirectory, plan: Plan, settings: CoverageSettings, work: Work
) -> Json:
    """Measure one procedure."""
    start, policies, values = _models(run, plan, settings, Caller(stopped=work.caller.stopped))
    rows: dict[str, list[Json]] = {name: [] for name in policies}
    left_out = dict.fromkeys(policies, 0)
    cohort = plan.public_cohort(1.0)
    everyone: Cohort | Mixture = cohort if settings.public else Mixture(plan.cohorts)

    def tick(left: int) -> None:
        work.check()

    for number in range(settings.patients):
        work.tell(number, settings.patients)
        index = number + 1000 * settings.seed
        patient = everyone.patient(FIRST_UNSEEN + index, 'test', procedure)
        rng = np.random.default_rng([Stream.COVERAGE_STUDY, plan.federation.seed, index])
        try:
            first = FIRST_REDRAWN + APART * index
            alike = [patient, *matched_patients(patient, cohort, settings.redraws, rng, first)]
            meeting = draw_meeting(alike, bool(number % 2), settings.states, rng)
        except RecordsError:  # hardly anybody looks like this one: there is nothing to expect
            left_out = {name: count + 1 + settings.states for name, count in left_out.items()}
            continue
        for name, policy in policies.items():
            (states,) = alike_states(
                [meeting], policy, start, plan.world, plan.value.discount, tick
            )
            for met in states:
                row = _row_of(met, values[name].estimates[procedure])
                rows[name] += [{'patient': number, **row}] if row else []
                left_out[name] += row is None
    columns = {
        name: {key: [row[key] for row in rows[name]] for key in COLUMNS} for name in policies
    }
    found = {name: {**columns[name], 'left_out': left_out[name]} for name in policies}
    return {'procedure': procedure, 'policies': found}


def _row_of(met: Alike, estimate: StateValue) -> Json | None:
    """Return what is kept of a state; None where too few patients were in it."""
    found = reference(met.state, met.others, met.returns)
    closer = reference(met.state, met.others, met.returns, NEAREST // FEWER)
    if found is None or closer is None:
        return None
    mean, std = estimate.mean_and_std(met.state)
    numbers = (met.tick, met.tick == 0, found.exact, float(mean), float(std))
    monte_carlo = (found.mean, found.error, closer.mean, closer.error)
    return dict(zip(COLUMNS[1:], numbers + monte_carlo, strict=True))


def summarise_coverage(parts: Sequence[Json]) -> Json:
    """
    Sum up by procedure and over all, at the start and in the middle of operations.

    :param parts: results of the coverage study, one for each procedure.
    :returns: ``rows``, one for each policy, procedure (or ``all``) and kind of state: coverages,
        the same with fewer patients for each expectation (``closer``), the root mean square of
        the model's error and of what it says of it, the Monte-Carlo error, what the standard
        deviations would have to be multiplied with at 90 % (``widening``), and counts.
    """
    rows = []
    for policy in parts[0]['policies']:
        for name in [each['procedure'] for each in parts] + ['all']:
            own = [
                (number, part['policies'][policy])
                for number, part in enumerate(parts)
                if name in (part['procedure'], 'all')
            ]
            table = _table(own)
            left_out = sum(columns['left_out'] for _, columns in own)
            for kind, chosen in (
                ('start', table['start'] > 0.0),
                ('middle', table['start'] == 0.0),
            ):
                if chosen.any():
                    some = {key: each[chosen] for key, each in table.items()}
                    row = {'policy': policy, 'procedure': name, 'kind': kind, **_row(some)}
                    rows.append({**row, 'left_out': left_out if kind == 'middle' else 0})
    return {'of': parts[0]['of'], 'rows': rows}


def _table(parts: Sequence[tuple[int, Json]]) -> dict[str, Array]:
    """Return the columns of numbered parts one below the other; patients keep them apart."""
    names = parts[0][1].keys() - {'left_out'}
    table = {key: np.concatenate([columns[key] for _, columns in parts]) for key in names}
    numbers = [np.full(len(columns['patient']), 10**6 * number) for number, columns in parts]
    return {**table, 'patient': table['patient'] + np.concatenate(numbers)}


def _row(table: dict[str, Array]) -> Json:
    std = np.maximum(table['std'], 1e-12)
    off, closer = table['reference'] - table['mean'], table['closer'] - table['mean']
    patients = table['patient']
    return {
        'states': len(std),
        'patients': len(np.unique(patients)),
        'same_state': float(np.mean(table['exact'])),
        'coverage': coverage_of(off / std, table['error'] / std, patients, CONFIDENCES),
        'closer': coverage_of(closer / std, table['closer_error'] / std, patients, CONFIDENCES),
        'widening': widening(off / std, table['error'] / std, 0.9),
        'bias': float(off.mean()),
        'error': max(float(np.mean(off**2 - table['error'] ** 2)), 0.0) ** 0.5,
        'std': float(np.mean(std**2) ** 0.5),
        'monte_carlo_error': float(np.mean(table['error'] ** 2) ** 0.5),
    }
