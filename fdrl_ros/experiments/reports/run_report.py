# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
The report of one run, made of the files in its directory alone; also of one that is not finished.

It shows results on simulated patients, what hospitals publish of their ledgers, and hashes and
names of journals. It never opens records of patients or private keys. Of states of servers and
checkpoints of hospitals it reads the heads of ledgers alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
import json
from pathlib import Path
import shlex
from typing import Any
import zipfile
import zlib

from fdrl_ros.crypto.keys.roster import SERVERS
from fdrl_ros.deployment.layout import Layout, MAKERS
from fdrl_ros.deployment.ledger_inspection import (
    inspect_file,
    inspect_hospital,
    Inspection,
)
from fdrl_ros.deployment.parties.hospital import LEDGER
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.errors import FdrlError, JournalError, SettingError, StoreError
from fdrl_ros.experiments.json_file import from_json, Json
from fdrl_ros.experiments.patient_results import PatientResults
from fdrl_ros.experiments.reports.assessment import (
    compared_rows,
    evaluator_of,
    main_row,
    scores_by,
)
from fdrl_ros.experiments.reports.command import command_of
from fdrl_ros.experiments.reports.names import reader_name
from fdrl_ros.experiments.reports.page import Command, Content, Notice, Page, Picture, Section
from fdrl_ros.experiments.reports.run_table import group_table, policy_table, shared_patients
from fdrl_ros.experiments.reports.text_table import Grid, NOT_PRIVATE, RELEASED
from fdrl_ros.experiments.round_recorder import read_rounds, RoundNote, setbacks
from fdrl_ros.federation.journal.journal import FILE
from fdrl_ros.federation.journal.reader import Entry, read
from fdrl_ros.learner.forecast import RoundCosts
from fdrl_ros.learner.privacy_cost import RecordCounts
from fdrl_ros.privacy.accountant.accountant import Charge
from fdrl_ros.privacy.ledger.account import charged_by_others
from fdrl_ros.privacy.stated import stated
from fdrl_ros.resources import package_version
import numpy as np

PICTURES: Mapping[str, str] = {
    'success': 'Success of every policy on unseen patients, with 95 % intervals.',
    'hospitals': 'Total reward in each hospital, with 95 % intervals.',
    'learning': 'The global policy after each round, on the first of the unseen patients.',
    'epsilon': 'What each hospital has spent; the dashed line is the budget.',
    'selection': 'How often the selector chose each policy.',
    'operation_best': 'The operation in which the selector earned most.',
    'operation_worst': 'The operation in which the selector earned least.',
    'force': 'Force on the stiffest patient; the dashed line is the limit of the procedure.',
}
"""Figures of a run by the names of their files in plots/, and what each shows."""

_JOURNALED = ('refuse', 'fail', 'blame', 'operator')
"""Kinds of journal entries that are always told."""

_MOST_ROUNDS = 1000  # further ones that are looked for
_MOST_EVENTS = 200  # rows of the table of roll-backs and refusals


def own_plan(directory: Path) -> Plan:
    """
    Read the plan of a run.

    :raises StoreError: if the directory is no run, or this version does not know a setting of it.
    """
    path = Layout(directory / 'federation').plan
    if not path.exists():
        raise StoreError(f'{directory} is no run, as it has no federation/plan.yaml: {MAKERS}')
    try:
        plan = Plan.read(path)
        plan.to_mapping()
    except SettingError as error:
        raise StoreError(
            f'{path} is of another version, or damaged: {error}. `commit` in summary.json names '
            'the version that made the run; `fdrl evaluate` of single files of policies/ works '
            'in any world'
        ) from error
    return plan


def run_page(directory: Path) -> Page:
    """
    Make the report of a run.

    :raises FdrlError: if a file of it is damaged, or its task cannot be loaded.
    """
    return RunReport(directory).page()


