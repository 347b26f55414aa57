# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
How fast and how small the encrypted round is, beside NVFlare's encryption and plain FedAvg.

    python benchmark/crypto.py --json crypto.json

All is measured in one process on one core with one thread, in turns: one turn of everything, then
the next, so that a machine that slows down slows everybody. A round is the work of all parties
added up: ten hospitals with a network of 18,180 weights, aggregator, key authority. Ours holds
scaling, quantising, packing, encrypting, reading and writing what travels, decrypting each masked
update alone to inspect it, adding twice (the key authority does not believe the aggregator),
decrypting and averaging; and by default what bounds each update: all hospitals project their
masks, the key authority projects updates and checks. No peer bounds an update, so ours is compared
with them without bounds, but for the bytes that are sent. NVFlare's holds weighting,
encrypting, writing and reading layers and contexts, adding, dividing, and decrypting, by one
hospital unless a row says that all ten do, as they do there. Its settings are carried out by
TenSEAL itself, which ours needs too. Masks, keys and shares, which it has not, are counted apart.

Flower's secure aggregation has masks, keys and shares, and no encryption. Its own code plays its
round (`crypto_flower.py`), which is compared with ours with and without encryption. Ours holds the
signatures on shares and their checks, by which it names who spoils a round; signatures on messages
and what a disk keeps are in neither. Flower is not measured unless it is installed
(`requirements/flower.txt`); nothing else is to be installed.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
import sys
import tempfile
from typing import Any

from benchmarking import (
    as_process,
    check,
    circumstances,
    measure,
    Measurement,
    options,
    progress,
    Row,
    show_shares,
    Skipped,
    Table,
    Timed,
    where_time_goes,
    write,
)
import crypto_flower
import crypto_million
import crypto_party
import crypto_peers as peers
import crypto_protocol
import crypto_work as work
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.policy import NetworkShape

REFERENCE = NetworkShape(8, 3, (128, 128))
"""A network of ours with the 18,180 weights that are compared: a value and three advantages."""
LARGE = 5_000_000
"""Weights of the large network."""
VIRTUAL = 200
"""Hospitals that are played in one process."""
CURVE = (10, 30, 100, 300, 1000)
"""Members of a round."""
QUICK = (10, 30)
"""Of them, those that `--quick` measures."""
COLLECTED = 20
"""Patients that `--quick` operates on."""

PACKAGES = ('numpy', 'tenseal', 'cryptography', 'backports.zstd', 'flwr', 'pycryptodome')

NVFLARE = 'NVFlare settings, one decryption, s'
ALL_TEN = 'NVFlare settings, all ten decrypt, s'
FLAT = "NVFlare's parameters in one vector, no contexts, s"
FLOWER = 'Flower SecAgg+, no HE, 32-bit mask seeds, s'
FLOWER_EXAMPLE = 'the same with 2 neighbours each, as in its example, s'
FLOWER_BYTES = 'Flower SecAgg+, no HE, 32-bit mask seeds, B'
PLAIN = 'FedAvg in the clear, float32 pickled, s'
TRAINING = 'default local training of a round, s'
HE, MASKS = 0.070, 0.010
HE_GOAL, UNBOUNDED_GOAL, UPLOAD_GOAL, OVERHEAD_GOAL = 0.25, 0.1, 300_000, 0.2
ROWS = (
    Row('he_round_s', 'round', 'nvflare', NVFLARE, HE_GOAL, False),
    Row('he_round_without_bounds_s', 'unbounded', 'nvflare', NVFLARE, UNBOUNDED_GOAL, False),
    Row('proof_s', 'proof', None, '', None, False),
    Row('inspect_s', 'inspect', None, '', None, False),
    Row('speedup_over_nvflare_settings', 'unbounded', 'nvflare', NVFLARE, 80.0, True, 'peer/own'),
    Row('speedup_over_nvflare_all_decrypt', 'unbounded', 'all', ALL_TEN, None, True, 'peer/own'),
    Row('speedup_over_flat_ckks', 'unbounded', 'flat', FLAT, None, True, 'peer/own'),
    Row('he_round_over_plain', 'unbounded', 'plain', PLAIN, None, False, 'own/peer'),
    Row('masks_and_keys_s', 'masks', None, '', MASKS, False),
    Row('masks_and_keys_per_hospital_s', 'mask', None, '', None, False),
    Row('default_network_round_s', 'default', None, '', HE, False),
    Row('secure_round_s', 'secure', 'flower', FLOWER, None, False),
    Row('speedup_over_flower', 'secure', 'flower', FLOWER, None, True, 'peer/own'),
    Row(
        'speedup_over_flower_example', 'secure', 'example', FLOWER_EXAMPLE, None, True, 'peer/own'
    ),
    Row('masked_round_s', 'masked', 'flower', FLOWER, None, False),
    Row('masked_speedup_over_flower', 'masked', 'flower', FLOWER, None, True, 'peer/own'),
    crypto_million.SECONDS,
    crypto_million.UNBOUNDED,
    Row('protocol_s', 'protocol', 'training', TRAINING, None, False),
    Row('overhead_fraction', 'protocol', 'training', TRAINING, OVERHEAD_GOAL, False, 'own/peer'),
    Row('overhead_without_disk', 'memory', 'training', TRAINING, 0.10, False, 'own/peer'),
    *(Row(f'members_{each}_hospital_s', f'hospital {each}', None, '', None) for each in CURVE),
    *(Row(f'members_{each}_key_authority_s', f'key {each}', None, '', None) for each in CURVE),
)
BYTES = (
    Row('upload_bytes', '', None, 'NVFlare settings, B', UPLOAD_GOAL, False),
    Row('upload_without_bounds_bytes', '', None, '', UPLOAD_GOAL, False),
    Row('upload_over_plain', '', None, 'FedAvg in the clear, float32 pickled, B', None, False),
    Row('upload_over_flower', '', None, FLOWER_BYTES, None, False),
    Row('default_network_upload_bytes', '', None, '', 200_000, False),
    crypto_million.BYTES,
    crypto_million.UNBOUNDED_BYTES,
    *(Row(f'members_{each}_upload_bytes', '', None, '', None, False) for each in CURVE),
)
VIRTUAL_ROUND = Row('virtual_hospitals_200_round_s', '', None, '', 60.0, False)
"""All parties of a round of the default network, on one core; without training."""
PARTIES = (
    *(Row(f'five_million_{each}_s', each, None, '', 20.0, False) for each in crypto_party.PARTIES),
    *(
        Row(f'five_million_{each}_mb', each, None, '', 1500.0, False)
        for each in crypto_party.PARTIES
    ),
)


