# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A plan: every setting of one run of the system, in named groups.

Command-line flags, ROS parameters and YAML files all come from these groups. The module of a group
is imported when the group is first read, so that each party loads its own area only.
"""

import ast
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, NoReturn, overload, Self, TYPE_CHECKING, TypeVar

from fdrl_ros.deployment.settings import hospital_names
from fdrl_ros.errors import PolicyError, SettingError
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
    """A group of settings of a plan, made when it is first read."""

    def __init__(self, module: str) -> None:
        """Name the module that has the group's class."""
        self._module = module

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the attribute's name for the group's, and the class out of its annotation."""
        self.name = name
        self._class = owner.__annotations__[name].removeprefix('Group[').removesuffix(']')

    @cached_property
    def kind(self) -> type[G]:
        """The class of the group; its module is imported here."""
        kind: type[G] = getattr(import_module(self._module), self._class)
        return kind

    @property
    def names(self) -> list[str]:
        """The names of its settings, out of the source of its class."""
        body = _defined(self._module, self._class).body
        return [ast.unparse(field.target) for field in body if isinstance(field, ast.AnnAssign)]

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

    federation: 'Group[FederationSettings]' = Group('fdrl_ros.deployment.settings')
    rounds: 'Group[RoundSettings]' = Group('fdrl_ros.federation.settings')
    learner: 'Group[LearnerSettings]' = Group('fdrl_ros.learner.settings')
    privacy: 'Group[PrivacySettings]' = Group('fdrl_ros.learner.settings')
    collection: 'Group[CollectionSettings]' = Group('fdrl_ros.learner.records.collection')
    pretraining: 'Group[PretrainingSettings]' = Group('fdrl_ros.learner.pretraining')
    encryption: 'Group[EncryptionSettings]' = Group('fdrl_ros.crypto.he.schemes')
    validation: 'Group[ValidationSettings]' = Group('fdrl_ros.deployment.settings')
    selector: 'Group[SelectorSettings]' = Group('fdrl_ros.selector.settings')
    shield: 'Group[ShieldSettings]' = Group('fdrl_ros.shield.settings')
    value: 'Group[ValueSettings]' = Group('fdrl_ros.selector.value.fitting')
    safety: 'Group[SafetySettings]' = Group('fdrl_ros.selector.candidates.safety_limits')
    evaluation: 'Group[EvaluationSettings]' = Group('fdrl_ros.deployment.settings')
    world: 'Group[WorldSettings]' = Group('fdrl_ros.surgery.settings')

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
        """
        chosen = self.federation
        _ = chosen.names
        for group in _GROUPS.values():
            self.group(group)
        try:
            self.shape.shared(chosen.personal_layers)
        except PolicyError as error:
            names = ', '.join(each.name for each in self.shape.layers())
            expected = f'some of the layers {names}, but not all ({error})'
            raise SettingError('federation.personal', chosen.personal, expected) from error
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

        All names are checked now, out of the sources, so that no other party's area is imported.

        :raises SettingError: if it cannot be read, is no YAML, or has an unknown group, setting or
            procedure.
        """
        try:
            values = yaml.load(path.read_text('utf-8'), _LOADER) or {}
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
        procedures = str(plan._values.get('federation', {}).get('procedures', 'all'))
        words = _procedure_words()
        if any(word.strip() not in words for word in procedures.split(',') if word.strip()):
            expected = f'names out of {", ".join(words)}'
            raise SettingError('federation.procedures', procedures, expected)
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
_LOADER = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)


@cache
def _defined(module: str, name: str) -> Any:
    """Return what a module of this package defines under a name, as its source has it."""
    path = Path(__file__).parents[1].joinpath(*module.split('.')[1:]).with_suffix('.py')
    for node in ast.parse(path.read_text('utf-8')).body:
        targets = getattr(node, 'targets', None) or [getattr(node, 'target', node)]
        if name in (getattr(targets[0], 'id', None), getattr(targets[0], 'name', None)):
            return node
    raise AttributeError(f'{module} has no {name}')


def _procedure_words() -> tuple[str, ...]:
    """Return what federation.procedures may name: all, specialities, and procedures."""
    tables = (_defined('fdrl_ros.surgery.tasks.procedures', name) for name in _PROCEDURES)
    return 'all', *(ast.literal_eval(key) for table in tables for key in table.value.keys)


_PROCEDURES = ('SPECIALITIES', 'TRAITS')