@dataclass(frozen=True)
class RunReport:
    """
    What is known of a run, read from its directory.

    :param directory: of the run; of a finished one it holds ``summary.json``.
    """

    directory: Path

    @cached_property
    def layout(self) -> Layout:
        """Where the parties' files lie."""
        return Layout(self.directory / 'federation')

    @cached_property
    def plan(self) -> Plan:
        """The settings of the run."""
        return own_plan(self.directory)

    @cached_property
    def rounds(self) -> list[RoundNote]:
        """Notes of the rounds that were done."""
        return read_rounds(self.directory / 'rounds.json')

    @cached_property
    def summary(self) -> Json:
        """The numbers of the run; empty if it is not finished."""
        return self._json('summary.json')

    @cached_property
    def details(self) -> Json:
        """What `details.json` holds; empty if the run is not finished."""
        return self._json('details.json')

    def _json(self, name: str) -> Json:
        path = self.directory / name
        if not path.exists():
            return {}
        try:
            found = from_json(path.read_text('utf-8'))
            if not isinstance(found, dict):
                raise ValueError('expected a JSON object')
            return found
        except (OSError, ValueError) as error:
            raise StoreError(
                f'{path} cannot be read: {error}; `fdrl evaluate {self.directory}` writes it anew'
            ) from error

    def page(self) -> Page:
        """
        Put the report together.

        :raises StoreError: if a file lacks what it should hold.
        """
        try:
            sections = [
                Section('What came out', list(self._claims())),
                Section('On own patients', list(self._own())),
                Section('By procedure', list(self._procedures())),
                Section('Learning', list(self._pictures('learning'))),
                Section('Privacy', list(self._privacy())),
                Section('Time and bytes of each round', list(self._cost())),
                Section('Roll-backs and refusals', list(self._events())),
                Section('The selector at work', list(self._selector())),
                Section('How to do it again', self._again()),
                Section('What this report leaves out', [_LEFT_OUT]),
            ]
            told = self._provenance()
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise StoreError(
                f'{self.directory} cannot be reported: {error!r} is missing or of another form; '
                f'`fdrl evaluate {self.directory}` writes its results anew'
            ) from error
        chosen = self.plan.federation
        about = (
            f'Task {chosen.task}: {chosen.hospitals} hospitals with heterogeneity H = '
            f'{chosen.heterogeneity:g}, {len(self.rounds)} of {self.plan.rounds.rounds} rounds '
            f'done, seed {chosen.seed}. {self.plan.bucket_words()}'
        ).rstrip()
        shown = [each for each in sections if each.content]
        return Page('A federation and its policies', about, shown, told, made_here=False)

    def _claims(self) -> Iterator[Content]:
        """Say first what failed or voids a claim, then what the federation gains."""
        if not self.summary:
            words = 'This run is not finished: no policy was evaluated.'
            yield Notice(f'{words} To go on: {self._go_on}')
        elif self.summary['world_hash'] != (here := self.plan.identity.world_hash):
            yield Notice(
                f'The world of this version ({here[:12]}) is not that of the run '
                f'({self.summary["world_hash"][:12]}): its numbers stand, but nothing measured '
                'now compares with them'
            )
        if self.plan.federation.noise != 'secure':
            yield Notice(NOT_PRIVATE)
        for words in setbacks(self.rounds, self.plan.rounds.rounds):
            yield Notice(words)
        for name, problem in self.summary.get('ledger_problems', {}).items():
            words = f'{reader_name(name)} counts as having spent its whole budget: {problem}'
            yield Notice(words)
        if self.plan.federation.release:
            yield RELEASED
        if not self.summary:
            return
        main, leads = main_row(self.summary['policies']), self.details.get('differences', {})
        if leads:
            yield (
                f'The {reader_name(main)} minus every other row, on the same unseen patients, '
                'each in the own hospital, paired by patient; intervals (95 %) are over these '
                'patients, of one seed. An interval that holds 0 does not tell which is '
                'better.'
            )
            scores = evaluator_of(self.plan).scores
            names = [name for name, each in scores.items() if each.compared and each.heading]
            rows = [
                (reader_name(other), *(_lead(lead, name, scores[name].form) for name in names))
                for other, lead in leads.items()
            ]
            headings = ('against', *(scores[name].heading for name in names))
            yield Grid(f'{reader_name(main)} minus others'.capitalize(), headings, rows)
        yield from self._pictures('success')

    @property
    def _go_on(self) -> str:
        """The command that goes on with this run, of the kind that began it."""
        words = command_of(self.directory, '').split()
        command = 'run' if words[1:2] == ['run'] else 'train'
        if len(self.rounds) >= self.plan.rounds.rounds:
            return f'fdrl evaluate {shlex.quote(str(self.directory))}'
        return f'fdrl {command} --directory {shlex.quote(str(self.directory))}'

    def _own(self) -> Iterator[Content]:
        if not self.summary:
            return
        policies, scores = self.summary['policies'], evaluator_of(self.plan).scores
        yield Grid.of_table(policy_table(policies, scores))
        yield from self._groups('hospital', self.summary.get('by_hospital', {}))
        yield from self._pictures('hospitals')

    def _procedures(self) -> Iterator[Content]:
        if self.summary:
            found = self.summary.get('by_procedure') or scores_by('procedure', self._results())
            yield from self._groups('procedure', found)

    def _groups(self, column: str, groups: Mapping[str, Json]) -> Iterator[Content]:
        if groups:
            names = compared_rows(self.summary['policies'])
            yield Grid.of_table(group_table(column, groups, names))

    def _results(self) -> dict[str, PatientResults]:
        """Return what patients.npz holds, by policy; nothing where there is none."""
        path = self.directory / 'patients.npz'
        if not path.exists():
            return {}
        try:
            with np.load(path) as arrays:
                every = {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise StoreError(f'{path} cannot be read: {error}') from error
        columns: dict[str, dict[str, Any]] = {name: {} for name in self.summary['policies']}
        for name, values in every.items():
            policy, _, column = name.partition('/')
            if policy in columns:
                columns[policy][column] = values
        return {policy: PatientResults(own) for policy, own in columns.items() if own}

    def _privacy(self) -> Iterator[Content]:
        """Say what each hospital has spent, and what more rounds would cost."""
        chosen, rows, problems, accounts = self.plan.privacy, [], [], []
        bounds = self.summary.get('attack_bounds', {})
        for name in self.plan.hospitals:
            found = inspect_hospital(self.layout, name, self.plan)
            problems += [each.replace(f'{self.directory}/', '') for each in found.all_problems]
            epsilon = self.summary.get('epsilon', {}).get(name)
            cells = ['', '']
            if found.problems:
                epsilon = chosen.budget  # what the ledger lacks is unknown, and at most that
            elif found.record is not None:
                epsilon = found.record.chain.epsilon() if epsilon is None else epsilon
                cells = self._forecast(found)
            if found.account is not None:
                spent = stated(found.account.chain.epsilon())
                accounts.append(f'{reader_name(name)} {spent}')
            own = bounds.get(name, {})
            most = [own[each] for each in ('auc', 'tpr', 'information')] if own else []
            rows.append(
                (
                    reader_name(name),
                    '' if epsilon is None else stated(epsilon),
                    f'{chosen.budget:g}',
                    *cells,
                    *([stated(each, 3) for each in most] or ['', '', '']),
                )
            )
        yield from map(Notice, problems)
        yield (
            f'Epsilon is the privacy loss of one {chosen.unit} at delta {chosen.delta:g}, by the '
            'tight accountant, with everything that the hospital charged: rounds, and home '
            'policies where it made some. The forecast finishes a round that was begun first, '
            'and includes the home policy after the last round, if the plan makes one. Bounds '
            'are rounded up.'
        )
        headings = ('hospital', 'epsilon', 'budget', 'epsilon after one more round')
        limits = ('AUC at most', 'TPR at 1 % FPR at most', 'PLR at most, bits')
        title = 'Spent, forecast, and what no attack on all releases exceeds'
        yield Grid(title, (*headings, 'further rounds that the budget pays', *limits), rows)
        if accounts:
            yield (
                'The budget is that of a shared account. Epsilon of all federations together: '
                f'{", ".join(accounts)}. This is for the hospitals alone.'
            )
        if alone := list(self._spent_alone()):
            yield (
                'The baseline alone is what would have been without a federation, so it charges '
                f'a ledger of its own, and no row above has it: epsilon {", ".join(alone)}. Where '
                'records are real, whoever sees results of both learns as much as both epsilons '
                'together allow.'
            )
        shared = self.summary.get('epsilon_of_shared_patients')
        if shared is not None:
            yield f'{shared_patients(shared, self.summary["delta_of_shared_patients"])}.'
        yield from self._pictures('epsilon')

    def _forecast(self, found: Inspection) -> list[str]:
        """Return epsilon after one more round, and the further rounds that the budget pays."""
        plan, record, patients = self.plan, found.record, self.plan.collection.patients
        if record is None or plan.privacy.unit == 'transition':
            return ['', '']  # how many transitions a hospital has is private
        if self.layout.keys.exists():
            sizes = {each.name: each.size for each in self.layout.roster().members}
            patients = sizes.get(found.name, patients)
        size = RecordCounts(patients, patients, plan.privacy.most_transitions)
        chain = record.chain
        others: tuple[Charge, ...] = ()
        if found.account is not None:
            others = charged_by_others(found.account.chain, chain.owner)
        costs = RoundCosts(
            plan.learner, plan.privacy, plan.home, size, chain=chain, elsewhere=others
        )
        paid = costs.rounds_paid(_MOST_ROUNDS)
        left = f'{paid} or more' if paid == _MOST_ROUNDS else str(paid)
        return [stated(costs.epsilon(1)), left]

    def _spent_alone(self) -> Iterator[str]:
        """Name hospitals that trained alone, and what their ledgers of that have spent."""
        for name in self.plan.hospitals:
            path = self.layout.directory / 'alone' / name / LEDGER
            if not path.exists():
                continue
            record = inspect_file(path, {}).record
            spent = self.plan.privacy.budget if record is None else record.chain.epsilon()
            yield f'{reader_name(name)} {stated(spent)}'

    def _cost(self) -> Iterator[Content]:
        rows = []
        members = set(self.plan.hospitals)
        for each in self.rounds:
            absent = ', '.join(
                reader_name(name) for name in sorted(members - {*each.contributors})
            )
            outcome = 'rolled back' if each.rolled_back else 'new policy'
            memory = '' if each.peak_memory is None else f'{each.peak_memory:.0f}'
            rows.append(
                (
                    str(each.round),
                    f'{each.seconds:.2f}',
                    f'{each.he_seconds:.3f}',
                    f'{each.update_bytes / 1000:.1f}',
                    memory,
                    f'{len(each.contributors)} of {len(members)}',
                    absent or 'nobody',
                    '' if each.public_success is None else f'{each.public_success:.0%}',
                    outcome if each.contributors else 'abandoned',
                )
            )
        headings = ('round', 'seconds', 'seconds of encryption', 'kB of a hospital')
        if rows:
            title = 'Each round, as the parties measured it'
            more = (
                'peak memory, MB',
                'survivors',
                'missing',
                'success on public patients',
                'outcome',
            )
            yield Grid(title, (*headings, *more), rows)
        else:
            yield 'No round was done.'

    def _events(self) -> Iterator[Content]:
        """Tell what parties refused, rolled back or blamed, as their journals say."""
        rows, problems = [], []
        for name in (*SERVERS, *self.plan.hospitals):
            path = self.layout.party(name) / FILE
            if not path.exists():
                continue
            try:
                rows += [_event(entry) for entry in read(path) if _is_setback(entry)]
            except (JournalError, OSError) as error:
                problems.append(f'The journal of the {reader_name(name)} is damaged: {error}')
        yield from map(Notice, problems)
        if not rows:
            yield 'Nothing was refused, rolled back or blamed, as far as the journals here say.'
            return
        rows.sort()
        headings = ('time', 'party', 'round', 'attempt', 'what', 'why')
        title = 'What the journals say of it'
        if len(rows) > _MOST_EVENTS:
            title += f', the last {_MOST_EVENTS} of {len(rows)}'
        yield Grid(title, headings, rows[-_MOST_EVENTS:])

    def _selector(self) -> Iterator[Content]:
        """Show what the selector chose, and single operations with the arm above."""
        yield from self._pictures('selection', 'operation_best', 'operation_worst', 'force')
        path = self.directory / 'operations.json'
        if not path.exists():
            return
        try:
            done = json.loads(path.read_text('utf-8'))
        except (OSError, ValueError) as error:
            raise StoreError(f'{path} cannot be read: {error}') from error
        rows = [
            (
                reader_name(each['robot']),
                each['patient'],
                reader_name(each['procedure']),
                'success' if each['success'] else 'failure',
                reader_name(each['failure']) if each['failure'] else 'none',
                str(each['steps']),
                f'{each["peak_force"]:.2f}',
                f'{each["damage"]:.2f}',
            )
            for each in done
        ]
        if rows:
            headings = ('robot', 'patient', 'procedure', 'outcome', 'failure', 'steps')
            title = 'Operations of the robot over ROS 2, in real time, on simulated patients'
            yield Grid(title, (*headings, 'peak force, N', 'damage, N s'), rows)

    def _pictures(self, *names: str) -> list[Picture]:
        plots = self.directory / 'plots'
        paths = {name: plots / f'{name}.png' for name in names}
        return [Picture(path, PICTURES[name]) for name, path in paths.items() if path.exists()]

    def _again(self) -> list[Content]:
        plan = self.layout.plan
        return [
            Command(command_of(self.directory, f'fdrl train --plan {plan}')),
            'In a directory of its own, with every setting of this run:',
            Command(f'fdrl train --plan {plan}'),
            'To evaluate its policies again, on the same patients:',
            Command(f'fdrl evaluate {self.directory}'),
        ]

    def _provenance(self) -> dict[str, str]:
        found, plan, summary = {}, self.plan, self.summary
        found['directory'] = self.directory.name
        found['task'] = plan.federation.task
        if summary:
            found['task'] = f'{summary["task"]["name"]} {summary["task"]["version"]}'
            learner = summary['learner']
            found['learner'] = f'{learner["kind"]}: {learner["network"]}'
            found['commit'] = summary['commit']
            found['world hash'] = summary['world_hash']
            found |= {f'version of {name}': each for name, each in summary['versions'].items()}
        for group, values in plan.to_mapping().items():
            found[f'settings of {group}'] = ', '.join(f'{k}={v}' for k, v in values.items())
        found['report made by'] = f'fdrl_ros {package_version()}'
        return found


_LEFT_OUT = (
    'Everything here is of simulated patients that no training saw: "own patients" are unseen '
    'simulated ones of each hospital. Of the records that hospitals trained on it holds nothing: '
    'no record, no number of a patient in them, no entry of a ledger, no weights. What it says of '
    'a hospital is what the hospital publishes anyway: name, epsilon, whether it took part, the '
    'bytes and time of its update. The policies `alone` and `home` belong to the hospitals: where '
    'records are real, their rows are for the hospital alone. What the policies `alone` cost is '
    'on a ledger of their own, and stated under Privacy.'
)


def _lead(lead: Json, name: str, form: str) -> str:
    """Return a mean lead with its interval, in the form of the score."""
    if name not in lead or lead[name] is None or lead[name] != lead[name]:
        return 'undefined'
    half, mean = lead.get(f'{name}_half_width'), lead[name]
    words = format(mean, f'+{form}')
    if half is None:
        return words
    return f'{words} [{mean - half:+{form}}, {mean + half:+{form}}]'


def _is_setback(entry: Entry) -> bool:
    """Return whether an entry tells of something that did not go as planned."""
    if entry.kind == 'release':
        return bool(entry.fields['rolled_back'])
    return entry.kind in _JOURNALED or (entry.kind == 'settle' and bool(entry.fields['dropped']))


_WHAT = {
    'refuse': 'refused to decrypt',
    'fail': 'attempt failed',
    'release': 'rolled back',
    'settle': 'hospital dropped',
}


def _event(entry: Entry) -> tuple[str, ...]:
    fields: Mapping[str, object] = entry.fields
    match entry.kind:
        case 'blame':
            hospital = reader_name(str(fields['hospital']))
            what, why = f'{hospital} was blamed', f'it {fields["fault"]}'
        case 'operator':
            what = f'order: {fields["action"]}'
            why = f'by {fields["operator"]}, of {reader_name(str(fields["hospital"])) or "all"}'
        case 'settle':
            dropped: Sequence[str] = entry.fields['dropped']
            what, why = _WHAT['settle'], ', '.join(map(reader_name, dropped))
        case _:
            what, why = _WHAT[entry.kind], str(fields.get('reason', ''))
    who = reader_name(entry.party)
    return entry.time, who, str(entry.round), str(entry.attempt), what, why or 'no reason given'


def is_run(directory: Path) -> bool:
    """Return whether a directory is that of a run, finished or not."""
    try:
        return Layout(directory / 'federation').plan.exists()
    except (OSError, FdrlError):
        return False
