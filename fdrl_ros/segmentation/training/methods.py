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
    :param paper: Dice in percent that the paper states: mean of sites A to D, and site E; None
        where it states none.
    """

    title: str
    where: Where = 'sites'
    personal: str = 'none'
    temporal: bool = False
    prompt: str = ''
    channels: bool = False
    serq: bool = False
    paper: tuple[float | None, float | None] = (None, None)


def _fedst(title: str, paper: tuple[float | None, float | None], **changes: object) -> Method:
    """Return FedST with changes."""
    usual: dict[str, object] = {
        'personal': 'queries',
        'temporal': True,
        'prompt': 'text',
        'channels': True,
        'serq': True,
    }
    return Method(title, paper=paper, **{**usual, **changes})  # type: ignore[arg-type]


MAIN: Final = {
    'local': Method('Local', 'alone', paper=(71.50, 26.99)),
    'pooled': Method('Centralised', 'pooled', paper=(83.21, 27.56)),
    'fedavg': Method('FedAvg', paper=(79.99, 28.73)),
    'fedrep': Method('FedRep', personal='head', paper=(80.66, 28.76)),
    'feddp': Method('FedDP', personal='queries', paper=(79.34, 26.60)),
    'fedst': _fedst('FedST', (82.62, 77.97)),
}
"""Tables II, III and IX."""

COMPONENTS: Final = {
    'feddp': MAIN['feddp'],
    'ts': _fedst('TS', (80.74, 71.19), prompt='', channels=False, serq=False),
    'ts_cs': _fedst('TS, prompt, CS', (81.90, 72.21), serq=False),
    'serq': _fedst('SERQ', (79.41, 28.23), temporal=False, prompt='', channels=False),
    'ts_serq': _fedst('TS, SERQ', (82.04, 76.78), prompt='', channels=False),
    'fedst': MAIN['fedst'],
}
"""Table IV, without its third row: the paper does not say where a prompt enters without CS."""

PLACES: Final = {
    'nothing': _fedst('nothing', (82.19, 76.42), personal='none'),
    'everything': _fedst('everything', (81.56, 10.25), where='alone', serq=False),
    'decoder_queries': _fedst(
        "the temporal module's queries", (81.36, 56.23), personal='decoder_queries'
    ),
    'both_queries': _fedst(
        "both modules' queries", (81.65, 54.37), personal='queries+decoder_queries'
    ),
    'fedst': MAIN['fedst'],
}
"""Table V: what is personal, in the encoder and in the temporal module behind it."""

LAYERS: Final = {
    'norm': _fedst('normalisation', (81.99, 74.23), personal='norm'),
    'keys': _fedst('keys', (81.85, 74.79), personal='keys'),
    'values': _fedst('values', (81.46, 74.52), personal='values'),
    'keys_values': _fedst('keys and values', (81.53, 73.89), personal='keys+values'),
    'fedst': MAIN['fedst'],
}
"""Table VI: which layers of the encoder are personal."""

INDICATORS: Final = {
    'random': _fedst('random', (80.83, 73.28), prompt='random'),
    'gaussian': _fedst('Gaussian', (81.14, 73.71), prompt='gaussian'),
    'one_hot': _fedst('one-hot', (81.32, 73.43), prompt='one-hot'),
    'fedst': MAIN['fedst'],
}
"""Table VII: what tells the site to the channel selection."""

METHODS: Final = {**MAIN, **COMPONENTS, **PLACES, **LAYERS, **INDICATORS}
"""All, by name."""
