# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""Train segmenters by one of the compared methods; federated ones over the real protocol."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
import time

from fdrl_ros.crypto.he.schemes import EncryptionSettings
from fdrl_ros.errors import SettingError, TrainingStopped
from fdrl_ros.federation.hospital.hospital import Hospital
from fdrl_ros.federation.key_authority.server_step import (
    fed_avg,
    RoundSum,
    ServerStep,
    Stepped,
)
from fdrl_ros.federation.local_driver import LocalFederation
from fdrl_ros.federation.protocol.message import MaskedUpdate, Message
from fdrl_ros.federation.virtual import PlainLearner, VirtualFederation
from fdrl_ros.learner.torch.flat_weights import flat, layout_of, load
from fdrl_ros.segmentation.clip import Clip
from fdrl_ros.segmentation.network.losses import segmentation_loss
from fdrl_ros.segmentation.network.personal import personal_tensors
from fdrl_ros.segmentation.network.segmenter import Segmenter, SegmenterSettings
from fdrl_ros.segmentation.training.batches import Sampler
from fdrl_ros.segmentation.training.methods import Method
from fdrl_ros.segmentation.training.serq import Serq
from fdrl_ros.segmentation.training.settings import ServerSettings, SiteSettings
from fdrl_ros.segmentation.training.site_training import SiteTraining, update_limit
import numpy as np
from numpy.typing import NDArray
import torch

Weights = NDArray[np.float32]
Told = Callable[[int, str], None]
"""Told how many training steps are done, and where."""


@dataclass(frozen=True, eq=False)
class VideoSites:
    """
    Who has which clips.

    :param training: of each site of the federation.
    :param synthetic: of the key authority.
    :param vectors: of each prompt, by the kind of prompt and the site; the server's is `server`.
    """

    training: Mapping[str, Sequence[Clip]]
    synthetic: Sequence[Clip]
    vectors: Mapping[str, Mapping[str, Weights]]


@dataclass(frozen=True)
class Schedule:
    """
    How long is trained.

    :param rounds: of the federation, each of `site.steps` steps in each site.
    :param pretraining: steps on synthetic frames before, by everybody.
    """

    rounds: int
    pretraining: int
    site: SiteSettings = field(default_factory=SiteSettings)
    server: ServerSettings = field(default_factory=ServerSettings)


@dataclass(frozen=True, eq=False)
class Trained:
    """
    What a method made.

    :param settings: of the segmenter.
    :param weights: of each site's model, shape (n_parameters,).
    :param unseen: models for a site outside, by the name of the way they are made.
    :param upload: bytes that a site encrypted and sent in a round, and what FedST's Table IX
        counts: four for each shared weight. Both 0 where nothing is sent.
    :param seconds: of training, in sites and at the server.
    """

    settings: SegmenterSettings
    weights: Mapping[str, Weights]
    unseen: Mapping[str, Weights]
    upload: tuple[float, int]
    seconds: tuple[float, float]

    def segmenter(self, name: str) -> Segmenter:
        """Return the model of a site, or one for a site outside, ready to be used."""
        segmenter = Segmenter(self.settings)
        load(segmenter, layout_of(segmenter), {**self.unseen, **self.weights}[name])
        return segmenter.eval()


class MeasuredDriver(LocalFederation):
    """An in-process driver that counts the bytes of encrypted updates."""

    def __init__(self) -> None:
        super().__init__({})
        self.sent = 0

    def post(self, message: Message) -> None:
        """Count and deliver a message."""
        if isinstance(message, MaskedUpdate):
            self.sent += len(message.ciphertext)
        super().post(message)


def architecture(method: Method, size: str, text: int) -> SegmenterSettings:
    """Return what a method's segmenter is made of."""
    return SegmenterSettings(size, method.temporal, method.channels, text)


