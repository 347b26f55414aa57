# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
What of our cryptography is measured, as work that is repeated: a round among hospitals.

All parties' work is added up, as if one processor did it for all. The key authority decrypts each
masked update alone and adds the ciphertexts once more, as in a real round, so a round holds two
sums. With bounds it also limits what each hospital adds to the sum, by projections.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
import itertools
import math
import os
from pathlib import Path
import tempfile

from benchmarking import Work
from fdrl_ros.crypto.he.encryption import PublicContext, SecretContext
from fdrl_ros.crypto.he.schemes import AnyScheme, EncryptionSettings
from fdrl_ros.crypto.keys.signing import Identity, verify
from fdrl_ros.crypto.masking.masks import leftover_mask, net_mask
from fdrl_ros.crypto.masking.merkle import root_and_paths
from fdrl_ros.crypto.masking.neighbourhoods import Neighbourhoods
from fdrl_ros.crypto.masking.round_secret import KEY_BYTES, RoundSeed
from fdrl_ros.crypto.masking.share_sealing import (
    check_parcel,
    deal,
    is_committed,
    KeyList,
    MemberKeys,
    open_parcel,
    own_keys,
    seal_shares,
    tree_of_keys,
)
from fdrl_ros.crypto.masking.sharing import Recovery
from fdrl_ros.crypto.masking.sketch import NONCE_BYTES, Sketch, write_values
from fdrl_ros.deployment.parties.hospital import open_training
from fdrl_ros.deployment.plan import Plan
from fdrl_ros.federation.protocol import message as protocol
from fdrl_ros.federation.protocol.attempt import setup_digest
from fdrl_ros.federation.protocol.sketches import (
    bound_of,
    disputed,
    false_sketches,
    keys_of_masks,
    read_sketch,
    too_long,
)
from fdrl_ros.federation.protocol.update_codec import UpdateCodec
from fdrl_ros.learner.records.collection import HospitalSimulator
from fdrl_ros.learner.records.records import Records
from fdrl_ros.privacy.noise import NoiseSource
import numpy as np
from numpy.typing import NDArray

SEED = 0
"""Of the updates, and of what rounds them."""
HOSPITALS = 10
REAL = 10
"""Members of an attempt whose keys are all real; of others', those for the first member are."""
LAYERS = (8, 128, 128, 4)
"""Units of each layer of the network that is compared: 18,180 weights."""
FEDERATION = 'measured'
SETTINGS = EncryptionSettings(limit=1.0)


def shapes(layers: Sequence[int] = LAYERS) -> list[tuple[int, ...]]:
    """Return the shape of each matrix and bias of a dense network."""
    pairs = itertools.pairwise(layers)
    return [shape for inputs, units in pairs for shape in ((units, inputs), (units,))]


def parameters(layers: Sequence[int] = LAYERS) -> int:
    """Return the weights of a dense network."""
    return sum(int(np.prod(shape)) for shape in shapes(layers))


def threshold(members: int) -> int:
    """Return t, as it is by default."""
    return 2 * members // 3 + 1


@dataclass(frozen=True)
class Updates:
    """
    What hospitals learned.

    :param values: of each hospital, shape (hospitals, parameters), float32.
    :param sizes: n_i of each.
    """

    values: NDArray[np.float32]
    sizes: tuple[int, ...]

    @classmethod
    def draw(cls, n_parameters: int, hospitals: int) -> 'Updates':
        """Make them up, with patients of 300 to 700."""
        rng = np.random.default_rng(SEED)
        values = rng.normal(0.0, 0.05, (hospitals, n_parameters)).astype(np.float32)
        return cls(values, tuple(int(each) for each in rng.integers(300, 701, hospitals)))

    @classmethod
    def alike(cls, n_parameters: int, hospitals: int) -> 'Updates':
        """Let all hospitals learn the same, which takes the memory of one."""
        one = cls.draw(n_parameters, 1).values
        return cls(np.broadcast_to(one, (hospitals, n_parameters)), (500,) * hospitals)

    @cached_property
    def mean(self) -> NDArray[np.float64]:
        """FedAvg: the mean weighted by n_i (FDRL Eq. 2)."""
        return np.average(self.values.astype(np.float64), axis=0, weights=self.sizes)


@cache
def identity(name: str) -> Identity:
    """Return the long-term key of a hospital, the same in every attempt."""
    return Identity.generate(name)


