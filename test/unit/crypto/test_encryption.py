# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Encryption: the decrypted sum is the sum, and no bytes crash or fool the parties."""

import math
from pathlib import Path
import runpy

from fdrl_ros.crypto.he import tenseal_backend
from fdrl_ros.crypto.he.encryption import PublicContext, SecretContext
from fdrl_ros.crypto.he.schemes import choose_scheme
from fdrl_ros.crypto.he.tenseal_backend import BACKENDS, Bfv
from fdrl_ros.errors import CryptoError
from hypothesis import given, settings, strategies
import numpy as np
import pytest
import tenseal as ts
import tenseal.sealapi as seal

# One prime and two values a slot, without its lowest byte, and without two of them; a larger
# prime; two primes and three values; two primes at many members; a few bits, many values a slot.
SHAPES = [
    (8192, 10, 16),
    (8192, 3, 16),
    (8192, 24, 16),
    (12288, 10, 16),
    (8192, 33, 16),
    (24_000, 10, 4),
    (45_000, 3, 2),
]


@pytest.fixture(scope='module')
def secret():
    return SecretContext.generate(choose_scheme(8000, 3, 16))


@pytest.fixture(scope='module')
def public(secret):
    return PublicContext.from_bytes(secret.public_bytes())


@pytest.fixture(scope='module', params=SHAPES, ids=str)
def key_authority(request):
    return SecretContext.generate(choose_scheme(*request.param))


@settings(max_examples=2, deadline=None)
@given(seed=strategies.integers(0, 2**32), fraction=strategies.floats(0, 1))
def test_decrypted_sum_of_all_members_is_the_plaintext_sum(key_authority, seed, fraction):
    scheme, rng = key_authority.scheme, np.random.default_rng(seed)
    top = 2**scheme.bits - 1
    integers = rng.integers(0, top + 1, (scheme.members, scheme.n_parameters))
    integers[:, rng.random(scheme.n_parameters) < fraction] = top
    packed = [scheme.pack(row) for row in integers]
    sums = []
    for place in range(scheme.ciphertexts):
        encrypted = [key_authority.public.encrypt(rows[place]) for rows in packed]
        sums.append(key_authority.decrypt(key_authority.public.add(encrypted)))
    assert np.array_equal(scheme.unpack(np.array(sums)), integers.sum(axis=0))


def test_noise_of_a_full_sum_stays_within_the_proven_margin(key_authority):
    scheme, public = key_authority.scheme, key_authority.public
    edge = np.full(scheme.slots, scheme.plain_modulus - 1)
    total = public.add([public.encrypt(edge) for _ in range(scheme.members)])
    values, budget = key_authority.backend.decrypt(public.residues(total))
    assert budget >= math.floor(scheme.noise_margin) >= 1
    assert (values == -scheme.members % scheme.plain_modulus).all()


