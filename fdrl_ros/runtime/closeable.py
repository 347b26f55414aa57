# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Objects that are closed at the end of a `with` block."""

from abc import ABC, abstractmethod
from typing import Self


class Closeable(ABC):
    """An object with `close`, which a `with` block calls."""

    @abstractmethod
    def close(self) -> None:
        """Release what it holds."""

    def __enter__(self) -> Self:
        """Return the object itself, which is closed at the end of the block."""
        return self

    def __exit__(self, *unused: object) -> None:
        """Close it, whatever happened."""
        self.close()