class Attempt:
    """
    Everybody's secrets and public keys in one attempt at a round.

    With more than :data:`REAL` members only the first one can mask, since deriving all keys of
    everybody would take minutes.

    :param members: how many hospitals there are.
    """

    numbers = itertools.count(1)

    def __init__(self, members: int) -> None:
        self.round = next(self.numbers)
        self.names = [f'hospital_{each:04d}' for each in range(members)]
        self._seeds = {
            name: RoundSeed.draw(federation=FEDERATION, round=self.round, name=name)
            for name in self.names
        }
        self.secrets = {name: seed.attempt(0) for name, seed in self._seeds.items()}
        self.graph = Neighbourhoods(self.names, threshold(members))
        """All mask with all."""

    def forget(self, name: str) -> None:
        """Let a hospital derive all its secrets once more."""
        self.secrets[name] = self._seeds[name].attempt(0)

    @cached_property
    def published(self) -> dict[str, MemberKeys]:
        """What everybody publishes."""
        names, secrets = self.names, self.secrets
        found = {name: own_keys(secrets[name], self.graph) for name in names[:REAL]}
        rest = os.urandom(KEY_BYTES * (len(names) - 2))
        for name in names[REAL:]:
            keys = own_keys(secrets[name], Neighbourhoods((names[0], name), 2))
            found[name] = replace(keys, mask=keys.mask + rest, sealing=keys.sealing + rest)
        return found

    def keys(self) -> KeyList:
        """Make the list that everybody's shares are bound to."""
        keys, place = self.published, (FEDERATION, self.round, 0)
        return KeyList(*place, self.graph, tuple(keys), self._root, keys=keys)

    @cached_property
    def _root(self) -> bytes:
        """Root of the tree over all keys, which a hospital gets with its path."""
        return tree_of_keys(self.published)[0]

    @cached_property
    def setup(self) -> bytes:
        """Digest of everybody's keys and names, which masks are bound to."""
        return setup_digest(self.keys(), self.names)

    def restored_seeds(self) -> dict[str, bytes]:
        """
        Let everybody share its secrets and open what others shared, and restore self seeds.

        The aggregator checks all parcels, and that the shares revealed are those in them.

        :raises RuntimeError: if one is another.
        """
        names, secrets, ours = self.names, self.secrets, self.keys()
        lists = {name: self.keys() for name in names}
        parcels = {name: seal_shares(secrets[name], lists[name]) for name in names}
        trees, signed = {}, {}
        for name, sealed in parcels.items():
            root, paths = root_and_paths([*sealed.values()])
            trees[name] = root, dict(zip(sealed, paths, strict=True))
            signed[name] = identity(name).sign(root)
        shares = {name: {name: deal(secrets[name], lists[name])[name].self_seed} for name in names}
        for dealer, holder in itertools.product(names, names):
            parcel, (root, paths) = parcels[dealer][holder], trees[dealer]
            check_parcel(ours, dealer, holder, parcel, paths[holder], root)
            if holder != dealer:
                keys, secret = lists[holder], secrets[holder].sealing(dealer)
                check_parcel(keys, dealer, holder, parcel, paths[holder], root)
                if not verify(identity(dealer).public, signed[dealer], root):
                    raise RuntimeError(f'{dealer} did not sign its parcels')
                shares[dealer][holder] = open_parcel(
                    keys, dealer, holder, parcel, secret
                ).self_seed
            share = shares[dealer][holder]
            if not is_committed(ours, dealer, holder, parcel, 'self_seed', share):
                raise RuntimeError(f'{holder} revealed another share than {dealer} dealt')
        recovery = Recovery(threshold(len(names)), names, names)
        return {name: recovery.recover(each) for name, each in shares.items()}

    def net_mask(self, name: str, scheme: AnyScheme) -> NDArray[np.int64]:
        """Return what a hospital adds to its slots, shape (ciphertexts, slots)."""
        keys = self.keys()
        return net_mask(
            self.secrets[name],
            {each: keys.mask_key(each, name) for each in self.names if each != name},
            count=scheme.ciphertexts * scheme.slots,
            modulus=scheme.plain_modulus,
            setup=self.setup,
        ).reshape(scheme.ciphertexts, scheme.slots)

    def leftover_mask(
        self, scheme: AnyScheme, self_seeds: Mapping[str, bytes] | None = None
    ) -> NDArray[np.int64]:
        """
        Return what the key authority takes off the sum when nobody dropped out.

        :param self_seeds: as restored from shares; without them those that were drawn.
        """
        drawn = {name: each.self_seed for name, each in self.secrets.items()}
        return leftover_mask(
            self.keys(),
            self.names,
            self.setup,
            self_seeds=drawn if self_seeds is None else self_seeds,
            mask_secrets={},
            count=scheme.ciphertexts * scheme.slots,
            modulus=scheme.plain_modulus,
        ).reshape(scheme.ciphertexts, scheme.slots)


