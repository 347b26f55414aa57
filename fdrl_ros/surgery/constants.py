# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The numbers of the world with their units and sources, read once from config/world.yaml."""

from functools import cache

from fdrl_ros.errors import ResourceError
from fdrl_ros.resources import parse_yaml, resource


@cache
def constants() -> dict[str, float]:
    """
    Read every constant as ``group.name`` -> value in SI units (pressures of blood in mmHg).

    :raises ResourceError: if the file is missing, or a constant lacks value, unit or source.
    """
    path = resource('config/world.yaml')
    document: dict[str, dict[str, dict[str, float | str]]] = parse_yaml(path.read_text('utf-8'))
    found: dict[str, float] = {}
    for group, entries in document.items():
        for name, entry in entries.items():
            if not {'value', 'unit', 'source'} <= entry.keys():
                raise ResourceError(f'{path}: {group}.{name} needs a value, a unit and a source')
            found[f'{group}.{name}'] = float(entry['value'])
    return found


@cache
def constant(name: str) -> float:
    """
    Return one constant, such as ``tissue.poisson_ratio``.

    :raises ResourceError: if config/world.yaml does not define it.
    """
    try:
        return constants()[name]
    except KeyError:
        raise ResourceError(f'config/world.yaml does not define {name}') from None


class Group:
    """
    The constants of a group as attributes, each a float.

    :param name: such as `tissue`.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> float:
        """Return a constant that was not asked for before; no constant begins with `_`."""
        if name.startswith('_'):
            raise AttributeError(name)
        value = constant(f'{self._name}.{name}')
        setattr(self, name, value)
        return value