def measurements(folder: Path, quick: bool) -> dict[str, Measurement]:
    """
    Return everything that is measured in turns.

    :param folder: for the ledger of the training.
    :param quick: whether to leave out what takes long.
    """
    updates = work.Updates.draw(work.parameters(), work.HOSPITALS)
    default = Plan().network
    small = work.Updates.draw(default.n_parameters, work.HOSPITALS)
    collected = COLLECTED if quick else 0
    found = {
        'round': Measurement(lambda: work.encrypted_rounds(updates, bounded=True), 's'),
        'unbounded': Measurement(lambda: work.encrypted_rounds(updates, bounded=False), 's'),
        'proof': Measurement(lambda: work.projected_masks(updates), 's'),
        'inspect': Measurement(lambda: work.inspected_rounds(updates), 's'),
        'nvflare': Measurement(lambda: peers.nvflare_rounds(updates), 's'),
        'all': Measurement(lambda: peers.nvflare_rounds(updates, decryptions=work.HOSPITALS), 's'),
        'flat': Measurement(lambda: peers.nvflare_rounds(updates, flat=True), 's'),
        'plain': Measurement(lambda: peers.plain_rounds(updates), 's'),
        'masks': Measurement(lambda: work.masks_and_keys(updates), 's'),
        'mask': Timed(
            lambda: crypto_protocol.hospital(work.parameters(), work.HOSPITALS, shares=False), 's'
        ),
        'secure': Measurement(lambda: work.secure_rounds(updates), 's'),
        'masked': Measurement(lambda: work.secure_rounds(updates, encrypted=False), 's'),
        'flower': Measurement(lambda: crypto_flower.flower_rounds(updates), 's'),
        'example': Measurement(
            lambda: crypto_flower.flower_rounds(updates, shares=crypto_flower.EXAMPLE), 's'
        ),
        'default': Measurement(lambda: work.encrypted_rounds(small, bounded=True), 's'),
        crypto_million.SECONDS.own: crypto_million.measurement(),
        crypto_million.UNBOUNDED.own: crypto_million.measurement(bounded=False),
        'protocol': Timed(lambda: crypto_protocol.protocol(folder, default, work.HOSPITALS), 's'),
        'memory': Timed(lambda: crypto_protocol.protocol(None, default, work.HOSPITALS), 's'),
        'training': Measurement(lambda: work.training(folder, collected, progress), 's'),
    }
    for count in CURVE:
        found |= {f'hospital {count}': of_hospital(count), f'key {count}': of_authority(count)}
        if quick and count not in QUICK:
            del found[f'hospital {count}'], found[f'key {count}']
    return found


def of_hospital(count: int) -> Timed:
    """Return what one of so many hospitals takes for keys, shares and masks."""
    return Timed(lambda: crypto_protocol.hospital(work.parameters(), count), 's')


def of_authority(count: int) -> Timed:
    """Return what the key authority of so many hospitals takes."""
    return Timed(lambda: crypto_protocol.key_authority(work.parameters(), count), 's')