def signed_sketch(sketch: Sketch, keys: KeyList, name: str, values: bytes) -> protocol.Sketch:
    """Return what a hospital says of its masks; signatures are not measured."""
    envelope = protocol.Envelope(keys.federation, keys.round, keys.attempt, name, 0)
    setup, no_root = setup_digest(keys, keys.members), b''
    return protocol.Sketch(envelope, setup, no_root, sketch.nonce, values)


def check_norms(
    codec: UpdateCodec,
    keys: KeyList,
    seeds: Mapping[str, bytes],
    sketch: Sketch,
    projected: Mapping[str, NDArray[np.int64]],
    signed: Sequence[protocol.Sketch],
) -> None:
    """
    Check what hospitals said of their masks, and how long their updates are.

    :param seeds: self seeds of the hospitals.
    :param projected: of each masked update.
    :param signed: what each hospital said.
    :raises RuntimeError: if one is refused.
    """
    values = {each.sender: read_sketch(each, keys, keys.members, codec) for each in signed}
    rows = {name: row.tolist() for name, row in projected.items()}
    lies = false_sketches(signed, keys, keys.members, seeds, {}, sketch)
    if [*disputed(values), *too_long(sketch, rows, values), *lies]:
        raise RuntimeError('an update was refused, or what was said of its masks')


