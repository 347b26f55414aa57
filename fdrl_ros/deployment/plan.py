# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A plan: every setting of one run of the system, in named groups.

Command-line flags, ROS parameters and YAML files all come from these groups. The module of a group
is imported when the group is first read, so that each party loads its own area only.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, NoReturn, overload, Self, TYPE_CHECKING, TypeVar

from fdrl_ros.crypto.keys.roster import default_threshold, usual_neighbours
from fdrl_ros.crypto.masking.neighbourhoods import Neighbourhoods, SEED_BYTES
from fdrl_ros.deployment.settings import hospital_names
from fdrl_ros.errors import CryptoError, PolicyError, RecordsError, SettingError, TaskError
from fdrl_ros.resources import parse_yaml
from fdrl_ros.runtime.references import absolute_reference
from fdrl_ros.settings import named_among, Settings
import yaml

if TYPE_CHECKING:
    from fdrl_ros.crypto.he.schemes import EncryptionSettings
    from fdrl_ros.deployment.settings import (
        EvaluationSettings,
        FederationSettings,
        ValidationSettings,
    )
    from fdrl_ros.federation.key_authority.server_optimizer import ServerOptimizerSettings
    from fdrl_ros.federation.settings import RoundSettings
    from fdrl_ros.learner.pretraining import PretrainingSettings
    from fdrl_ros.learner.records.collection import CollectionSettings
    from fdrl_ros.learner.records.records import Records
    from fdrl_ros.learner.settings import HomeSettings, LearnerSettings, PrivacySettings
    from fdrl_ros.policy.network import Network
    from fdrl_ros.policy.task_identity import TaskIdentity
    from fdrl_ros.selector import SafetySettings, SelectorSettings, ShieldSettings, ValueSettings
    from fdrl_ros.surgery.patient.cohort import Cohort
    from fdrl_ros.surgery.settings import WorldSettings
    from fdrl_ros.tasks import Population, Task, TaskSpec

SURGERY = 'surgery'

G = TypeVar('G', bound=Settings)

Values = Mapping[str, Mapping[str, object]]
"""Groups of settings by name, as a file gives them."""


