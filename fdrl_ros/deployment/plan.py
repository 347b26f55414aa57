# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A plan: every setting of one run of the system, in named groups.

Command-line flags, ROS parameters and YAML files all come from these groups.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from fdrl_ros.crypto.he.quantisation import EncryptionSettings
from fdrl_ros.errors import PolicyError, SettingError
from fdrl_ros.federation.settings import RoundSettings
from fdrl_ros.learner.pretraining import network_shape, PretrainingSettings
from fdrl_ros.learner.records.collection import CollectionSettings
from fdrl_ros.learner.settings import LearnerSettings, PrivacySettings
from fdrl_ros.policy import NetworkShape
from fdrl_ros.selector import SafetySettings, SelectorSettings, ShieldSettings, ValueSettings
from fdrl_ros.settings import named_among, setting, Settings
from fdrl_ros.surgery.patient.cohort import Cohort, public_cohort
from fdrl_ros.surgery.settings import WorldSettings
from fdrl_ros.surgery.tasks.procedures import procedures_named
import yaml


@dataclass(frozen=True)
class FederationSettings(Settings):
    """Which hospitals there are, and where their randomness comes from."""

    hospitals: int = setting(3, 'hospitals', minimum=3, maximum=1000)
    heterogeneity: float = setting(
        0.8, 'H: how far the hospitals are apart', minimum=0.0, maximum=1.0
    )
    procedures: str = setting(
        'palpation, retraction',
        'what is done: names of procedures or of specialities, separated by commas, or all',
    )
    seed: int = setting(1, 'seed of patients, starting weights and surgeons', minimum=0)
    noise: str = setting(
        'secure',
        'source of noise and sampling; seeded is for tests and reproductions, NOT PRIVATE',
        choices=('secure', 'seeded'),
    )
    personal: str = setting(
        '',
        'layers that each hospital keeps to itself: names such as value, advantage or shared.0, '
        'separated by commas',
    )
    release: bool = setting(
        False,
        'whether hospitals publish their own policies too: masks then hide nothing of those, '
        'differential privacy alone protects them',
    )

    def __post_init__(self) -> None:
        """Refuse procedures that there are not."""
        super().__post_init__()
        procedures_named(self.procedures)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the procedures, in their order."""
        return procedures_named(self.procedures)

    @property
    def personal_layers(self) -> tuple[str, ...]:
        """Names of the layers that stay in each hospital."""
        return tuple(name.strip() for name in self.personal.split(',') if name.strip())


@dataclass(frozen=True)
class ValidationSettings(Settings):
    """How the key authority tests a new policy before it releases it."""

    patients: int = setting(
        40, 'public patients that a new policy is tried on', unit='patients', minimum=1
    )
    margin: float = setting(
        0.2, 'fall of the success rate that is let pass', minimum=0.0, maximum=1.0
    )


@dataclass(frozen=True)
class EvaluationSettings(Settings):
    """How policies are compared at the end."""

    patients: int = setting(
        240, 'unseen patients, in equal shares of all hospitals', unit='patients', minimum=1
    )
    round_patients: int = setting(
        60, 'unseen patients for the policy of each round', unit='patients', minimum=1
    )
    state_patients: int = setting(
        60, 'further patients of the frozen set of states', unit='patients', minimum=1
    )
    states_per_patient: int = setting(
        20, 'states of each of them in the set', unit='states', minimum=1
    )
    workers: int = setting(2, 'processes that evaluate side by side', minimum=1, maximum=64)


@dataclass(frozen=True)
class Plan:
    """All groups of settings of a run."""

    federation: FederationSettings = field(default_factory=FederationSettings)
    rounds: RoundSettings = field(default_factory=RoundSettings)
    learner: LearnerSettings = field(default_factory=LearnerSettings)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    collection: CollectionSettings = field(default_factory=CollectionSettings)
    pretraining: PretrainingSettings = field(default_factory=PretrainingSettings)
    encryption: EncryptionSettings = field(default_factory=EncryptionSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)
    selector: SelectorSettings = field(default_factory=SelectorSettings)
    shield: ShieldSettings = field(default_factory=ShieldSettings)
    value: ValueSettings = field(default_factory=ValueSettings)
    safety: SafetySettings = field(default_factory=SafetySettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    world: WorldSettings = field(default_factory=WorldSettings)

    def __post_init__(self) -> None:
        """Refuse personal layers that the network does not have, or that are all of it."""
        chosen = self.federation
        try:
            self.shape.shared(chosen.personal_layers)
        except PolicyError as error:
            names = ', '.join(each.name for each in self.shape.layers())
            expected = f'some of the layers {names}, but not all ({error})'
            raise SettingError('federation.personal', chosen.personal, expected) from error

    @classmethod
    def groups(cls) -> dict[str, type[Settings]]:
        """Return the groups by name, in the order in which people should read them."""
        return {each.name: type(getattr(_DEFAULT, each.name)) for each in fields(cls)}

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """
        Make a plan from nested names and values; what is not named keeps its default.

        :raises SettingError: on an unknown group or name, or a bad value.
        """
        return cls().changed(values)

    def changed(self, values: Mapping[str, Any]) -> Self:
        """
        Return this plan with some settings changed.

        :param values: group to name to value.
        :raises SettingError: on an unknown group or name, or a bad value.
        """
        groups = self.groups()
        made: dict[str, Settings] = {each: getattr(self, each) for each in groups}
        for group, named in values.items():
            if group not in groups:
                raise SettingError(group, named, named_among(group, 'groups', groups))
            if not isinstance(named, Mapping):
                raise SettingError(group, named, 'settings as names and values')
            try:
                made[group] = groups[group].from_mapping({**asdict(made[group]), **named})
            except SettingError as error:
                raise error.of(group) from None
        return type(self)(**made)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Self:
        """
        Read a plan from a YAML file.

        :raises SettingError: if it cannot be read, is no YAML, or names what there is not.
        """
        try:
            values = yaml.safe_load(path.read_text('utf-8')) or {}
        except (OSError, ValueError, yaml.YAMLError) as error:
            reason = getattr(error, 'strerror', None) or str(error).splitlines()[0]
            raise SettingError('plan', str(path), f'a readable YAML file: {reason}') from error
        if not isinstance(values, Mapping):
            raise SettingError('plan', str(path), 'groups of settings')
        return cls.from_mapping(values)

    def to_mapping(self) -> dict[str, dict[str, Any]]:
        """Return all settings as nested names and values."""
        return {name: asdict(getattr(self, name)) for name in self.groups()}

    def to_yaml(self) -> str:
        """Return what :meth:`load` reads."""
        text: str = yaml.safe_dump(self.to_mapping(), sort_keys=False)
        return text

    @property
    def shape(self) -> NetworkShape:
        """The network that the policies of this plan are of."""
        return network_shape(self.learner)

    @property
    def hospitals(self) -> tuple[str, ...]:
        """Names of the hospitals."""
        return tuple(each.name for each in self.cohorts)

    @property
    def cohorts(self) -> tuple[Cohort, ...]:
        """Patients of each hospital."""
        chosen = self.federation
        return tuple(
            Cohort(
                each,
                chosen.hospitals,
                chosen.heterogeneity,
                chosen.seed,
                procedures=chosen.names,
            )
            for each in range(chosen.hospitals)
        )

    def public_cohort(self, heterogeneity: float = 0.0) -> Cohort:
        """Return made-up patients of the same procedures; no hospital shares one."""
        chosen = self.federation
        return public_cohort(chosen.seed, heterogeneity, chosen.names)


_DEFAULT = Plan()