class Round:
    """
    The encryption of one round: every party's part in it. The masks are made before.

    :param updates: what is averaged.
    :param bounded: whether the key authority bounds each update by projections.
    """

    def __init__(self, updates: Updates, *, bounded: bool = False) -> None:
        hospitals, n_parameters = updates.values.shape
        self.updates = updates
        agreed = n_parameters, hospitals, SETTINGS.bits, SETTINGS.limit
        self.codec = UpdateCodec.agree(*agreed, projections=SETTINGS.projections * bounded)
        self.scheme, self.quantisation = self.codec.scheme, self.codec.quantisation
        self.secret = SecretContext.generate(self.scheme)
        self.public = PublicContext.from_bytes(self.secret.public_bytes())
        self._source = NoiseSource.seeded(SEED)

    @cached_property
    def attempt(self) -> Attempt:
        """Everybody's secrets."""
        return Attempt(len(self.updates.sizes))

    @cached_property
    def masks(self) -> list[NDArray[np.int64]]:
        """What each hospital adds to its slots."""
        return [self.attempt.net_mask(name, self.scheme) for name in self.attempt.names]

    @cached_property
    def leftover(self) -> NDArray[np.int64]:
        """What is left of the masks in the sum."""
        return self.attempt.leftover_mask(self.scheme)

    def slots(self, hospital: int) -> NDArray[np.int64]:
        """Scale, quantise and pack an update."""
        sizes, values = self.updates.sizes, self.updates.values[hospital]
        uniforms = self._source.uniform('rounding', 1, hospital, values.size)
        share, base = sizes[hospital] / max(sizes), np.zeros_like(values)
        return np.stack(list(self.codec.encode(values, base, share, uniforms)))

    def masked(self, slots: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add a mask."""
        return (slots + mask) % self.scheme.plain_modulus

    def encrypt(self, slots: NDArray[np.int64], mask: NDArray[np.int64]) -> list[bytes]:
        """Mask and encrypt an update."""
        return list(self.codec.encrypt(slots, mask, self.public))

    def sketch(self, nonce: bytes) -> Sketch:
        """Return the projections that a nonce tells: each party draws them itself."""
        return Sketch(nonce, self.attempt.setup, bound_of(self.codec))

    def project(self, name: str, nonce: bytes) -> protocol.Sketch:
        """Project the masks of a hospital: it does so itself."""
        keys, sketch = self.attempt.keys(), self.sketch(nonce)
        masks = keys_of_masks(self.attempt.secrets[name], keys, keys.members)
        values = write_values(sketch.of_masks(masks), self.scheme.plain_modulus)
        return signed_sketch(sketch, keys, name, values)

    def inspect(
        self, sent: Sequence[list[bytes]], sketch: Sketch | None = None
    ) -> list[NDArray[np.int64]]:
        """
        Decrypt each masked update alone, and project it: the key authority does.

        :param sent: ciphertexts of each hospital.
        :returns: projections of each update, if there is something to project by.
        """
        found = [np.zeros(sketch.bound.rows if sketch else 0, dtype=np.int64) for _ in sent]
        for number, column in enumerate(zip(*sent, strict=True)):
            for total, ciphertext in zip(found, column, strict=True):
                slots = self.secret.inspect(ciphertext)
                if sketch is not None:
                    total += sketch.of_slots(number, slots)
                    total %= self.scheme.plain_modulus
        return found

    def check_norms(
        self,
        sketch: Sketch,
        projected: Sequence[NDArray[np.int64]],
        signed: Sequence[protocol.Sketch],
    ) -> None:
        """
        Bound the updates: the key authority does.

        :param projected: of each masked update.
        :raises RuntimeError: as :func:`check_norms`.
        """
        names, secrets = self.attempt.names, self.attempt.secrets
        seeds = {name: each.self_seed for name, each in secrets.items()}
        found = dict(zip(names, projected, strict=True))
        check_norms(self.codec, self.attempt.keys(), seeds, sketch, found, signed)

    def add(self, sent: Sequence[list[bytes]]) -> list[bytes]:
        """Add the hospitals' ciphertexts: the aggregator does, and the key authority too."""
        return [self.public.add(column) for column in zip(*sent, strict=True)]

    def agreed(self, sent: Sequence[list[bytes]]) -> list[bytes]:
        """
        Add twice and compare.

        :raises RuntimeError: if the sums differ.
        """
        sums, again = self.add(sent), self.add(sent)
        if sums != again:
            raise RuntimeError('two sums of the same ciphertexts differ')
        return sums

    def decrypt(self, sums: list[bytes]) -> NDArray[np.int64]:
        """Decrypt the sum."""
        return np.stack([self.secret.decrypt(row) for row in sums])

    def mean(self, slots: NDArray[np.int64]) -> NDArray[np.float64]:
        """Turn decrypted and unmasked sums into the mean weighted by n_i."""
        sizes = self.updates.sizes
        sums = self.quantisation.dequantise_sum(self.scheme.unpack(slots), len(sizes))
        return max(sizes) / sum(sizes) * sums

    @property
    def error(self) -> float:
        """What the mean may be off by: each hospital's value by less than a step."""
        sizes = self.updates.sizes
        return max(sizes) / sum(sizes) * len(sizes) * self.quantisation.step

    def slots_of_sum(self, sent: Sequence[list[bytes]]) -> NDArray[np.int64]:
        """Play the round from the ciphertexts on, and return the unmasked sum."""
        if self.codec.bound is None:
            self.inspect(sent)
        else:
            sketch = self.sketch(os.urandom(NONCE_BYTES))
            projected = self.inspect(sent, sketch)
            signed = [self.project(name, sketch.nonce) for name in self.attempt.names]
            self.check_norms(sketch, projected, signed)
        return self.codec.unmask(self.decrypt(self.agreed(sent)), self.leftover)

    def run(self) -> NDArray[np.float64]:
        """Play the round and return the mean."""
        sent = [self.encrypt(self.slots(each), mask) for each, mask in enumerate(self.masks)]
        return self.mean(self.slots_of_sum(sent))


def encrypted_rounds(updates: Updates, *, bounded: bool) -> Work:
    """Return work that encrypts, inspects, adds and decrypts a round; it counts rounds."""
    round = Round(updates, bounded=bounded)
    _ = round.masks, round.leftover

    def work() -> int:
        round.run()
        return 1

    return work


def projected_masks(updates: Updates) -> Work:
    """Return work that is what a bound on updates costs one hospital; it counts hospitals."""
    round = Round(updates, bounded=True)
    name, nonce = round.attempt.names[0], os.urandom(NONCE_BYTES)

    def work() -> int:
        round.project(name, nonce)
        return 1

    return work


def inspected_rounds(updates: Updates) -> Work:
    """Return work that looks at every update alone and bounds it; it counts rounds."""
    round = Round(updates, bounded=True)
    sent = [round.encrypt(round.slots(each), mask) for each, mask in enumerate(round.masks)]
    nonce = os.urandom(NONCE_BYTES)
    signed = [round.project(name, nonce) for name in round.attempt.names]

    def work() -> int:
        sketch = round.sketch(nonce)
        round.check_norms(sketch, round.inspect(sent, sketch), signed)
        return 1

    return work


def masks_and_keys(updates: Updates) -> Work:
    """Return work that makes what masks a round, adds it and takes it off; it counts rounds."""
    hospitals, n_parameters = updates.values.shape
    round = Round(updates)
    slots = round.slots(0)

    def work() -> int:
        attempt = Attempt(hospitals)
        for name in attempt.names:
            round.masked(slots, attempt.net_mask(name, round.scheme))
        round.masked(slots, -attempt.leftover_mask(round.scheme))
        return 1

    return work


def secure_rounds(updates: Updates, *, encrypted: bool = True) -> Work:
    """
    Return work that is a round with keys, shares and masks, nobody drops out; it counts rounds.

    No norm is bounded, as none is in Flower's.

    :param encrypted: whether the masked updates are encrypted, as ours are: without it what is
        left is what Flower's secure aggregation does too.
    :raises RuntimeError: in the work, if the sum is not that of the integers.
    """
    hospitals, _ = updates.values.shape
    round = Round(updates)
    scheme = round.scheme
    expected = sum(scheme.unpack(round.slots(each), count=1) for each in range(hospitals))

    def work() -> int:
        attempt = Attempt(hospitals)
        seeds = attempt.restored_seeds()
        masks = [attempt.net_mask(name, scheme) for name in attempt.names]
        updates = [(round.slots(each), mask) for each, mask in enumerate(masks)]
        if encrypted:
            sent = [round.encrypt(*each) for each in updates]
            round.inspect(sent)
            found = round.decrypt(round.agreed(sent))
        else:
            found = np.sum([round.masked(*each) for each in updates], axis=0)
        found = round.masked(found, -attempt.leftover_mask(scheme, seeds))
        if not np.array_equal(scheme.unpack(found), expected):
            raise RuntimeError('the unmasked sum is not the sum')
        round.mean(found)
        return 1

    return work


def plan() -> Plan:
    """Return the default plan, without a budget, so that a long measurement never ends it."""
    return Plan().changed({'privacy': {'budget': math.inf}})


def repeated(records: Records, patients: int) -> Records:
    """Return the records of so many patients: of the first ones again under other names."""
    rounds, rest = divmod(patients, records.n_patients)
    end = int(records.starts[rest])
    length = int(records.starts[-1])

    def again(values: np.ndarray) -> np.ndarray:
        return np.concatenate([*[values] * rounds, values[:end]])

    starts = [records.starts[:-1] + each * length for each in range(rounds)]
    return Records(
        states=again(records.states),
        actions=again(records.actions),
        rewards=again(records.rewards),
        next_states=again(records.next_states),
        terminals=again(records.terminals),
        starts=np.concatenate([*starts, records.starts[: rest + 1] + rounds * length]),
        patients=np.array([f'patient_{each}' for each in range(patients)]),
        ends=again(records.ends),
    )


def training(folder: Path, collected: int, report: Callable[[str], None]) -> Work:
    """
    Return work that is one round of default local training; it counts rounds.

    Settings, network and number of patients are the plan's, with ledger and secure noise.

    :param collected: patients that are operated on, the others repeat them; 0: all.
    """
    used = plan()
    patients = used.collection.patients
    fewer = used.changed({'collection': {'patients': collected or patients}})
    records = HospitalSimulator(used.task, used.world, fewer.collection).collect(
        used.population(0),
        progress=lambda done, count: (
            report(f'operating on patient {done} of {count}') if done % 50 == 0 else None
        ),
    )
    home = Path(tempfile.mkdtemp(dir=folder))
    trainer = open_training(home, used.hospitals[0], used, repeated(records, patients))
    weights, rounds = used.network.draw(np.random.default_rng(SEED)), itertools.count(1)

    def work() -> int:
        trainer.train(weights, next(rounds), report=lambda told: None, stopped=lambda: False)
        return 1

    return work
