# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is closed stays closed: one error for whatever is asked of it afterwards."""

from fdrl_ros.errors import StateError


def closed(what: str) -> StateError:
    """Return the error that a closed thing answers with, such as `the env is closed`."""
    return StateError(f'the {what} is closed: make another')


class Closed:
    """
    What the number of a PyBullet client becomes once it is given back.

    PyBullet numbers its clients anew, so an old number is sooner or later somebody else's.
    Whoever hands this one to PyBullet hears that it is closed; who is open pays nothing.

    :param what: is closed.
    """

    def __init__(self, what: str) -> None:
        self._what = what

    def __index__(self) -> int:
        """
        Refuse to be a number.

        :raises StateError: always.
        """
        raise closed(self._what)
