# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Which tensors of a segmenter stay in a hospital: FedST, its ablations and the baselines."""

import re

from fdrl_ros.errors import SettingError
from fdrl_ros.segmentation.network.segmenter import Segmenter

_ATTENTION = r'encoder\..*\.attn\.'

PATTERNS = {
    'queries': _ATTENTION + r'q\.',
    'keys': _ATTENTION + r'k\.',
    'values': _ATTENTION + r'v\.',
    'norm': r'encoder\..*norm\d?\.',
    'channels': r'channels\.',
    'decoder_queries': r'temporal\.q\.',
    'decoder': r'(fusion|head)\.',
    'head': r'head\.',
    'all': '',
}
"""What the names of a group's tensors begin with."""


def personal_tensors(segmenter: Segmenter, which: str) -> tuple[str, ...]:
    """
    Name the tensors that a hospital keeps.

    FedDP keeps `queries`, FedRep `decoder`, FedAvg `none`; FedST keeps `queries`, or
    `queries+channels` if the paper's 12.69 of 19.71 MB are to come out. Tables V and VI try
    the other groups.

    :param which: groups of PATTERNS with + between them, or `none`.
    :returns: in the order of the segmenter's parameters.
    :raises SettingError: on another group.
    """
    groups = [] if which == 'none' else which.split('+')
    for group in groups:
        if group not in PATTERNS:
            known = ', '.join(('none', *PATTERNS))
            raise SettingError('personal', which, f'some of {known}, with + between them')
    return tuple(
        name
        for name, _ in segmenter.named_parameters()
        if any(re.match(PATTERNS[group], name) for group in groups)
    )


def shared_fraction(segmenter: Segmenter, which: str) -> float:
    """Return the part of all weights that a hospital uploads if it keeps some."""
    kept = {*personal_tensors(segmenter, which)}
    sizes = {name: tensor.numel() for name, tensor in segmenter.named_parameters()}
    return sum(size for name, size in sizes.items() if name not in kept) / sum(sizes.values())
