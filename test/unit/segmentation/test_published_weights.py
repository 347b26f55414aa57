# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Published weights of PVT v2: by both ways of naming, equal to the authors' code, or refused."""

import json
import re
import zlib

from fdrl_ros.errors import PolicyError
from fdrl_ros.segmentation.network.published_weights import load_weights
from fdrl_ros.segmentation.network.pvt import PyramidVisionTransformer
from fdrl_ros.segmentation.network.sizes import SIZES
import numpy as np
import pytest
import torch

STATED = {
    'b0': [
        [1.108133, 0.938209, 0.029194, 1.602965],
        [1.212648, 0.636471, 1.456019, -0.945584],
        [1.166173, 0.753455, 1.594136, -0.773171],
        [1.195979, 1.612438, 0.236901, 1.349176],
    ],
    'b2': [
        [1.195213, 1.097501, 0.380341, 1.831099],
        [1.153431, 1.37213, -0.043206, 0.386221],
        [1.183033, -0.323391, -0.225692, -0.040378],
        [1.201519, -0.151096, 2.060519, 0.596489],
    ],
}
"""
Mean size of the numbers of each stage, and three of them, as the authors' code gives them.

`pvt_v2.py` of github.com/whai362/PVT ran once beside this test, in PyTorch 2.13: with
`published(size)` as its weights (strict loading) and `frames()` as its input, the greatest
difference between its stages and ours was 2.4e-6.
"""


def frames():
    """Return two normalised frames of 64 x 96 pixels."""
    return torch.from_numpy(np.random.default_rng(1).normal(size=(2, 3, 64, 96)).astype('f4'))


def drawn(size):
    """Return made-up weights of an encoder by our names; each hangs on its name alone."""
    made = {}
    for name, tensor in PyramidVisionTransformer(SIZES[size].encoder).state_dict().items():
        draws = np.random.default_rng(zlib.crc32(name.encode())).normal(size=tensor.shape)
        fan = max(1, tensor[0].numel())
        values = 1.0 + 0.1 * draws if tensor.ndim == 1 else draws * fan**-0.5
        made[name] = torch.from_numpy(values.astype(np.float32))
    return made


def published(size, *, authors=True):
    """Return the same as timm names it, or the authors, with a head and keys beside values."""
    made = {'head.weight': torch.zeros(10, 256), 'head.bias': torch.zeros(10)}
    weights = drawn(size)
    for name, tensor in weights.items():
        if '.attn.v.' in name:
            continue
        if '.attn.k.' in name:
            tensor = torch.cat([tensor, weights[name.replace('.k.', '.v.')]])
            name = name.replace('.k.', '.kv.')
        if authors:
            name = re.sub(r'^patch_embed\.', 'patch_embed1.', name)
            name = name.replace('.dwconv.', '.dwconv.dwconv.')
            if found := re.match(r'stages\.(\d)\.(downsample|blocks|norm)\.', name):
                word = {'downsample': 'patch_embed', 'blocks': 'block', 'norm': 'norm'}[found[2]]
                name = f'{word}{int(found[1]) + 1}.{name[found.end() :]}'
        made[name] = tensor
    return made


def safetensors(tensors):
    """Return the bytes of a file in that form."""
    header, body = {'__metadata__': {'format': 'pt'}}, b''
    for name, tensor in tensors.items():
        data = tensor.numpy().tobytes()
        header[name] = {
            'dtype': 'F32',
            'shape': list(tensor.shape),
            'data_offsets': [len(body), len(body) + len(data)],
        }
        body += data
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, 'little') + text + body


def summary(stages):
    return [[each.abs().mean().item(), *each[1, 1, 2, :3].tolist()] for each in stages]


@pytest.mark.parametrize('size', STATED)
def test_an_encoder_with_published_weights_gives_what_the_authors_code_gives(size, tmp_path):
    torch.save({'state_dict': published(size)}, tmp_path / 'weights.pth')
    encoder = PyramidVisionTransformer(SIZES[size].encoder)
    load_weights(encoder, tmp_path / 'weights.pth')
    with torch.no_grad():
        found = summary(encoder(frames()))
    np.testing.assert_allclose(found, STATED[size], rtol=0, atol=1e-4)