def pretrained(
    settings: SegmenterSettings, sites: VideoSites, schedule: Schedule, seed: int, told: Told
) -> Weights:
    """
    Train a segmenter on single synthetic frames, as everybody's start.

    :returns: shape (n_parameters,); encoder, fusion and head are the same for all settings of a
        size, temporal module and channel selection as they were drawn.
    """
    plain = replace(settings, temporal=False, channels=False)
    segmenter = Segmenter(plain, np.random.default_rng([seed, 10]))
    rng = np.random.default_rng([seed, 11])
    sampler = Sampler(sites.synthetic, schedule.site, 1)
    optimiser = torch.optim.AdamW(segmenter.parameters(), lr=schedule.site.rate)
    segmenter.train()
    for step in range(schedule.pretraining):
        batch = sampler.draw(rng)
        logits = segmenter.plain(segmenter.features(batch.frames[:, -1]))
        loss = segmentation_loss(logits, batch.labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        told(step + 1, 'synthetic')
    whole = Segmenter(settings, np.random.default_rng([seed, 13]))
    whole.load_state_dict(segmenter.state_dict(), strict=False)
    return flat(whole, layout_of(whole))


def steps_of(method: Method, sites: int, schedule: Schedule) -> int:
    """Return how many steps :func:`train` takes, for progress."""
    server = schedule.rounds * 2 * schedule.server.steps if method.serq else 0
    return schedule.pretraining + schedule.rounds * schedule.site.steps * sites + server


def train(
    method: Method, size: str, sites: VideoSites, schedule: Schedule, seed: int, told: Told
) -> Trained:
    """
    Train by a method.

    All methods begin with the same pre-trained encoder, fusion and head, and all sites together
    take the same number of steps in each.

    :param told: may raise to stop.
    :raises SettingError: if a prompt is to tell sites apart where all clips are one site.
    """
    if method.where == 'pooled' and method.channels:
        raise SettingError('prompt', method.prompt, 'none where all clips are one site')
    length = len(next(iter(sites.vectors['text'].values())))
    settings = architecture(method, size, length)
    start = pretrained(settings, sites, schedule, seed, told)
    run = _Run(method, settings, sites, schedule, seed, told)
    match method.where:
        case 'alone':
            return run.alone(start)
        case 'pooled':
            return run.pooled(start)
        case _:
            return run.federated(start)


class _Run:
    """One training by a method, from the start on."""

    def __init__(
        self,
        method: Method,
        settings: SegmenterSettings,
        sites: VideoSites,
        schedule: Schedule,
        seed: int,
        told: Told,
    ) -> None:
        self._method, self._settings, self._sites = method, settings, sites
        self._schedule, self._seed, self._told = schedule, seed, told
        self._done = schedule.pretraining
        self._driver: MeasuredDriver | None = None
        self._stopped: TrainingStopped | None = None
        self._begun, self._at_server = time.perf_counter(), 0.0

    def alone(self, start: Weights) -> Trained:
        """Let each site train for itself."""
        models = {}
        for name in self._sites.training:
            step, models[name] = self._step(name), start
            for round in range(1, self._schedule.rounds + 1):
                models[name] = step(models[name], round)
        return self._trained(models, dict(models))

    def pooled(self, start: Weights) -> Trained:
        """Train one model on the clips of all sites, with as many steps as they take together."""
        names, weights, step = list(self._sites.training), start, self._step('')
        for round in range(1, self._schedule.rounds * len(names) + 1):
            weights = step(weights, round)
        return self._trained(dict.fromkeys(names, weights), {'own': weights})

    def federated(self, start: Weights) -> Trained:
        """Train over the protocol, with masks and encryption."""
        method, names = self._method, list(self._sites.training)
        model = Segmenter(self._settings)
        personal, layout = tuple(personal_tensors(model, method.personal)), layout_of(model)
        hospitals = {f'site_{name.lower()}': name for name in names}
        driver = MeasuredDriver()
        federation = VirtualFederation(
            {
                hospital: PlainLearner(self._step(name), n_units=1, seed=self._seed + number)
                for number, (hospital, name) in enumerate(hospitals.items())
            },
            start,
            layout,
            personal=personal,
            step=self._serq(start) if method.serq else fed_avg,
            driver=driver,
            encryption=replace(EncryptionSettings(), limit=update_limit(self._schedule.site)),
        )
        self._driver = driver
        try:
            weights = federation.play(self._schedule.rounds)
        finally:
            if self._stopped is not None:  # to the federation it is one hospital's business
                raise self._stopped
        models = {}
        for hospital, name in hospitals.items():
            party = federation.parties[hospital]
            assert isinstance(party, Hospital)
            own = party.with_own_layers()
            models[name] = weights if own is None else own
        unseen = {'server': weights}
        if personal:
            # The paper averages what is personal for a site outside: the server would see it.
            together = np.stack([models[name] for name in names]).astype(np.float64)
            unseen['average'] = together.mean(axis=0).astype(np.float32)
        sent = driver.sent / (self._schedule.rounds * len(names))
        return self._trained(models, unseen, (sent, 4 * int(layout.shared(personal).size)))

    def _step(self, name: str) -> Callable[[Weights, int], Weights]:
        """Return the step of a site, or of all clips together without a name."""
        sites, prompt = self._sites, self._method.prompt or 'text'
        number = [*sites.training, ''].index(name)
        clips = sites.training[name] if name else [c for e in sites.training.values() for c in e]
        vectors = sites.vectors[prompt]
        step = SiteTraining(
            clips,
            Segmenter(self._settings),
            vectors[name] if name else next(iter(vectors.values())),
            self._schedule.site,
            (self._seed, 12, number),
        )

        def trained(weights: Weights, round: int) -> Weights:
            after = step(weights, round)
            self._advance(self._schedule.site.steps, name or 'all sites')
            return after

        return trained

    def _serq(self, start: Weights) -> ServerStep:
        """Return the step of the server."""
        server = self._schedule.server
        models = Segmenter(self._settings), Segmenter(self._settings)
        serq = Serq(models, start, self._sites.synthetic, server, self._seed)

        def stepped(given: RoundSum) -> Stepped:
            before = time.perf_counter()
            found = serq(given)
            self._at_server += time.perf_counter() - before
            self._advance(2 * server.steps, 'server')
            return found

        return stepped

    def _advance(self, steps: int, who: str) -> None:
        self._done += steps
        try:
            self._told(self._done, who)
        except TrainingStopped as stopped:
            self._stopped = stopped
            if self._driver is not None:
                self._driver.stop()
            raise

    def _trained(
        self,
        models: Mapping[str, Weights],
        unseen: Mapping[str, Weights],
        upload: tuple[float, int] = (0.0, 0),
    ) -> Trained:
        seconds = time.perf_counter() - self._begun - self._at_server, self._at_server
        return Trained(self._settings, models, unseen, upload, seconds)
