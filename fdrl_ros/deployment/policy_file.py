# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Files of policies: weights with the shape of their network, as npz."""

import os
from pathlib import Path
from zipfile import BadZipFile

from fdrl_ros.errors import os_errors_as, PolicyError, StoreError
from fdrl_ros.policy import decode_weights, encode_weights, NetworkShape
import numpy as np
from numpy.typing import NDArray


def save_policy(path: Path, weights: NDArray[np.float32], shape: NetworkShape) -> None:
    """
    Write weights and the shape of their network atomically, as npz.

    :raises StoreError: if the file cannot be written.
    """
    part = path.with_name(path.name + '.part')
    with os_errors_as(StoreError, f'cannot write the policy {path}'):
        with part.open('wb') as file:
            np.savez(
                file,
                weights=np.frombuffer(encode_weights(weights), '<f4'),
                states=np.int64(shape.states),
                actions=np.int64(shape.actions),
                hidden=np.array(shape.hidden, dtype=np.int64),
            )
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)


def load_policy(path: Path) -> tuple[NDArray[np.float32], NetworkShape]:
    """
    Read what :func:`save_policy` wrote.

    :returns: weights, shape (n_parameters,), float32, and the network.
    :raises PolicyError: if the file is missing, damaged, or contradicts itself.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            shape = NetworkShape(
                int(file['states']), int(file['actions']), tuple(map(int, file['hidden']))
            )
            data = file['weights'].astype('<f4').tobytes()
    except OSError as error:
        raise PolicyError(f'cannot read the policy {path}: {error.strerror or error}') from error
    except (KeyError, ValueError, TypeError, EOFError, BadZipFile) as error:
        raise PolicyError(
            f'{path} is no policy file, or damaged: expected one such as policies/global_6.npz '
            'of a run'
        ) from error
    return decode_weights(data, shape.n_parameters), shape