def uploads(quick: bool) -> dict[str, tuple[float, str, float | None]]:
    """Return by name of the row what a hospital sends, its unit, and what the peer's sends."""
    updates = work.Updates.draw(work.parameters(), 1)
    ours = crypto_protocol.upload(REFERENCE, work.HOSPITALS)
    plain = len(peers.plain_upload(updates))
    theirs: float | None = None
    try:
        theirs = peers.Nvflare(updates).upload()
    except Skipped as reason:
        print(f'NVFlare settings: {reason}', file=sys.stderr)
    found: dict[str, tuple[float, str, float | None]] = {
        'upload_bytes': (ours, 'B', theirs),
        'upload_without_bounds_bytes': (
            crypto_protocol.upload(REFERENCE, work.HOSPITALS, bounded=False),
            'B',
            None,
        ),
        'upload_over_plain': (ours / plain, '1', plain),
        'default_network_upload_bytes': (
            crypto_protocol.upload(Plan().network, work.HOSPITALS),
            'B',
            None,
        ),
        crypto_million.BYTES.name: (crypto_million.upload(), 'B', None),
        crypto_million.UNBOUNDED_BYTES.name: (crypto_million.upload(bounded=False), 'B', None),
    }
    try:
        sent = crypto_flower.upload(work.Updates.draw(work.parameters(), work.HOSPITALS))
        found['upload_over_flower'] = ours / sent, '1', sent
    except Skipped as reason:
        print(f"Flower's bytes: {reason}", file=sys.stderr)
    for count in QUICK if quick else CURVE:
        sent = crypto_protocol.member_upload(work.parameters(), count)
        found[f'members_{count}_upload_bytes'] = sent, 'B', None
    return found


@dataclass
class Once:
    """
    What is measured once.

    :param sent: what :func:`uploads` found.
    :param large: seconds and memory of each kind of party of the large round, if there was one.
    :param virtual: seconds of a round of 200 hospitals, if there was one.
    """

    sent: Mapping[str, tuple[float, str, float | None]]
    large: crypto_party.Found = field(default_factory=dict)
    virtual: float | None = None


def measure_once(folder: Path, quick: bool) -> Once:
    """
    Measure what takes long, or does not change.

    :param folder: for ciphertexts and the parties' state.
    :param quick: whether to leave out what takes long.
    """
    progress('bytes')
    once = Once(uploads(quick))
    if not quick:
        (folder / 'large').mkdir()
        once.large = crypto_party.large_round(folder / 'large', LARGE, work.HOSPITALS, progress)
        progress(f'a round of {VIRTUAL} hospitals')
        once.virtual = crypto_protocol.virtual_round(folder, Plan().network, VIRTUAL)
    return once


def table(found: Mapping[str, Measurement], once: Once, run: dict[str, Any]) -> dict[str, Any]:
    """
    Print the table and return what goes into the file.

    :param found: what was measured in turns.
    :param run: what every figure tells of how it came.
    """
    made = Table([row.name for row in (*ROWS, *BYTES, *PARTIES)], run)
    for row in BYTES:
        if row.name in once.sent:
            value, unit, peer = once.sent[row.name]
            made.add_one(row, value, unit, peer_value=peer)
    for row in ROWS:
        if row.own in found:
            made.add(row, found)
    for row in PARTIES:
        if once.large:
            seconds, memory = once.large[row.own]
            in_seconds = row.name.endswith('_s')
            made.add_one(row, seconds if in_seconds else memory, 's' if in_seconds else 'MB')
    if once.virtual is not None:
        made.add_one(VIRTUAL_ROUND, once.virtual, 's')
    made.end()
    return made.written


def splits(folder: Path, seconds: float) -> dict[str, list[tuple[str, float]]]:
    """Return where the time of our part goes."""
    updates = work.Updates.draw(work.parameters(), work.HOSPITALS)
    works = {
        'the encrypted round': work.encrypted_rounds(updates, bounded=True),
        'the same without bounds': work.encrypted_rounds(updates, bounded=False),
        'masks and keys': work.masks_and_keys(updates),
        'a whole round of ten hospitals': crypto_protocol.protocol(
            folder, Plan().network, work.HOSPITALS
        ),
    }
    shares = {}
    for name, each in works.items():
        progress(f'where the time goes: {name}')
        shares[name] = where_time_goes(each, seconds)
    return shares


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = options('Measure the encrypted round.')
    parser.add_argument(
        '--folder',
        type=Path,
        default=Path(),
        help='on a disk; 350 MB are written in a temporary folder in it (this folder)',
    )
    parser.add_argument(
        '--quick', action='store_true', help='one short turn, without what takes long'
    )
    given = parser.parse_args()
    if given.quick:
        given.repeats, given.seconds = 1, 0.01
    check(parser, given)
    if not given.folder.is_dir():
        parser.error(f'--folder {given.folder}: there is no such folder')
    return given


def main() -> None:
    """Measure, print, write."""
    given = arguments()
    as_process()
    run = circumstances(given, work.SEED, PACKAGES)
    try:
        with tempfile.TemporaryDirectory(dir=given.folder, prefix='benchmark_') as name:
            folder, quick = Path(name), given.quick
            wanted = measurements(folder, quick)
            found = measure(wanted, given.repeats, given.seconds, warm=not quick)
            once = measure_once(folder, quick)
            shares = splits(folder, min(2.0, 2.0 * given.seconds))
    except KeyboardInterrupt:
        sys.exit('\ninterrupted: nothing is written')
    progress('')
    written = table(found, once, run)
    for title, share in shares.items():
        show_shares(title, share)
    if given.json:
        write(given.json, written)


if __name__ == '__main__':
    main()