def test_both_names_and_both_kinds_of_file_give_the_same_weights(tmp_path):
    wanted, plain = drawn('b0'), tmp_path / 'plain.pth'
    torch.save(published('b0', authors=False), plain)
    tensors = tmp_path / 'pvt.safetensors'
    tensors.write_bytes(safetensors(published('b0')))
    for path in (plain, tensors):
        encoder = PyramidVisionTransformer(SIZES['b0'].encoder)
        load_weights(encoder, path)
        found = encoder.state_dict()
        assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())


def test_weights_of_another_encoder_are_named_and_change_nothing(tmp_path):
    weights = published('b0')
    del weights['patch_embed1.proj.bias']
    weights['norm5.weight'] = torch.zeros(3)
    weights['block1.0.attn.kv.weight'] = torch.zeros(10, 32)
    path = tmp_path / 'weights.pth'
    torch.save(weights, path)
    encoder = PyramidVisionTransformer(SIZES['b0'].encoder)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    with pytest.raises(PolicyError) as raised:
        load_weights(encoder, path)
    for words in (
        'missing 1 (patch_embed.proj.bias)',
        'unexpected 1 (stages.4.norm.weight)',
        'of another shape 2 (stages.0.blocks.0.attn.k.weight (5, 32) in place of (32, 32), ',
    ):
        assert words in str(raised.value)
    assert all(torch.equal(tensor, before[n]) for n, tensor in encoder.state_dict().items())
    torch.save(published('b2'), path)
    with pytest.raises(PolicyError, match='unexpected 172 .* of another shape 192 '):
        load_weights(encoder, path)


def a_list(path):
    torch.save([torch.zeros(3)], path)


def not_finite(path):
    torch.save({**published('b0'), 'norm4.bias': torch.full((256,), torch.nan)}, path)


def code(path):
    torch.save({'weights': re.compile('code that loading would run')}, path)


def header_only(**changes):
    """Return a writer of a file with one tensor of 3 x 4 numbers, and something in its header."""

    def write(path):
        numbers = bytes(48)
        entry = {'dtype': 'F32', 'shape': [3, 4], 'data_offsets': [0, 48]} | changes
        text = json.dumps({'norm.weight': entry}).encode()
        path.write_bytes(len(text).to_bytes(8, 'little') + text + numbers)

    return write


@pytest.mark.parametrize(
    ('name', 'write', 'words'),
    [
        ('none.pth', lambda path: None, 'cannot read'),
        ('text.pth', lambda path: path.write_text('no weights'), 'not a file of tensors'),
        ('list.pth', a_list, 'expected tensors by name'),
        ('code.pth', code, 'not a file of tensors'),
        ('junk.pth', lambda path: path.write_bytes(b'hello' * 100), 'not a file of tensors'),
        ('nan.pth', not_finite, 'not finite'),
        ('short.safetensors', lambda path: path.write_bytes(b'\x09'), 'not a .safetensors'),
        (
            'header.safetensors',
            lambda path: path.write_bytes((2).to_bytes(8, 'little') + b'[]'),
            'damaged',
        ),
        (
            'cut.safetensors',
            lambda path: path.write_bytes(safetensors(published('b0'))[:-8]),
            'damaged',
        ),
        *(
            ('header.safetensors', header_only(**changes), 'a damaged .safetensors file')
            for changes in (
                {'data_offsets': [0, 0]},
                {'data_offsets': [0, 44]},
                {'data_offsets': [-48, 48]},
                {'data_offsets': [4, 52]},
                {'data_offsets': [48, 0]},
                {'data_offsets': [0.0, 48.0]},
                {'data_offsets': [0, 48, 96]},
                {'shape': [3, 5]},
                {'shape': [-3, -4]},
                {'shape': 12},
                {'shape': ['3', 4]},
                {'dtype': 'F16'},
                {'dtype': 'I32'},
            )
        ),
        ('header.safetensors', header_only(), 'tensors of another encoder'),
        (
            'header.safetensors',
            header_only(shape=[0, 4], data_offsets=[0, 0]),
            'tensors of another encoder',
        ),
    ],
)
def test_files_that_are_none_are_refused(name, write, words, tmp_path):
    write(tmp_path / name)
    with pytest.raises(PolicyError, match=words):
        load_weights(PyramidVisionTransformer(SIZES['b0'].encoder), tmp_path / name)
