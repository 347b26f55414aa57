# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
A round of a large network, each party in a process of its own: run by crypto.py.

    python benchmark/crypto_party.py hospital|aggregator|key_authority FOLDER [NUMBER]

Updates and sums are streamed ciphertext by ciphertext, from and to files. Seconds count from
reading the context to the last byte written; starting Python and making up an update do not count.
Shares are not in it: they do not depend on the size of the network. Here the nonce of the
projections is known from the beginning; in a federation it is drawn once all updates were sent.
"""

from collections.abc import Callable, Iterable, Iterator
import hashlib
import json
import os
from pathlib import Path
import subprocess
import sys
import time

from benchmarking import peak
from crypto_work import check_norms, FEDERATION, SEED, SETTINGS, signed_sketch, threshold
from fdrl_ros.crypto.he.encryption import PublicContext, SecretContext
from fdrl_ros.crypto.he.quantisation import Quantisation
from fdrl_ros.crypto.keys.signing import Identity
from fdrl_ros.crypto.masking.masks import leftover_mask, net_mask
from fdrl_ros.crypto.masking.neighbourhoods import Neighbourhoods
from fdrl_ros.crypto.masking.round_secret import RoundSeed
from fdrl_ros.crypto.masking.share_sealing import KeyList, MemberKeys, own_keys
from fdrl_ros.crypto.masking.sketch import NONCE_BYTES, Sketch, write_values
from fdrl_ros.federation.protocol.attempt import setup_digest
from fdrl_ros.federation.protocol.sketches import bound_of, keys_of_masks
from fdrl_ros.federation.protocol.update_codec import UpdateCodec
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
from numpy.typing import NDArray

PARTIES = ('hospital', 'aggregator', 'key_authority')
Found = dict[str, tuple[float, float]]
"""Of each kind of party: the most seconds and the most memory, MB, that one took."""


def seed_of(folder: Path, number: int) -> RoundSeed:
    """Return the stored seed of a hospital."""
    path = folder / f'hospital_{number}.seed'
    return RoundSeed.at(path, federation=FEDERATION, round=1, name=f'hospital_{number}')


def update(number: int, n_parameters: int) -> NDArray[np.float32]:
    """Make up what a hospital learned, shape (n_parameters,)."""
    rng = np.random.default_rng([SEED, number])
    return np.float32(0.05) * rng.standard_normal(n_parameters, dtype=np.float32)


def codec_of(n_parameters: int, hospitals: int) -> UpdateCodec:
    """Return how updates become integers, and what bounds them."""
    agreed = n_parameters, hospitals, SETTINGS.bits, SETTINGS.limit
    return UpdateCodec.agree(*agreed, projections=SETTINGS.projections)


def prepare(folder: Path, n_parameters: int, hospitals: int) -> None:
    """Make the keys of a round, and write what everybody knows."""
    folder.chmod(0o700)
    secret = SecretContext.generate(codec_of(n_parameters, hospitals).scheme)
    (folder / 'nonce').write_bytes(os.urandom(NONCE_BYTES))
    (folder / 'secret').write_bytes(secret.to_bytes())
    (folder / 'public').write_bytes(secret.public_bytes())
    names = [f'hospital_{each}' for each in range(hospitals)]
    secrets = [seed_of(folder, each).attempt(0) for each in range(hospitals)]
    graph = Neighbourhoods(names, threshold(hospitals))
    published = [own_keys(each, graph) for each in secrets]
    ours = {
        name: [each.mask.hex(), each.sealing.hex(), each.seed_hash.hex()]
        for name, each in zip(names, published, strict=True)
    }
    (folder / 'keys').write_text(json.dumps(ours), 'utf-8')


def key_list(folder: Path) -> KeyList:
    """Read what the hospitals published."""
    read = json.loads((folder / 'keys').read_text('utf-8'))
    keys = {name: MemberKeys(*map(bytes.fromhex, each)) for name, each in read.items()}
    graph = Neighbourhoods(keys, threshold(len(keys)))
    return KeyList.of(FEDERATION, 1, 0, graph, keys)


def sketch_of(folder: Path, keys: KeyList, codec: UpdateCodec) -> Sketch:
    """Return the projections of the updates."""
    nonce = (folder / 'nonce').read_bytes()
    return Sketch(nonce, setup_digest(keys, keys.members), bound_of(codec))


def ciphertexts(path: Path, size: int) -> Iterator[bytes]:
    """Read ciphertext after ciphertext."""
    with path.open('rb') as file:
        while data := file.read(size):
            yield data


def columns(folder: Path, names: Iterable[str], size: int) -> Iterator[tuple[bytes, ...]]:
    """Read the ciphertexts of one place of all hospitals' updates, place after place."""
    return zip(*(ciphertexts(folder / f'{name}.update', size) for name in names), strict=True)


