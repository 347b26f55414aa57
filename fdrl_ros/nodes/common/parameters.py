# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Settings as ROS parameters: declared with description and range, read back as they were."""

from collections.abc import Callable, Collection
from copy import copy
from difflib import get_close_matches
import sys
from typing import Any, TypeVar

from fdrl_ros.deployment.parameter_files import given_by_wildcards
from fdrl_ros.errors import FdrlError, SettingError
from fdrl_ros.nodes.common import qos
from fdrl_ros.settings import named_among, Setting, Settings
from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.lifecycle import LifecycleNode
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile
from rclpy.qos_overriding_options import QoSOverridingOptions

S = TypeVar('S', bound=Settings)

_INT64 = 2**63 - 1
# Of rclpy itself.
_OF_ROS = ('use_sim_time', 'start_type_description_service', 'qos_overrides')
_NEAR = 0.8  # how like a name of ours a typing error is
_POLICIES = {'history': ('keep_last', 'keep_all'), 'reliability': ('reliable', 'best_effort')}


class NodeParameters:
    """
    The parameters of one node, grouped as ``privacy.clip_norm``.

    They may be changed while the node is unconfigured; it reads them when it is configured. The
    node must have been made with ``automatically_declare_parameters_from_overrides``, so that
    what was given by mistake is seen.
    """

    def __init__(self, node: LifecycleNode) -> None:
        self._node = node
        self._settings: dict[str, Setting] = {}
        self._proposed: dict[str, Any] = {}
        given = node.get_parameters_by_prefix('')
        self._given = {
            name: parameter.value
            for name, parameter in given.items()
            if name.split('.')[0] not in _OF_ROS
        }
        clock = f'qos_overrides.{node.resolve_topic_name("/clock")}.'  # which rclpy makes
        self._overrides = [
            name
            for name in given
            if name.startswith('qos_overrides.') and not name.startswith(clock)
        ]
        self._topics: set[str] = set()

    def declare(
        self,
        group: str,
        kind: type[S],
        defaults: Settings | None = None,
        fixed: Collection[str] = (),
    ) -> S:
        """
        Declare a group of settings.

        :param group: prefix of the names; empty for none.
        :param defaults: to take instead of those of `kind`.
        :param fixed: names in `kind` that cannot be changed while the node lives.
        :returns: the values as they are now.
        :raises SettingError: if a given value cannot be.
        """
        for each in kind.describe():
            name = _full_name(group, each.name)
            default = getattr(defaults, each.name) if defaults else each.default
            value = self._given.pop(name, default)
            try:
                value = each.check(value)
            except SettingError as error:
                raise error.of(group) from None
            if self._node.has_parameter(name):
                self._node.undeclare_parameter(name)
            descriptor = describe(each)
            descriptor.read_only = each.name in fixed
            self._node.declare_parameter(name, value, descriptor, ignore_override=True)
            self._settings[name] = each
        return self.read(group, kind)

    def seal(self, check: Callable[[], None]) -> None:
        """
        Refuse what was given to this node and not declared, and judge changes from now on.

        What a section for many nodes gives may be for others, and is ignored.

        :param check: refuses values that contradict each other; it sees them by :meth:`read`.
        :raises SettingError: naming the first unknown parameter.
        """
        node, known = self._node, list(self._settings)
        others, ignored = frozenset[str](), []
        if self._given:
            others = given_by_wildcards(sys.argv, node.get_fully_qualified_name())
        for name, value in self._given.items():
            if name not in others:
                raise SettingError(name, value, named_among(name, 'parameters', known))
            node.undeclare_parameter(name)
            if near := get_close_matches(name, known, 1, _NEAR):
                words = f'no parameter {name} here, ignored: did you mean {near[0]}?'
                node.get_logger().warning(words)
            else:
                ignored.append(name)
        if ignored:
            names = ', '.join(sorted(ignored))
            node.get_logger().info(f'parameters for other nodes are ignored: {names}')
        self._check = check
        node.add_on_set_parameters_callback(self._judge)

    def read(self, group: str, kind: type[S]) -> S:
        """
        Return a declared group as it is now.

        :raises SettingError: if its values contradict each other.
        """
        values = {each.name: self._value(_full_name(group, each.name)) for each in kind.describe()}
        try:
            return kind.from_mapping(values)
        except SettingError as error:
            raise error.of(group) from None

    def overriding(
        self, side: str, topic: str, profile: QoSProfile
    ) -> tuple[QoSProfile, QoSOverridingOptions]:
        """
        Say how parameters `qos_overrides` may change the QoS of a topic.

        :param side: `publisher` or `subscription`.
        :param topic: its name as the node makes it.
        :returns: a copy, which rclpy changes, and what it may change in it.
        :raises SettingError: if a parameter would change what must stay, or to what cannot be.
        """
        kinds = qos.overridable(profile)
        allowed = [each.name.lower() for each in kinds]
        group = f'qos_overrides.{self._node.resolve_topic_name(topic)}.{side}'
        self._topics.add(group)
        for name, parameter in self._node.get_parameters_by_prefix(group).items():
            value = parameter.value
            if name not in allowed:
                expected = f'none but {", ".join(allowed)}' if allowed else 'none: its QoS stays'
                raise SettingError(f'{group}.{name}', value, expected)
            if words := _POLICIES.get(name):
                if value not in words:
                    raise SettingError(f'{group}.{name}', value, f'one of {", ".join(words)}')
            elif type(value) is not int or value < 1:
                raise SettingError(f'{group}.{name}', value, 'int, at least 1')
        return copy(profile), QoSOverridingOptions(kinds)

    def warn_of_idle_overrides(self) -> None:
        """Warn of parameters `qos_overrides` that are of no topic which the node has made."""
        node = self._node
        idle = [each for each in self._overrides if each.rpartition('.')[0] not in self._topics]
        if idle:
            idle = sorted({*idle} - given_by_wildcards(sys.argv, node.get_fully_qualified_name()))
        for name in idle:
            near = get_close_matches(name.rpartition('.')[0], self._topics, 1)
            hint = f': did you mean {near[0]}?' if near else ''
            node.get_logger().warning(f'{name} is of no topic here, and ignored{hint}')

    def _value(self, name: str) -> Any:
        """Return the value of a parameter, or the one that is proposed while that is judged."""
        if name in self._proposed:
            return self._proposed[name]
        return self._node.get_parameter(name).value

    def _judge(self, parameters: list[Parameter]) -> SetParametersResult:
        """Refuse changes that come too late or cannot be, alone or together, and say why."""
        proposed = {
            each.name: each.value
            for each in parameters
            if each.name in self._settings or each.name == 'use_sim_time'
        }
        if not proposed:
            return SetParametersResult(successful=True)
        if not self._node.changeable:
            name = next(iter(proposed))
            reason = f'{name} is read when the node is configured: clean it up first'
            return SetParametersResult(successful=False, reason=reason)
        self._proposed = proposed
        try:
            self._check()
        except FdrlError as error:
            return SetParametersResult(successful=False, reason=str(error))
        finally:
            self._proposed = {}
        return SetParametersResult(successful=True)


def describe(setting: Setting) -> ParameterDescriptor:
    """Turn a setting into what `ros2 param describe` shows."""
    text = setting.description + (f' [{setting.unit}]' if setting.unit else '')
    descriptor = ParameterDescriptor(description=text)
    if setting.choices:
        descriptor.additional_constraints = 'one of ' + ', '.join(map(str, setting.choices))
    if setting.minimum is None and setting.maximum is None:
        return descriptor
    if setting.type is int:
        low, high = _limits(setting, _INT64)
        whole = IntegerRange(from_value=int(low), to_value=int(high), step=0)
        descriptor.integer_range = [whole]
    elif setting.type is float:
        low, high = _limits(setting, sys.float_info.max)
        span = FloatingPointRange(from_value=float(low), to_value=float(high), step=0.0)
        descriptor.floating_point_range = [span]
    return descriptor


def _limits(setting: Setting, largest: float) -> tuple[float, float]:
    """Return the range of a setting; ROS knows none that is open at an end."""
    low, high = setting.minimum, setting.maximum
    return -largest if low is None else low, largest if high is None else high


def _full_name(group: str, name: str) -> str:
    return f'{group}.{name}' if group else name
