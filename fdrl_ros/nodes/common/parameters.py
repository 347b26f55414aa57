# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Settings as ROS parameters: declared with description and range, read back as they were."""

from collections.abc import Collection
import sys
from typing import TypeVar

from fdrl_ros.errors import SettingError
from fdrl_ros.settings import Setting, Settings
from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.lifecycle import LifecycleNode
from rclpy.parameter import Parameter

S = TypeVar('S', bound=Settings)

_INT64 = 2**63 - 1
# Of rclpy itself; everything else that is given and not declared is a mistake.
_OF_ROS = ('use_sim_time', 'start_type_description_service', 'qos_overrides')


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
        given = node.get_parameters_by_prefix('')
        self._given = {
            name: parameter.value
            for name, parameter in given.items()
            if name.split('.')[0] not in _OF_ROS
        }

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

    def seal(self) -> None:
        """
        Refuse what was given and not declared, and watch changes from now on.

        :raises SettingError: naming the first unknown parameter.
        """
        for name, value in self._given.items():
            known = ', '.join(self._settings)
            raise SettingError(name, value, f'one of the parameters {known}')
        self._node.add_on_set_parameters_callback(self._judge)

    def read(self, group: str, kind: type[S]) -> S:
        """
        Return a declared group as it is now.

        :raises SettingError: if its values contradict each other.
        """
        values = {
            each.name: self._node.get_parameter(_full_name(group, each.name)).value
            for each in kind.describe()
        }
        try:
            return kind.from_mapping(values)
        except SettingError as error:
            raise error.of(group) from None

    def _judge(self, parameters: list[Parameter]) -> SetParametersResult:
        """Refuse a change that comes too late or cannot be, and say why."""
        for parameter in parameters:
            known = self._settings.get(parameter.name)
            if known is None:
                continue
            if not self._node.changeable:
                reason = f'{parameter.name} is read when the node is configured: clean it up first'
                return SetParametersResult(successful=False, reason=reason)
            try:
                known.check(parameter.value)
            except SettingError as error:
                group = parameter.name.rpartition('.')[0]
                return SetParametersResult(successful=False, reason=str(error.of(group)))
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