@pytest.mark.parametrize('sign', [1, -1])
def test_a_full_sum_of_the_worst_noise_decrypts_exactly(key_authority, sign):
    # c0 = round(q m / t) + e - s and c1 = 1: the noise is known to the unit, in every coefficient.
    scheme, public, t = (
        key_authority.scheme,
        key_authority.public,
        key_authority.scheme.plain_modulus,
    )
    q, worst = math.prod(scheme.moduli), int(scheme.fresh_noise) - 1
    rng = np.random.default_rng(15)
    updates = rng.integers(0, t, (scheme.members, scheme.poly_degree)).astype(object)
    updates[:, : scheme.poly_degree // 2] = t - 1

    def sent(update, noise):
        scaled = (2 * q * update + t) // (2 * t) + noise
        residues = np.zeros((2, len(scheme.moduli), scheme.poly_degree), dtype=np.uint64)
        residues[0] = [scaled % prime for prime in scheme.moduli]
        residues[1, :, 0] = 1
        return residues

    total = public.add([public.to_wire(sent(update, sign * worst)) for update in updates])
    expected, _ = key_authority.backend.decrypt(sent(updates.sum(axis=0) % t, 0))
    assert np.array_equal(key_authority.decrypt(total), expected)
    # Half a step from one message to the next is too much, so the test measures what it says.
    spoiled, _ = key_authority.backend.decrypt(sent(updates[0], sign * (q // (2 * t) + 2)))
    clean, _ = key_authority.backend.decrypt(sent(updates[0], 0))
    assert not np.array_equal(spoiled, clean)


def test_added_residues_are_what_the_library_adds(key_authority):
    public, rng = key_authority.public, np.random.default_rng(3)
    backend, scheme = public.backend, public.scheme
    rows = rng.integers(0, scheme.plain_modulus, (2, scheme.slots))
    ours = [public.residues(public.encrypt(row)) for row in rows]
    theirs = seal.Ciphertext()
    backend.evaluator.add(*(backend.load(residues) for residues in ours), theirs)
    total = public.to_wire(backend.read_residues(theirs))
    assert public.add([public.to_wire(residues) for residues in ours]) == total


@pytest.mark.parametrize('shape', [(8000, 40, 16), (8000, 1000, 16)])
def test_sums_of_many_members_do_not_pass_64_bits(shape):
    # Residues are added before they are reduced, as many as there is room for.
    public = SecretContext.generate(choose_scheme(*shape)).public
    scheme = public.scheme
    primes = np.array(scheme.moduli, dtype=np.uint64)[:, None]
    top = np.broadcast_to(primes - 1, (2, len(primes), scheme.poly_degree))
    total = public.residues(public.add([public.to_wire(top)] * scheme.members))
    assert np.array_equal(total, np.broadcast_to(primes - scheme.members, total.shape))


def test_low_bytes_that_do_not_travel_change_a_residue_by_half_of_them_at_most(secret, public):
    scheme, rng = public.scheme, np.random.default_rng(12)
    prime, half = scheme.moduli[0], 2**15
    assert scheme.dropped_bytes == 2
    residues = rng.integers(0, prime, (2, 1, 4096), dtype=np.uint64)
    residues[0, 0, :3] = 0, prime - 1, prime - half
    again = public.residues(public.to_wire(residues))
    assert np.array_equal(again[1], residues[1])
    difference = (again[0].astype(object) - residues[0] + half) % prime
    assert difference.max() <= 2 * half and (again < prime).all()


def test_nothing_is_printed_and_no_two_encryptions_are_the_same(secret, public, capfd):
    slots = np.zeros(public.scheme.slots, dtype=np.int64)
    one, other = public.encrypt(slots), public.encrypt(slots)
    secret.decrypt(one)
    assert capfd.readouterr() == ('', '') and one != other
    assert repr(secret) == f'SecretContext(public={secret.public.digest})'


def test_public_context_has_no_secret_and_cannot_decrypt(secret, public):
    hidden = secret.to_bytes()[-1024:-32]
    assert hidden not in secret.public_bytes()
    assert not hasattr(public, 'decrypt')
    with pytest.raises(CryptoError, match='cannot decrypt'):
        public.backend.decrypt(public.residues(public.encrypt(np.zeros(4096, dtype=np.int64))))
    assert public.backend.decryptor is None
    # Two polynomials modulo two primes, and not a byte besides the line that names the scheme.
    assert len(secret.public_bytes().split(b'}\n', 1)[1]) == 2 * 2 * 4096 * 8


def test_contexts_come_back_from_their_bytes(secret, public):
    again = SecretContext.from_bytes(secret.to_bytes())
    assert again.public_bytes() == secret.public_bytes() == public.to_bytes()
    assert again.public.digest == secret.public.digest == public.digest
    assert again.scheme == public.scheme == secret.scheme
    slots = np.arange(4096)
    assert np.array_equal(again.decrypt(public.encrypt(slots)), slots)


@pytest.mark.parametrize(
    'slots',
    [
        np.zeros(4095, dtype=np.int64),
        np.zeros(4097, dtype=np.int64),
        np.zeros((1, 4096), dtype=np.int64),
        np.zeros(4096),
        np.full(4096, -1),
        np.full(4096, 2**61),
    ],
)
def test_slots_that_do_not_fit_are_refused(public, slots):
    with pytest.raises(CryptoError):
        public.encrypt(slots)


def tenseal_vector():
    """Return what TenSEAL itself would send."""
    context = ts.context(ts.SCHEME_TYPE.BFV, 4096, 1032193)
    return ts.bfv_vector(context, [1, 2, 3]).serialize()


def test_residues_of_no_whole_bytes_travel_without_gaps():
    scheme = choose_scheme(6928, 10_000, 16, projected=True)
    assert (scheme.residue_bits, scheme.dropped_bytes) == ((60,), 1)
    assert scheme.ciphertext_bytes == 32 + 4096 * (60 + 52) // 8
    secret = SecretContext.generate(scheme)
    row = scheme.completed(np.arange(4096) * (scheme.plain_modulus // 4096))
    sent = secret.public.encrypt(row)
    assert len(sent) == scheme.ciphertext_bytes
    np.testing.assert_array_equal(secret.inspect(sent), row)
    total = secret.public.add([sent] * 3)
    np.testing.assert_array_equal(secret.decrypt(total), 3 * row % scheme.plain_modulus)


def malformed(public):
    """Yield ciphertexts that are none of this context, by name."""
    good = public.encrypt(np.arange(4096))
    other = SecretContext.generate(public.scheme).public
    large = SecretContext.generate(choose_scheme(8000, 40, 16)).public
    second = public.scheme.poly_degree * public.scheme.residue_bits[0] // 8
    yield 'empty', b''
    yield 'one byte short', good[:-1]
    yield 'huge', bytes(10 * len(good))
    yield 'residues above the prime', good[:32] + b'\xff' * (len(good) - 32)
    yield 'another key', other.encrypt(np.arange(4096))
    yield 'another scheme', large.encrypt(np.arange(4096))
    yield 'not encrypted', good[:-second] + bytes(second)
    yield 'a TenSEAL vector', tenseal_vector()
    yield 'not bytes', 'text'
    yield 'mutable', bytearray(good)
    yield 'nothing', None


def test_malformed_ciphertexts_are_refused_by_everyone(secret, public):
    good = public.encrypt(np.arange(4096))
    for name, bad in malformed(public):
        for use in (lambda c: public.add([c]), lambda c: public.add([good, c]), secret.decrypt):
            with pytest.raises(CryptoError):
                use(bad)
                pytest.fail(name)


def test_too_many_or_no_ciphertexts_are_refused(public):
    good = public.encrypt(np.arange(4096))
    for count in (0, 4):
        with pytest.raises(CryptoError, match='expected 1 to 3 members'):
            public.add([good] * count)


def test_random_ciphertexts_are_refused_at_decryption(secret, public):
    # They are well-formed, so anybody adds them; the noise gives them away (all of 20 pass
    # unseen with a chance below 2^-1000: each needs 4,096 small coefficients).
    rng = np.random.default_rng(5)
    for _ in range(20):
        residues = rng.integers(0, public.scheme.moduli[0], (2, 1, 4096), dtype=np.uint64)
        with pytest.raises(CryptoError, match='noise budget'):
            secret.decrypt(public.add([public.to_wire(residues)]))


def test_flipped_bits_are_refused_or_decrypt_without_a_crash(secret, public):
    rng = np.random.default_rng(6)
    good, refused = public.encrypt(np.arange(4096)), 0
    places = [*range(0, 256, 17), *rng.integers(0, 8 * len(good), 80)]
    for place in places:
        flipped = bytearray(good)
        flipped[place // 8] ^= 1 << place % 8
        try:
            values = secret.decrypt(public.add([bytes(flipped)]))
            assert values.min() >= 0 and values.max() < public.scheme.plain_modulus
        except CryptoError:
            refused += 1
    # All in the digest, and those in the rest that leave visible noise.
    assert refused > len(places) / 5


@pytest.mark.parametrize('kind', [PublicContext, SecretContext])
def test_flipped_bit_in_a_context_is_refused_or_changes_a_public_digest(secret, kind):
    rng = np.random.default_rng(8)
    data = secret.public_bytes() if kind is PublicContext else secret.to_bytes()
    for place in [*range(0, 8 * 240, 31), *rng.integers(8 * 240, 8 * len(data), 30)]:
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        try:
            found = kind.from_bytes(bytes(flipped))
        except CryptoError:
            continue
        assert kind is PublicContext and found.digest != secret.public.digest


BEGUN = b'fdrl_ros public context 1\n'


FIELDS = (
    b'',
    b'[' * 5000,
    b'[' * 1000 + b'\n',
    b'[]\n',
    b'{"coefficient_bits": 3}\n',
    b'\xff\xfe\n',
)


@pytest.mark.parametrize('data', [b'', None, *(BEGUN + fields for fields in FIELDS)])
def test_what_is_no_context_is_refused(data):
    for context in (PublicContext, SecretContext):
        with pytest.raises(CryptoError):
            context.from_bytes(data)


def test_public_and_secret_contexts_are_not_each_other_and_have_one_length(secret):
    public = secret.public_bytes()
    for kind, data in (
        (SecretContext, public),
        (PublicContext, secret.to_bytes()),
        (PublicContext, public + b'\0'),
        (PublicContext, public[:-1]),
    ):
        with pytest.raises(CryptoError):
            kind.from_bytes(data)


def test_residues_of_a_key_that_are_not_below_their_primes_are_refused(secret):
    data, scheme = secret.public_bytes(), secret.scheme
    polynomials = np.frombuffer(data[-2 * 8 * len(scheme.key_moduli) * 4096 :], np.uint64)
    for row, prime in enumerate(scheme.key_moduli):
        residues = polynomials.reshape(2, -1, 4096).copy()
        residues[1, row, 7] = prime
        with pytest.raises(CryptoError, match='a residue is not below its prime'):
            PublicContext.from_bytes(data[: -residues.nbytes] + residues.tobytes())


class Clear:
    """A library that hides nothing: the message is the second polynomial."""

    def __init__(self, scheme, *, public_key, secret_key=None):
        self.scheme = scheme

    @classmethod
    def generate(cls, scheme):
        keys = np.ones((3, len(scheme.key_moduli), scheme.poly_degree), dtype=np.uint64)
        return keys[:2], keys[2]

    def encrypt(self, message):
        return np.stack([np.ones_like(message[None]), message[None]]).astype(np.uint64)

    def decrypt(self, residues):
        return residues[1, 0].astype(np.int64) % self.scheme.plain_modulus, 64


def test_another_library_takes_the_place_of_tenseal(monkeypatch):
    monkeypatch.setitem(BACKENDS, 'bfv', Clear)
    scheme, rng = choose_scheme(8000, 3, 16), np.random.default_rng(14)
    secret = SecretContext.generate(scheme)
    public = PublicContext.from_bytes(secret.public_bytes())
    updates = rng.integers(0, 2**16, (3, 8000))
    sent = [public.encrypt(scheme.pack(update)[0]) for update in updates]
    sums = scheme.unpack([secret.decrypt(public.add(sent))])
    assert np.array_equal(sums, updates.sum(axis=0))


def test_a_scheme_without_its_library_is_refused_at_import(tmp_path):
    source = Path(tenseal_backend.__file__).read_text('utf-8')
    (tmp_path / 'one.py').write_text(source.replace(", 'ckks': Ckks}", '}'), 'utf-8')
    with pytest.raises(CryptoError, match='expected one for each of'):
        runpy.run_path(str(tmp_path / 'one.py'))


def test_a_library_refuses_a_scheme_of_another():
    with pytest.raises(CryptoError, match="CkksScheme: SEAL's BFV expects BfvScheme"):
        Bfv.generate(choose_scheme(100, 3, 16, 'ckks'))


def test_keys_of_two_pairs_do_not_make_one():
    scheme = choose_scheme(100, 3, 16)
    public_key, _ = Bfv.generate(scheme)
    _, secret_key = Bfv.generate(scheme)
    with pytest.raises(CryptoError, match='does not belong'):
        SecretContext(scheme, public_key=public_key, secret_key=secret_key)
