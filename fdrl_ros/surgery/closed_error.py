# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A closed env, arm or endoscope refuses everything with one error."""

from fdrl_ros.errors import StateError


def closed_error(what: str) -> StateError:
    """Return the error of a call on something closed, such as `the env is closed`."""
    return StateError(f'the {what} is closed: make another')


class ClosedClient:
    """
    Stand in for the number of a PyBullet client that was given back.

    PyBullet reuses the numbers of its clients, so an old number may sooner or later be another
    client's. A call that passes this one to PyBullet raises instead, at no cost to open clients.

    :param what: is closed.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __index__(self) -> int:
        """
        Refuse to be a number.

        :raises StateError: always.
        """
        raise closed_error(self._what)
