# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Load the published weights of PVT v2 into an encoder, by the names of timm or of its authors.

Nothing is downloaded here. Both publish b0 and b2, trained on ImageNet, as `.pth` or
`.safetensors` files.
"""

from collections.abc import Mapping
import json
import math
from pathlib import Path
import re

from fdrl_ros.errors import os_errors_as, PolicyError
from fdrl_ros.segmentation.network.pvt import PyramidVisionTransformer
import torch

AUTHORS_NAMES = (
    (r'patch_embed1\.', 'patch_embed.'),
    (r'patch_embed(\d)\.', r'stages.\1.downsample.'),
    (r'block(\d)\.', r'stages.\1.blocks.'),
    (r'norm(\d)\.', r'stages.\1.norm.'),
)
"""How names of the authors' files begin, and the same in timm; they count stages from 1."""

TYPES = {'F16': torch.float16, 'BF16': torch.bfloat16, 'F32': torch.float32}
"""Types of numbers in a `.safetensors` file, as it names them."""

LONGEST_HEADER = 100_000_000
"""Bytes of the header of a `.safetensors` file, at most."""

NAMED = 6
"""Tensors that an error names, at most."""


def load_weights(encoder: PyramidVisionTransformer, file: Path) -> None:
    """
    Give an encoder the weights in a file; those of the classification head are left out.

    The encoder stays as it was if they do not fit.

    :param file: `.safetensors`, or else what PyTorch saves, of which no code is run.
    :raises PolicyError: if the file cannot be read, or holds the tensors of another architecture.
    """
    with os_errors_as(PolicyError, f'cannot read {file}'):
        found = _read_safetensors(file) if file.suffix == '.safetensors' else _read_torch(file)
    given = encoder_tensors(found)
    wanted = encoder.state_dict()
    missing = [name for name in wanted if name not in given]
    unexpected = [name for name in given if name not in wanted]
    mismatched = [
        f'{name} {tuple(given[name].shape)} in place of {tuple(tensor.shape)}'
        for name, tensor in wanted.items()
        if name in given and given[name].shape != tensor.shape
    ]
    wrong = [
        f'{words} {len(names)} ({", ".join(names[:NAMED])}{", ..." if names[NAMED:] else ""})'
        for words, names in (
            ('missing', missing),
            ('unexpected', unexpected),
            ('of another shape', mismatched),
        )
        if names
    ]
    if wrong:
        raise PolicyError(f'{file}: tensors of another encoder: {"; ".join(wrong)}')
    if not all(bool(tensor.isfinite().all()) for tensor in given.values()):
        raise PolicyError(f'{file}: weights that are not finite')
    encoder.load_state_dict(given)


def encoder_tensors(found: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """
    Return published tensors under the names that an encoder of ours has.

    A tensor `kv` is cut into `k` and `v`, which lie one after the other in it.
    """
    made = {}
    for name, tensor in found.items():
        if name.startswith('head.'):
            continue
        name = name.removeprefix('module.').removeprefix('encoder.')
        for pattern, begin in AUTHORS_NAMES:
            if match := re.match(pattern, name):
                stage = int(match[1]) - 1 if match.groups() else 0
                name = begin.replace(r'\1', str(stage)) + name[match.end() :]
                break
        name = name.replace('.dwconv.dwconv.', '.dwconv.')
        if '.attn.kv.' in name and len(tensor) % 2 == 0:
            for part, half in zip('kv', tensor.chunk(2), strict=True):
                made[name.replace('.kv.', f'.{part}.')] = half
        else:
            made[name] = tensor
    return made


def _read_torch(file: Path) -> Mapping[str, torch.Tensor]:
    """
    Return the tensors of a file that PyTorch saved, by name.

    :raises PolicyError: if it holds anything else.
    """
    try:
        found = torch.load(file, 'cpu', weights_only=True)
    except OSError:
        raise
    except Exception as error:  # whatever a file makes PyTorch's reader raise
        raise PolicyError(f'{file}: not a file of tensors alone, or damaged') from error
    for key in ('state_dict', 'model'):
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor)
        for name, tensor in found.items()
    ):
        raise PolicyError(f'{file}: expected tensors by name')
    return found


def _read_safetensors(file: Path) -> Mapping[str, torch.Tensor]:
    """
    Return the tensors of a `.safetensors` file, by name.

    It is the length of a header in 8 bytes, the header in JSON, and the numbers.

    :raises PolicyError: if it is damaged, or has numbers of another type than TYPES.
    """
    data = bytearray(file.read_bytes())
    length = int.from_bytes(data[:8], 'little')
    if len(data) < 8 or length > min(len(data) - 8, LONGEST_HEADER):
        raise PolicyError(f'{file}: not a .safetensors file')
    made, numbers = {}, memoryview(data)[8 + length :]
    try:
        header = json.loads(data[8 : 8 + length])
        header.pop('__metadata__', None)
        for name, each in header.items():
            first, last = each['data_offsets']
            kind, shape = TYPES[each['dtype']], each['shape']
            size = kind.itemsize * math.prod(shape)
            if not 0 <= first <= last <= len(numbers) or last - first != size:
                raise ValueError(f'{name} {shape}: bytes {first} to {last} of {len(numbers)}')
            flat = torch.frombuffer(numbers[first:last], dtype=kind) if size else torch.empty(0)
            made[name] = flat.reshape(shape)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise PolicyError(f'{file}: a damaged .safetensors file: {error!r}') from error
    return made
