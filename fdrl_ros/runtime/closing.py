# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""What is closed at the end of a `with` block."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Holds something until it is closed."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it."""

    def __enter__(self) -> Self:
        """Return the thing itself, to be closed at the end of the block."""
        return self

    def __exit__(self, *unused: object) -> None:
        """Close it, whatever happened."""
        self.close()
