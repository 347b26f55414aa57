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

from fdrl_ros.deployment.settings import hospital_names
from fdrl_ros.errors import PolicyError, SettingError
from fdrl_ros.resources import parse_yaml
from fdrl_ros.settings import named_among, Settings
import yaml

if TYPE_CHECKING:
    from fdrl_ros.crypto.he.schemes import EncryptionSettings
    from fdrl_ros.deployment.settings import (
        EvaluationSettings,
        FederationSettings,
        ValidationSettings,
    )
    from fdrl_ros.federation.settings import RoundSettings
    from fdrl_ros.learner.pretraining import PretrainingSettings
    from fdrl_ros.learner.records.collection import CollectionSettings
    from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
    from fdrl_ros.policy import NetworkShape
    from fdrl_ros.selector import SafetySettings, SelectorSettings, ShieldSettings, ValueSettings
    from fdrl_ros.surgery.patient.cohort import Cohort
    from fdrl_ros.surgery.settings import WorldSettings

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
        'hospitals heterogeneity procedures seed noise personal release',
    )
    rounds: 'Group[RoundSettings]' = Group(
        'fdrl_ros.federation.settings:RoundSettings',
        'rounds quorum open_timeout absent_timeout share_timeout train_timeout settle_timeout '
        'reveal_timeout sum_timeout retry_delay',
    )
    learner: 'Group[LearnerSettings]' = Group(
        'fdrl_ros.learner.settings:LearnerSettings',
        'hidden discount learning_rate epochs transitions_per_patient expected_transitions '
        'target_period proximal n_step frame_stack loss conservative optimizer frozen_layers '
        'replay priority_exponent importance_exponent expected_priority',
    )
    privacy: 'Group[PrivacySettings]' = Group(
        'fdrl_ros.learner.settings:PrivacySettings',
        'unit clipped most_transitions budget delta clip_norm noise_multiplier batch',
    )
    collection: 'Group[CollectionSettings]' = Group(
        'fdrl_ros.learner.records.collection:CollectionSettings',
        'patients exploration variation guide',
    )
    pretraining: 'Group[PretrainingSettings]' = Group(
        'fdrl_ros.learner.pretraining:PretrainingSettings',
        'patients steps batch learning_rate target_period discount',
    )
    encryption: 'Group[EncryptionSettings]' = Group(
        'fdrl_ros.crypto.he.schemes:EncryptionSettings',
        'limit scheme bits',
    )
    validation: 'Group[ValidationSettings]' = Group(
        'fdrl_ros.deployment.settings:ValidationSettings',
        'patients margin',
    )
    selector: 'Group[SelectorSettings]' = Group(
        'fdrl_ros.selector.settings:SelectorSettings',
        'confidence risk_weight margin dwell patience state_timeout state_bound failure_pause '
        'hold_return hold_handicap change_threshold window answer_timeout',
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

    def group(self, which: Group[G]) -> G:
        """
        Return a group, as its attribute does.

        :raises SettingError: on an unknown name or a bad value.
        """
        made = self._made.get(which.name)
        if made is None:
            try:
                made = which.kind.from_mapping(self._values.get(which.name, {}))
            except SettingError as error:
                raise error.of(which.name) from None
            self._made[which.name] = made
        return made  # type: ignore[return-value]

    @classmethod
    def kind(cls, group: str) -> type[Settings]:
        """Return the class of one group."""
        return _GROUPS[group].kind

    @classmethod
    def groups(cls) -> dict[str, type[Settings]]:
        """Return the groups by name, in the order in which people should read them."""
        return {name: group.kind for name, group in _GROUPS.items()}

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

    def checked(self) -> Self:
        """
        Return this plan after a check of every setting, and of one against the other.

        :raises SettingError: on an unknown name, a bad value, a procedure that does not exist, or
            personal layers that the network does not have or that are all of it.
        :raises CryptoError: if the network is too large, or no scheme sums its updates.
        """
        from fdrl_ros.crypto.he.schemes import check_size, choose_scheme

        chosen, encryption = self.federation, self.encryption
        _ = chosen.names
        for group in _GROUPS.values():
            self.group(group)
        try:
            shared = self.shape.shared(chosen.personal_layers)
        except PolicyError as error:
            names = ', '.join(each.name for each in self.shape.layers())
            expected = f'some of the layers {names}, but not all ({error})'
            raise SettingError('federation.personal', chosen.personal, expected) from error
        check_size(self.shape.n_parameters)
        choose_scheme(shared.size, chosen.hospitals, encryption.bits, encryption.scheme)
        return self

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

        All names are checked now; of other parties' areas only procedures' names are imported.

        :raises SettingError: if it cannot be read, is no YAML, or has an unknown group, setting or
            procedure.
        """
        try:
            values = parse_yaml(path.read_text('utf-8')) or {}
        except (OSError, ValueError, yaml.YAMLError) as error:
            reason = getattr(error, 'strerror', None) or str(error).splitlines()[0]
            raise SettingError('plan', str(path), f'a readable YAML file: {reason}') from error
        if not isinstance(values, Mapping):
            raise SettingError('plan', str(path), 'groups of settings')
        plan = cls().replaced(values)
        for group, named in plan._values.items():
            settings = _GROUPS[group].names
            for name in named.keys() - set(settings):
                expected = named_among(name, 'settings', settings)
                raise SettingError(f'{group}.{name}', named[name], expected)
        _ = plan.federation.names
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
    def shape(self) -> 'NetworkShape':
        """The network that the policies of this plan are of."""
        from fdrl_ros.learner.pretraining import network_shape

        return network_shape(self.learner)

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
            Cohort(each, *numbers, procedures=chosen.names) for each in range(chosen.hospitals)
        )

    def public_cohort(self, heterogeneity: float = 0.0) -> 'Cohort':
        """Return made-up patients of the same procedures; no hospital shares one."""
        from fdrl_ros.surgery.patient.cohort import public_cohort

        chosen = self.federation
        return public_cohort(chosen.seed, heterogeneity, chosen.names)


_GROUPS: dict[str, Group[Settings]] = {
    name: group for name, group in vars(Plan).items() if isinstance(group, Group)
}
