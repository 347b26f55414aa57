# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""The methods that the paper compares, as what they share, what they add, and who trains where."""

from dataclasses import dataclass
from typing import Final, Literal

Where = Literal['sites', 'alone', 'pooled']


@dataclass(frozen=True)
class Method:
    """
    One way to train.

    :param title: as tables name it.
    :param where: `sites`: in a federation; `alone`: each site for itself; `pooled`: on all clips
        together.
    :param personal: tensors that stay in each hospital, as `personal_tensors` names their kinds.
    :param temporal: whether the temporal module is there (TS).
    :param prompt: what tells the site to the channel selection: `text`, `one-hot`, `gaussian`,
        `random`, or nothing.
    :param channels: whether the channel selection network is there (CS); without it no prompt
        enters.
    :param serq: whether the server trains on synthetic frames.
    """

    title: str
    where: Where = 'sites'
    personal: str = 'none'
    temporal: bool = False
    prompt: str = ''
    channels: bool = False
    serq: bool = False


def _fedst(title: str, **changes: object) -> Method:
    """Return FedST with changes."""
    usual: dict[str, object] = {
        'personal': 'queries',
        'temporal': True,
        'prompt': 'text',
        'channels': True,
        'serq': True,
    }
    return Method(title, **{**usual, **changes})  # type: ignore[arg-type]


MAIN: Final = {
    'local': Method('Local', 'alone'),
    'pooled': Method('Centralised', 'pooled'),
    'fedavg': Method('FedAvg'),
    'fedrep': Method('FedRep', personal='decoder'),
    'feddp': Method('FedDP', personal='queries'),
    'fedst': _fedst('FedST'),
}
"""Tables II, III and IX."""

COMPONENTS: Final = {
    'feddp': MAIN['feddp'],
    'ts': _fedst('TS', prompt='', channels=False, serq=False),
    'ts_cs': _fedst('TS, prompt, CS', serq=False),
    'serq': _fedst('SERQ', temporal=False, prompt='', channels=False),
    'ts_serq': _fedst('TS, SERQ', prompt='', channels=False),
    'fedst': MAIN['fedst'],
}
"""Table IV, without its third row: the paper does not say where a prompt enters without CS."""

PLACES: Final = {
    'nothing': _fedst('nothing', personal='none'),
    'everything': _fedst('everything', where='alone', serq=False),
    'decoder_queries': _fedst("the temporal module's queries", personal='decoder_queries'),
    'both_queries': _fedst("both modules' queries", personal='queries+decoder_queries'),
    'fedst': MAIN['fedst'],
}
"""Table V: what is personal, in the encoder and in the temporal module behind it."""

LAYERS: Final = {
    'norm': _fedst('normalisation', personal='norm'),
    'keys': _fedst('keys', personal='keys'),
    'values': _fedst('values', personal='values'),
    'keys_values': _fedst('keys and values', personal='keys+values'),
    'fedst': MAIN['fedst'],
}
"""Table VI: which layers of the encoder are personal."""

INDICATORS: Final = {
    'random': _fedst('random', prompt='random'),
    'gaussian': _fedst('Gaussian', prompt='gaussian'),
    'one_hot': _fedst('one-hot', prompt='one-hot'),
    'fedst': MAIN['fedst'],
}
"""Table VII: what tells the site to the channel selection."""

METHODS: Final = {**MAIN, **COMPONENTS, **PLACES, **LAYERS, **INDICATORS}
"""All, by name."""
