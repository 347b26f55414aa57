# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""How far the training by a method has come, in one file that is whole or not there."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
import zipfile
import zlib

from fdrl_ros.errors import os_errors_as, StoreError
from fdrl_ros.runtime.durable import replacing
import numpy as np
from numpy.typing import NDArray

CHECKPOINT_FORMAT: Final = 1
_MODEL: Final = 'model_'


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """
    All that later rounds depend on, beside the settings and the clips.

    :param rounds: finished ones; of sites that train alone, the sum over the sites.
    :param weights: models by name, each of shape (n_parameters,), float32.
    :param state: of the server's step; empty at first.
    :param sent: bytes of the encrypted updates until now.
    :param seconds: of training until now, in sites and at the server.
    """

    rounds: int
    weights: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    state: bytes = b''
    sent: int = 0
    seconds: tuple[float, float] = (0.0, 0.0)

    def write(self, path: Path) -> None:
        """
        Put it in the place of an older one.

        :raises StoreError: if it cannot be written.
        """
        models = {_MODEL + name: each for name, each in self.weights.items()}
        with os_errors_as(StoreError, f'cannot write {path}'):
            with replacing(path) as file:
                np.savez(
                    file,
                    allow_pickle=False,
                    format=CHECKPOINT_FORMAT,
                    rounds=self.rounds,
                    sent=self.sent,
                    seconds=self.seconds,
                    state=np.frombuffer(self.state, np.uint8),
                    **models,
                )

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """
        Read what :meth:`write` wrote; None if there is no file.

        :raises StoreError: if it is damaged, or of another version.
        """
        try:
            with np.load(path, allow_pickle=False) as found:
                if int(found['format']) != CHECKPOINT_FORMAT:
                    raise ValueError(f'format {found["format"]}')
                sites, server = map(float, found['seconds'])
                return cls(
                    int(found['rounds']),
                    {
                        name.removeprefix(_MODEL): found[name]
                        for name in found
                        if name.startswith(_MODEL)
                    },
                    found['state'].tobytes(),
                    int(found['sent']),
                    (sites, server),
                )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, EOFError) as error:
            raise _damaged(path, error) from error
        except (zipfile.BadZipFile, zlib.error) as error:
            raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> StoreError:
    return StoreError(f'{path} cannot be read: {error}; remove it to train from the start')