class Group(Generic[G]):
    """
    A group of settings of a plan; its module is imported when the group is first read.

    :param place: module and class of the group, as `module:Class`.
    :param names: of its settings, so that a file's are checked without that import.
    """

    def __init__(self, place: str, names: str) -> None:
        self._place = place
        self.names = names.split()

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the attribute's name for the group's."""
        self.name = name

    @cached_property
    def kind(self) -> type[G]:
        """The class of the group; its module is imported here."""
        module, _, name = self._place.partition(':')
        kind: type[G] = getattr(import_module(module), name)
        return kind

    @overload
    def __get__(self, plan: None, owner: type) -> Self: ...

    @overload
    def __get__(self, plan: 'Plan', owner: type) -> G: ...

    def __get__(self, plan: 'Plan | None', owner: type) -> Self | G:
        """
        Return the group of a plan.

        :raises SettingError: on an unknown name or a bad value.
        """
        return self if plan is None else plan.group(self)

    def __set__(self, plan: 'Plan', value: object) -> NoReturn:
        """Refuse: a plan does not change."""
        raise AttributeError(f'{self.name} of a plan is fixed: see Plan.changed')


class Plan:
    """
    All groups of settings of a run.

    A plan does not change, and two plans with the same settings are equal.
    """

    federation: 'Group[FederationSettings]' = Group(
        'fdrl_ros.deployment.settings:FederationSettings',
        'hospitals heterogeneity gap disturbances task procedures seed noise personal release '
        'buckets',
    )
    rounds: 'Group[RoundSettings]' = Group(
        'fdrl_ros.federation.settings:RoundSettings',
        'rounds quorum open_timeout absent_timeout share_timeout train_timeout settle_timeout '
        'reveal_timeout sum_timeout retry_delay',
    )
    server: 'Group[ServerOptimizerSettings]' = Group(
        'fdrl_ros.federation.key_authority.server_optimizer:ServerOptimizerSettings',
        'optimizer rate momentum decay adaptivity combine',
    )
    learner: 'Group[LearnerSettings]' = Group(
        'fdrl_ros.learner.settings:LearnerSettings',
        'kind network algorithm adapter_rank frozen offsets offset_rate device hidden discount '
        'learning_rate epochs averaging transitions_per_patient expected_transitions idle_action '
        'idle_weight target_period proximal n_step frame_stack loss conservative temperature '
        'most_weight value_weight optimizer replay priority_exponent importance_exponent '
        'expected_priority',
    )
    privacy: 'Group[PrivacySettings]' = Group(
        'fdrl_ros.learner.settings:PrivacySettings',
        'unit clipped most_transitions budget delta account clip_norm noise_multiplier batch',
    )
    home: 'Group[HomeSettings]' = Group(
        'fdrl_ros.learner.settings:HomeSettings',
        'epochs learning_rate frozen offsets offset_rate candidates alone_epochs choice_noise '
        'choice_clip',
    )
    collection: 'Group[CollectionSettings]' = Group(
        'fdrl_ros.learner.records.collection:CollectionSettings',
        'patients exploration variation guide',
    )
    pretraining: 'Group[PretrainingSettings]' = Group(
        'fdrl_ros.learner.pretraining:PretrainingSettings',
        'patients heterogeneity guide labels exploration steps batch learning_rate settling '
        'target_period discount',
    )
    encryption: 'Group[EncryptionSettings]' = Group(
        'fdrl_ros.crypto.he.schemes:EncryptionSettings',
        'limit scheme bits norm projections',
    )
    validation: 'Group[ValidationSettings]' = Group(
        'fdrl_ros.deployment.settings:ValidationSettings',
        'patients margin each_bucket',
    )
    selector: 'Group[SelectorSettings]' = Group(
        'fdrl_ros.selector.settings:SelectorSettings',
        'confidence advantage_confidence risk_weight margin home_margin dwell patience '
        'state_timeout state_bound failure_pause hold_return hold_handicap change_threshold '
        'window answer_timeout',
    )
    shield: 'Group[ShieldSettings]' = Group(
        'fdrl_ros.shield.settings:ShieldSettings',
        'active keep_limit damage_limit stiffest damping speed acceleration swing rate surge '
        'slope registration slowest latency force_error arm_error position_error usual_swing '
        'usual_stiffest usual_speed usual_acceleration',
    )
    value: 'Group[ValueSettings]' = Group(
        'fdrl_ros.selector.value.fitting:ValueSettings',
        'discount trace patients features stride groups checked redraws',
    )
    safety: 'Group[SafetySettings]' = Group(
        'fdrl_ros.selector.candidates.safety_limits:SafetySettings',
        'patients snapshots force_share workspace_share one_action_share force_failures '
        'return_margin',
    )
    evaluation: 'Group[EvaluationSettings]' = Group(
        'fdrl_ros.deployment.settings:EvaluationSettings',
        'patients round_patients state_patients states_per_patient workers',
    )
    world: 'Group[WorldSettings]' = Group(
        'fdrl_ros.surgery.settings:WorldSettings',
        'mode horizon force_noise pace progress_reward hold_reward success_reward '
        'failure_penalty force_penalty time_penalty',
    )

    def __init__(self, values: Values | None = None) -> None:
        """
        Take settings whose groups are checked when they are first read.

        :param values: group to name to value; what is not named has its default.
        :raises SettingError: on an unknown group.
        """
        self._values = {name: dict(named) for name, named in (values or {}).items()}
        self._made: dict[str, Settings] = {}
        for name in self._values.keys() - _GROUPS.keys():
            raise SettingError(name, self._values[name], named_among(name, 'groups', _GROUPS))

    def __eq__(self, other: object) -> bool:
        """Compare all settings."""
        if not isinstance(other, Plan):
            return NotImplemented
        return self.to_mapping() == other.to_mapping()

    def __hash__(self) -> int:
        """Go by all settings."""
        return hash(self.to_yaml())

    def __reduce__(self) -> tuple[type[Self], tuple[Values]]:
        """Pickle the values alone: a task's own classes are loaded by name where they arrive."""
        return type(self), (self._values,)

    def group(self, which: Group[G]) -> G:
        """
        Return a group, as its attribute does.

        :raises SettingError: on an unknown name or a bad value.
        """
        made = self._made.get(which.name)
        if made is None:
            kind: type[Settings] = which.kind
            if which.name == 'world' and self.federation.task != SURGERY:
                kind = self.task.world
            try:
                made = kind.from_mapping(self._values.get(which.name, {}))
            except SettingError as error:
                raise error.of(which.name) from None
            self._made[which.name] = made
        return made  # type: ignore[return-value]

    @classmethod
    def kind(cls, group: str) -> type[Settings]:
        """Return the class of one group; of the world, that of surgery."""
        return _GROUPS[group].kind

    @classmethod
    def groups(cls, task: str = SURGERY) -> dict[str, type[Settings]]:
        """
        Return the groups by name, in the order in which people should read them.

        :param task: whose settings the group `world` has.
        :raises TaskError: if the task cannot be loaded.
        """
        kinds = {name: group.kind for name, group in _GROUPS.items()}
        return kinds if task == SURGERY else {**kinds, 'world': _task_named(task).world}

    def changed(self, values: Values) -> Self:
        """
        Return this plan with some settings changed.

        :param values: group to name to value.
        :raises SettingError: on an unknown group or name, or a bad value.
        """
        return self.replaced(values).checked()

    def replaced(self, values: Values) -> Self:
        """
        Return this plan with some settings changed, each group checked when it is first read.

        :raises SettingError: on an unknown group.
        """
        for name, named in values.items():
            if not isinstance(named, Mapping):
                raise SettingError(name, named, 'settings as names and values')
        merged = {name: {**self._values.get(name, {}), **named} for name, named in values.items()}
        return type(self)({**self._values, **merged})

    def of_task(self) -> Self:
        """
        Return this plan with the defaults of its task where it says nothing, unchecked.

        :raises TaskError: if the task cannot be loaded.
        """
        values: dict[str, dict[str, object]] = {
            name: dict(named) for name, named in self.task.defaults.items()
        }
        for name, named in self._values.items():
            values[name] = {**values.get(name, {}), **named}
        return type(self)(values)

    def checked(self) -> Self:
        """
        Return this plan with the defaults of its task, after a check of every setting.

        :raises SettingError: on an unknown name, a bad value, a procedure that does not exist, or
            personal tensors that the network does not have or that are all of it.
        :raises TaskError: if the task or the learner cannot be loaded, or the task sets what
            hospitals promise their patients.
        :raises CryptoError: if the network is too large, or no scheme sums its updates.
        """
        from fdrl_ros.crypto.he.schemes import check_size, choose_scheme
        from fdrl_ros.federation.key_authority.server_step import fed_avg

        values = self.of_task()._values
        for owner, name in (('federation', 'task'), ('learner', 'network')):
            named = values.get(owner, {})
            if isinstance(named.get(name), str):
                named[name] = absolute_reference(str(named[name]))
        plan = type(self)(values)
        chosen, encryption = plan.federation, plan.encryption
        try:
            plan.task.check(chosen)
        except SettingError as error:
            raise error.of('federation') from None
        for group in _GROUPS.values():
            plan.group(group)
        plan._check_promise()
        if (own := plan.server_step) and plan.server.step() is not fed_avg:
            expected = f'fedavg at rate 1: task {chosen.task} has the server step {own}'
            raise SettingError('server.optimizer', plan.server.optimizer, expected)
        layout = plan.network.layout
        try:
            shared = layout.shared(chosen.personal_layers)
        except PolicyError as error:
            expected = f'some tensors or modules of the network, but not all ({error})'
            raise SettingError('federation.personal', chosen.personal, expected) from error
        plan._check_tuning()
        plan._check_buckets()
        check_size(layout.n_parameters)
        projected, size = encryption.projections > 0, shared.size
        choose_scheme(
            size, chosen.hospitals, encryption.bits, encryption.scheme, projected=projected
        )
        return plan

    def _check_tuning(self) -> None:
        """Refuse tensors, and offsets of inputs, that the network or the task does not have."""
        from fdrl_ros.learner.offsets import offsets_of

        tuned = [('learner', self.network, self.learner)]
        if self.home.epochs:
            try:
                self.home_network.layout.digest()
            except (PolicyError, SettingError) as error:
                expected = f'tensors or modules of the network, but not all ({error})'
                raise SettingError('home.frozen', self.home.frozen, expected) from error
            tuned.append(('home', self.home_network, self.home.fine_tuned(self.learner)))
        for group, network, learner in tuned:
            try:
                offsets_of(network, learner, self.spec.names)
            except SettingError as error:
                raise error.of(group) from None

    def _check_promise(self) -> None:
        """Refuse a task by which patients would be protected less than the plan says."""
        for name in ('unit', 'budget'):
            if name in self.task.defaults.get('privacy', {}):
                raise TaskError(
                    f'task {self.federation.task} sets privacy.{name}, which hospitals promise '
                    'their patients: leave it out of its defaults, and set it in the plan'
                )
        frames = self.task.frames(self.world)
        if self.learner.network == 'gru' and len(self.spec.shape) == 2:
            frames = max(frames, self.spec.shape[0])
        if self.privacy.unit == 'transition' and self.learner.frame_stack < frames:
            raise SettingError(
                'learner.frame_stack',
                self.learner.frame_stack,
                f'at least {frames}, since a state holds so many steps of a patient and each '
                'step is a privacy unit',
            )

    @classmethod
    def load(cls, path: Path) -> Self:
        """
        Read a plan from a YAML file and check all of it.

        :raises SettingError: if it cannot be read, is no YAML, or names what there is not.
        """
        return cls.read(path).checked()

    @classmethod
    def read(cls, path: Path) -> Self:
        """
        Read the plan of a prepared directory; values are checked when their group is first read.

        All names are checked now, but those of the world of another task than surgery.

        :raises SettingError: if it cannot be read, is no YAML, or has an unknown group or setting.
        """
        try:
            values = parse_yaml(path.read_text('utf-8')) or {}
        except (OSError, ValueError, yaml.YAMLError) as error:
            reason = getattr(error, 'strerror', None) or str(error).splitlines()[0]
            raise SettingError('plan', str(path), f'a readable YAML file: {reason}') from error
        if not isinstance(values, Mapping):
            raise SettingError('plan', str(path), 'groups of settings')
        plan = cls().replaced(_renamed(values))
        for group, named in plan._values.items():
            if group == 'world' and plan.federation.task != SURGERY:
                continue
            settings = _GROUPS[group].names
            for name in named.keys() - set(settings):
                expected = named_among(name, 'settings', settings)
                raise SettingError(f'{group}.{name}', named[name], expected)
        return plan

    def to_mapping(self) -> dict[str, dict[str, Any]]:
        """Return all settings as nested names and values."""
        return {name: asdict(self.group(group)) for name, group in _GROUPS.items()}

    def to_yaml(self) -> str:
        """Return what :meth:`load` reads."""
        text: str = yaml.safe_dump(self.to_mapping(), sort_keys=False)
        return text

    # What follows loads the learner or the world.

    @property
    def task(self) -> 'Task[Any, Any]':
        """
        The world to learn in.

        :raises SettingError: if no task has this name.
        :raises FdrlError: if it cannot be loaded.
        """
        return _task_named(self.federation.task)

    @cached_property
    def spec(self) -> 'TaskSpec':
        """What policies see and do."""
        return self.task.spec(self.world)

    @cached_property
    def identity(self) -> 'TaskIdentity':
        """What records, policies and results of this plan carry."""
        return self.task.identity(self.world)

    @cached_property
    def network(self) -> 'Network':
        """
        The network that the policies of this plan are of.

        :raises SettingError: if no learner has this name, or it cannot learn this task.
        :raises FdrlError: if it cannot be loaded.
        """
        from fdrl_ros.deployment.registry import learner_named

        return learner_named(self.learner.kind)(self.spec, self.learner)

    @property
    def server_step(self) -> str:
        """The task's own server step, by reference; empty: none. Surgery stays unloaded."""
        task = self.federation.task
        return '' if task == SURGERY else self.task.server_step(self.world)

    def neighbourhoods(self) -> Neighbourhoods:
        """Return a graph of masks as a new federation has it; its order there is another one."""
        count = self.federation.hospitals
        degree = usual_neighbours(count, None, self.federation.buckets)
        seed = bytes(SEED_BYTES if degree else 0)
        return Neighbourhoods(self.hospitals, default_threshold(count), degree, seed)

    def bucket_words(self) -> str:
        """Say how hospitals are summed in buckets, and what that tells; empty without buckets."""
        buckets, count = self.federation.buckets, self.federation.hospitals
        if not buckets:
            return ''
        tested = ', tests each on public patients' if self.validation.each_bucket else ''
        weak = (
            ' WITHOUT A DEFENCE: a mean leaves out no bucket that somebody poisons. Set '
            'server.combine or validation.each_bucket; without either, buckets only show the key '
            'authority more.'
            if self.server.combine == 'mean' and not tested
            else ''
        )
        dealt = (
            ' Buckets follow from the keys: to repeat the policies, copy federation/keys too.'
            if self.federation.noise == 'seeded' and self.server.combine != 'mean'
            else ''
        )
        return (
            f'Each round sums {count} hospitals in {buckets} buckets of about '
            f'{count / buckets:.2g}, and of three at least where some are missing: the key '
            f'authority sees the average of each bucket{tested}, and combines them by '
            f'{self.server.combine}.{weak}{dealt}'
        )

    def _check_buckets(self) -> None:
        """
        Refuse buckets that are too small, or that are not summed as they have to be.

        :raises SettingError: if so.
        """
        from fdrl_ros.crypto.masking.buckets import check_buckets

        chosen = self.federation
        try:
            check_buckets(chosen.buckets, chosen.hospitals)
        except CryptoError as error:
            expected = str(error).partition('expected ')[2]
            expected += f' (federation.hospitals is {chosen.hospitals})'
            raise SettingError('federation.buckets', chosen.buckets, expected) from error
        if chosen.buckets and self.encryption.scheme != 'bfv':
            expected = '0: only with encryption.scheme bfv is a bucket summed alone'
            raise SettingError('federation.buckets', chosen.buckets, expected)
        if self.validation.each_bucket and not chosen.buckets:
            expected = 'no, or federation.buckets beside it: there is one sum of all'
            raise SettingError('validation.each_bucket', 'yes', expected)
        if self.server.combine != 'mean' and chosen.buckets < 3:
            expected = 'mean, or three federation.buckets: no rule tells which of two is bad'
            raise SettingError('server.combine', self.server.combine, expected)

    def with_all_weights(self) -> Self:
        """Return this plan with all weights trained, where it learns offsets of inputs alone."""
        if not self.learner.offsets:
            return self
        return self.changed({'learner': {'frozen': '', 'offsets': ''}})

    @cached_property
    def home_network(self) -> 'Network':
        """The network that is fine-tuned at home: the same, but for frozen tensors."""
        if not self.home.frozen:
            return self.network
        return self.replaced({'learner': {'frozen': self.home.frozen}}).network

    def population(self, hospital: int | None) -> 'Population[Any]':
        """
        Return the patients of a hospital.

        :param hospital: number from 0; None for public patients at H = 0.
        """
        return self.task.population(self.federation, hospital)

    def load_records(self, path: Path) -> 'Records':
        """
        Read records that this plan can train on.

        :raises RecordsError: if the file is missing, damaged, or of another form.
        :raises TaskError: if they are of another task.
        """
        from fdrl_ros.learner.records.records import Records

        records, spec = Records.load(path), self.spec
        self.identity.check(records.task, path)
        size, kind = records.states.shape[1], records.states.dtype.name
        if (size, kind) != (spec.size, spec.dtype):
            expected = f'expected {spec.size}, {spec.dtype}'
            raise RecordsError(f'{path}: states of {size} numbers, {kind}: {expected}')
        return records

    @property
    def hospitals(self) -> tuple[str, ...]:
        """Names of the hospitals."""
        return hospital_names(self.federation.hospitals)

    @property
    def cohorts(self) -> 'tuple[Cohort, ...]':
        """Patients of each hospital."""
        from fdrl_ros.surgery.patient.cohort import Cohort

        chosen = self.federation
        numbers = chosen.hospitals, chosen.heterogeneity, chosen.seed
        return tuple(
            Cohort(each, *numbers, procedures=chosen.names, conditions=chosen.conditions)
            for each in range(chosen.hospitals)
        )

    def public_cohort(self, heterogeneity: float = 0.0) -> 'Cohort':
        """Return made-up patients of the same procedures; no hospital shares one."""
        from fdrl_ros.surgery.patient.cohort import public_cohort

        chosen = self.federation
        return public_cohort(chosen.seed, heterogeneity, chosen.names, chosen.conditions)


def _task_named(name: str) -> 'Task[Any, Any]':
    from fdrl_ros.deployment.registry import task_named  # loads the world

    return task_named(name)


_GROUPS: dict[str, Group[Settings]] = {
    name: group for name, group in vars(Plan).items() if isinstance(group, Group)
}


def _renamed(values: Values) -> Values:
    """Return the settings of a plan, those of older plans by their present names."""
    learner = values.get('learner')
    if not isinstance(learner, Mapping) or 'frozen_layers' not in learner:
        return values
    kept = {name: value for name, value in learner.items() if name != 'frozen_layers'}
    layers = learner['frozen_layers']
    if isinstance(layers, int) and layers:
        kept['frozen'] = ', '.join(f'shared.{layer}' for layer in range(layers))
    return {**values, 'learner': kept}