def hospital(folder: Path, number: int) -> Callable[[], None]:
    """Return a hospital's part: derive keys, quantise, mask, encrypt, digest, sign, project."""
    n_parameters = PublicContext.from_bytes((folder / 'public').read_bytes()).scheme.n_parameters
    learned, identity = update(number, n_parameters), Identity.generate(f'hospital_{number}')

    def work() -> None:
        public = PublicContext.from_bytes((folder / 'public').read_bytes())
        scheme, codec = public.scheme, codec_of(n_parameters, public.scheme.members)
        secrets = seed_of(folder, number).attempt(0)
        keys, mine = key_list(folder), secrets.name
        masks = net_mask(
            secrets,
            {name: keys.mask_key(name, mine) for name in keys.members if name != mine},
            count=scheme.ciphertexts * scheme.slots,
            modulus=scheme.plain_modulus,
            setup=setup_digest(keys, keys.members),
        )
        source, size = NoiseSource.seeded(number), scheme.integers_per_ciphertext

        def integers() -> Iterator[NDArray[np.int64]]:
            for at in range(0, n_parameters, size):
                part = learned[at : at + size]
                yield codec.quantisation.quantise(
                    part, source.uniform('rounding', 1, at // size, part.size)
                )

        digest = hashlib.sha256()
        with (folder / f'{mine}.update').open('wb') as file:
            for ciphertext in codec.encrypt(scheme.pack_rows(integers()), masks, public):
                digest.update(ciphertext)
                file.write(ciphertext)
        identity.sign(digest.digest())
        projected = sketch_of(folder, keys, codec).of_masks(
            keys_of_masks(secrets, keys, keys.members)
        )
        (folder / f'{mine}.sketch').write_bytes(write_values(projected, scheme.plain_modulus))

    return work


def aggregator(folder: Path) -> Callable[[], None]:
    """Return the aggregator's part: digest and add."""

    def work() -> None:
        public = PublicContext.from_bytes((folder / 'public').read_bytes())
        names = key_list(folder).members
        digests = {name: hashlib.sha256() for name in names}

        def digested() -> Iterator[tuple[bytes, ...]]:
            for column in columns(folder, names, public.scheme.ciphertext_bytes):
                for name, ciphertext in zip(names, column, strict=True):
                    digests[name].update(ciphertext)
                yield column

        with (folder / 'sum').open('wb') as file:
            file.writelines(map(public.add, digested()))

    return work


def key_authority(folder: Path) -> Callable[[], None]:
    """
    Return the key authority's part.

    Decrypt each update alone, project it, add once more, compare, bound the updates, decrypt,
    unmask, average.
    """
    keys = key_list(folder)
    # In a real round these are restored from the survivors' shares.
    seeds = [seed_of(folder, each) for each in range(len(keys.members))]
    self_seeds = {each.name: each.attempt(0).self_seed for each in seeds}

    def work() -> None:
        secret, names = SecretContext.from_bytes((folder / 'secret').read_bytes()), keys.members
        scheme, codec = secret.scheme, codec_of(secret.scheme.n_parameters, len(names))
        sketch = sketch_of(folder, keys, codec)
        projected = {name: np.zeros(sketch.bound.rows, dtype=np.int64) for name in names}
        sums = []
        theirs = ciphertexts(folder / 'sum', scheme.ciphertext_bytes)
        for number, column in enumerate(columns(folder, names, scheme.ciphertext_bytes)):
            for name, ciphertext in zip(names, column, strict=True):
                projected[name] += sketch.of_slots(number, secret.inspect(ciphertext))
                projected[name] %= scheme.plain_modulus
            sums.append(secret.public.add(column))
            if sums[-1] != next(theirs):
                raise RuntimeError('the aggregator added something else')
        signed = [
            signed_sketch(sketch, keys, name, (folder / f'{name}.sketch').read_bytes())
            for name in names
        ]
        check_norms(codec, keys, self_seeds, sketch, projected, signed)
        masks = leftover_mask(
            keys,
            names,
            setup_digest(keys, names),
            self_seeds=self_seeds,
            mask_secrets={},
            count=codec.slots,
            modulus=scheme.plain_modulus,
        ).reshape(-1, scheme.slots)
        found = zip(map(secret.decrypt, sums), masks, strict=True)
        unmasked = ((row - mask) % scheme.plain_modulus for row, mask in found)
        mean, at = np.empty(scheme.n_parameters, dtype=np.float32), 0
        for part in scheme.unpack_rows(unmasked):
            total = codec.quantisation.dequantise_sum(part, len(names))
            mean[at : at + part.size] = total / len(names)
            at += part.size
        mean.tofile(folder / 'mean')

    return work


def check(folder: Path, n_parameters: int, hospitals: int) -> None:
    """
    Compare what came out with FedAvg in the clear.

    :raises RuntimeError: if the mean is off by more than the quantiser allows.
    """
    mean, total = np.fromfile(folder / 'mean', np.float32), np.zeros(n_parameters)
    for number in range(hospitals):
        total += update(number, n_parameters)
    step = Quantisation(SETTINGS.limit, SETTINGS.bits, hospitals).step
    error = float(np.abs(mean - total / hospitals).max())
    if error > step + 1e-7:  # float32
        raise RuntimeError(f'the mean is off by {error}, the step is {step}')


def large_round(
    folder: Path, n_parameters: int, hospitals: int, report: Callable[[str], None]
) -> Found:
    """
    Play a round, each party in a fresh process, one after the other, and check the mean.

    :param folder: empty, for some 15 bytes a parameter and hospital.
    :raises RuntimeError: if a party fails, or the mean is not FedAvg's.
    """
    prepare(folder, n_parameters, hospitals)
    calls = [('hospital', str(each)) for each in range(hospitals)]
    found: Found = {}
    for party, *rest in [*calls, ('aggregator',), ('key_authority',)]:
        report(f'{n_parameters} parameters: {" ".join([party, *rest])}')
        done = subprocess.run(
            [sys.executable, __file__, party, str(folder), *rest], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f'{party}: {(done.stderr.splitlines() or ["no word"])[-1]}')
        seconds, memory = json.loads(done.stdout)
        most = found.get(party, (0.0, 0.0))
        found[party] = max(seconds, most[0]), max(memory, most[1])
    check(folder, n_parameters, hospitals)
    return found


def main() -> None:
    """Play one party's part, and print its seconds and the most memory of this process, MB."""
    _, party, folder, *number = sys.argv
    parts = {'aggregator': aggregator, 'key_authority': key_authority}
    at = Path(folder)
    work = hospital(at, int(number[0])) if party == 'hospital' else parts[party](at)
    begun = time.perf_counter()
    work()
    print(json.dumps([time.perf_counter() - begun, peak()]))


if __name__ == '__main__':
    main()
