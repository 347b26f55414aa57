# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What encryption takes: a round of the reference policy, and one of 5 million parameters.

Times are of the processor, on one core; the least of several runs for the small policy. Each
party of the large one is a process of its own, which streams ciphertexts from and to files. Masks
and signatures are not in it. Takes about two minutes:
`make nightly ARGS='-k encryption_pace --save FILE'`.
"""

import json
import subprocess
import sys
import time

from fdrl_ros.crypto.he.encryption import SecretContext
from fdrl_ros.crypto.he.schemes import choose_scheme
import numpy as np
import pytest

SETTINGS = {'n_parameters': 18_180, 'large': 5_000_000, 'members': 10, 'bits': 16}

pytestmark = pytest.mark.slow

# A party of the large round: reads the context and, if so, ciphertexts; writes ciphertexts.
PARTY = """
import json, resource, sys, time
import numpy as np
from pathlib import Path
from fdrl_ros.crypto.he.encryption import PublicContext, SecretContext
from fdrl_ros.crypto.he.quantisation import Quantisation

party, folder, members = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
begun = time.process_time()
context = SecretContext if party == 'key_authority' else PublicContext
name = 'secret' if party == 'key_authority' else 'public'
context = context.from_bytes((folder / name).read_bytes())
scheme = context.scheme

def ciphertexts(file):
    with open(folder / file, 'rb') as stream:
        while data := stream.read(scheme.ciphertext_bytes):
            yield data

if party == 'hospital':
    quantisation = Quantisation(1.0, scheme.bits, scheme.members)
    rng = np.random.default_rng(1)
    delta = rng.normal(0, 0.1, scheme.n_parameters)
    size = scheme.integers_per_ciphertext
    parts = (delta[at : at + size] for at in range(0, delta.size, size))
    integers = (quantisation.quantise(part, rng.random(part.size)) for part in parts)
    with open(folder / 'update', 'wb') as file:
        file.writelines(map(context.encrypt, scheme.pack_rows(integers)))
elif party == 'aggregator':
    columns = zip(*(ciphertexts('update') for _ in range(members)))
    with open(folder / 'sum', 'wb') as file:
        file.writelines(map(context.add, columns))
else:
    columns = zip(*(ciphertexts('update') for _ in range(members)))
    pairs = zip(map(context.public.add, columns), ciphertexts('sum'), strict=True)
    agreed = (mine for mine, theirs in pairs if mine == theirs)
    quantisation = Quantisation(1.0, scheme.bits, scheme.members)
    delta = np.random.default_rng(1).normal(0, 0.1, scheme.n_parameters).clip(-1, 1)
    at, worst = 0, 0.0
    for part in scheme.unpack_rows(map(context.decrypt, agreed)):
        mean = quantisation.dequantise_sum(part, members) / members
        worst = max(worst, float(np.abs(mean - delta[at : at + part.size]).max()))
        at += part.size
    assert at == scheme.n_parameters and worst < 3 * quantisation.step, worst
seconds = time.process_time() - begun
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({'party': party, 'seconds': round(seconds, 2), 'memory_mb': memory // 10**6}))
"""


@pytest.mark.parametrize(('kind', 'limit'), [('bfv', 0.070), ('ckks', 0.250)])
def test_round_of_the_reference_policy_is_encrypted_summed_and_decrypted(
    kind, limit, figures, capfd
):
    members = SETTINGS['members']
    scheme = choose_scheme(SETTINGS['n_parameters'], members, SETTINGS['bits'], kind)
    secret = SecretContext.generate(scheme)
    public = secret.public
    updates = np.random.default_rng(1).integers(0, 2**16, (members, scheme.n_parameters))
    least = dict.fromkeys(('encrypt', 'add', 'decrypt'), float('inf'))
    for _ in range(20):
        marks = [time.process_time()]
        sent = [[public.encrypt(row) for row in scheme.pack(update)] for update in updates]
        marks.append(time.process_time())
        sums = [public.add(column) for column in zip(*sent, strict=True)]
        marks.append(time.process_time())
        total = scheme.unpack(np.stack([secret.decrypt(row) for row in sums]))
        marks.append(time.process_time())
        for name, took in zip(least, np.diff(marks), strict=True):
            least[name] = min(least[name], float(took))
    upload = scheme.ciphertexts * scheme.ciphertext_bytes
    found = {'kind': kind, 'upload_bytes': upload, 'round_s': sum(least.values()), **least}
    figures.append({name: round(x, 4) if type(x) is float else x for name, x in found.items()})
    with capfd.disabled():
        print('', figures[-1], sep='\n', flush=True)
    difference = np.abs(total - updates.sum(axis=0)).max()
    assert difference == 0 if kind == 'bfv' else difference <= scheme.slack
    assert found['round_s'] <= limit
    assert upload <= 200_000 or kind == 'ckks'


@pytest.mark.parametrize('kind', ['bfv', 'ckks'])
def test_each_party_of_a_large_round_needs_20_s_and_1500_mb_at_most(
    kind, figures, capfd, tmp_path
):
    scheme = choose_scheme(SETTINGS['large'], SETTINGS['members'], SETTINGS['bits'], kind)
    secret = SecretContext.generate(scheme)
    (tmp_path / 'secret').write_bytes(secret.to_bytes())
    (tmp_path / 'public').write_bytes(secret.public_bytes())
    for party in ('hospital', 'aggregator', 'key_authority'):
        command = [sys.executable, '-c', PARTY, party, str(tmp_path), str(scheme.members)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        upload = scheme.ciphertexts * scheme.ciphertext_bytes
        figures.append({'kind': kind, 'upload_bytes': upload, **json.loads(done.stdout)})
        with capfd.disabled():
            print('', figures[-1], sep='\n', flush=True)
        assert figures[-1]['seconds'] <= 20 and figures[-1]['memory_mb'] <= 1500
