# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What a recording and this code must agree in: state, actions and the numbers of the world."""

import hashlib
from typing import Any

from fdrl_ros.errors import RecordsError
from fdrl_ros.surgery.constants import constants
from fdrl_ros.surgery.data.json_dataclasses import to_plain
from fdrl_ros.surgery.gym.actions import ACTIONS
from fdrl_ros.surgery.gym.state import STATE_FIELDS

FORMAT = 'fdrl_ros dataset 1'


def world_digest() -> str:
    """Return the SHA-256 over the names and values of config/world.yaml, hexadecimal."""
    sha = hashlib.sha256()
    for name, value in sorted(constants().items()):
        sha.update(f'{name}={value!r}\n'.encode())
    return sha.hexdigest()


def identity() -> dict[str, Any]:
    """Return what must agree between a recording and this code."""
    return {
        'format': FORMAT,
        'state': [[each.name, each.unit, each.scale] for each in STATE_FIELDS],
        'actions': [to_plain(each) for each in ACTIONS],
        'constants': world_digest(),
    }


def check_identity(head: Any) -> None:
    """
    Refuse what was recorded by another version or in another world.

    :param head: a document that has what :func:`identity` returns, and more.
    :raises RecordsError: saying what differs.
    """
    if not isinstance(head, dict) or head.get('format') != FORMAT:
        came = head.get('format') if isinstance(head, dict) else head
        raise RecordsError(f'expected the format {FORMAT!r}, came {came!r}')
    for name, wanted in identity().items():
        came = head.get(name)
        if came != wanted:
            if isinstance(wanted, list) and isinstance(came, list) and len(came) == len(wanted):
                came, wanted = next((a, b) for a, b in zip(came, wanted, strict=True) if a != b)
            elif isinstance(wanted, list):
                came, wanted = 'of another number', f'{len(wanted)}'
            raise RecordsError(
                f'recorded in another world: its {name} are {came!r}, here {wanted!r}'
            )
