# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""
Flower's secure aggregation (SecAgg+, Bell et al. 2020), which our masked round is compared with.

Flower's own code does it: its workflow is the server, its `secaggplus_mod` is each hospital. Only
the network is left out: messages travel in this process, written and read as its protocol buffers.
A round holds two P-384 key pairs for each hospital, Shamir shares of a private key and of the seed
of its own mask, sealed with Fernet; clipping, quantising to 22 bits, masks modulo 2^32; the masked
sum, the shares of all seeds, and the sum without masks. Nobody drops out.

What flwr 1.42.0 does not do, by its sources (below `flwr/`):

- `common/secure_aggregation/secaggplus_utils.py`, `pseudo_rand_gen`: each mask comes from NumPy's
  `RandomState` (MT19937, not a cryptographic generator), seeded with the exclusive or of the
  32-bit words of its key or seed: 32 bits. A pair's key is the letters of a base64 string
  (`crypto/symmetric_encryption.py`), which leave the top bit of each byte 0: 28 bits.
- No encryption of the sum: the server has it in the clear.
- `client/mod/secure_aggregation/secaggplus_mod.py`: neither keys nor the lists of who dropped out
  are signed. A hospital accepts those that the server sends, which has to follow the protocol.
- `server/workflow/secure_aggregation/secaggplus_workflow.py`: a masked vector of any values enters
  the mean. A wrong share ends the round with "Failed to combine shares" and no name (tried).
"""

from collections.abc import Iterable, Sequence
import importlib
import logging
from types import SimpleNamespace
from typing import Any

from benchmarking import has, Skipped, Work
from crypto_work import LAYERS, SEED, shapes, threshold, Updates
import numpy as np
from numpy.typing import NDArray

INSTALL = 'pip install --no-deps -r requirements/flower.txt'
EXAMPLE = 3
"""Shares, a hospital's own included, in Flower's example; the workflow itself has no default."""
EXAMPLE_THRESHOLD = 2
SERVER, FIRST_NODE = 0, 2**62
"""Flower draws the number of a node from 64 bits; these are as long."""


USED = {
    'flwr.app': ('ArrayRecord', 'ConfigRecord', 'Context', 'Message', 'RecordDict'),
    'flwr.client.mod': ('secaggplus_mod',),
    'flwr.common': ('Code', 'FitIns', 'FitRes', 'Status'),
    'flwr.common.secure_aggregation.ndarrays_arithmetic': ('parameters_multiply',),
    'flwr.common.secure_aggregation.quantization': ('quantize',),
    'flwr.common.serde': ('recorddict_from_proto', 'recorddict_to_proto'),
    'flwr.compat.common.parameter': ('ndarrays_to_parameters', 'parameters_to_ndarrays'),
    'flwr.compat.common.recorddict_compat': ('fitres_to_recorddict',),
    'flwr.server': ('LegacyContext',),
    'flwr.server.workflow': ('SecAggPlusWorkflow', 'SecAggWorkflow'),
    'flwr.server.workflow.constant': ('Key', 'MAIN_CONFIGS_RECORD', 'MAIN_PARAMS_RECORD'),
    'flwr.supercore.task_identity': ('TaskIdentity',),
}
"""What is used of Flower, by module; some is not its public interface, so the version is fixed."""


def imported() -> Any:
    """
    Return all of :data:`USED`.

    :raises Skipped: if it is not installed, or another version that has not all of it.
    """
    if not has('flwr'):
        raise Skipped(f'flwr is missing: {INSTALL}')
    try:
        found = {
            name: getattr(importlib.import_module(module), name)
            for module, names in USED.items()
            for name in names
        }
    except (ImportError, AttributeError) as error:
        raise Skipped(f'flwr cannot be used ({error}): {INSTALL}') from None
    flwr = SimpleNamespace(**found)
    # Its messages ask in which process of Flower they are made; here there is none.
    identity = flwr.TaskIdentity
    identity.run_id, identity.node_id, identity.task_id = 1, SERVER, 1
    logging.getLogger('flwr').setLevel(logging.WARNING)
    return flwr


class Flower:
    """
    Hospitals with `secaggplus_mod`, and what lies between them and Flower's workflow.

    To the workflow this is both its grid, which delivers messages, and its strategy.

    :param updates: what is averaged.
    :param shares: how many hospitals hold a hospital's shares and masks, itself included; without
        it all of them, with our threshold.
    :param needed: of them, those that restore its secrets.
    :param layers: units of each layer of the network.
    :raises Skipped: if Flower is not installed.
    """

    def __init__(
        self,
        updates: Updates,
        *,
        shares: int | None = None,
        needed: int = EXAMPLE_THRESHOLD,
        layers: Sequence[int] = LAYERS,
    ) -> None:
        self._flwr = flwr = imported()
        members, cuts = len(updates.sizes), np.cumsum([np.prod(each) for each in shapes(layers)])
        if shares is None:
            self._workflow = flwr.SecAggWorkflow(threshold(members) / members)
        else:
            self._workflow = flwr.SecAggPlusWorkflow(shares, needed)
        self._sizes = dict(enumerate(updates.sizes, FIRST_NODE))
        self._layers = {
            node: [
                layer.reshape(shape)
                for layer, shape in zip(np.split(values, cuts[:-1]), shapes(layers), strict=True)
            ]
            for node, values in enumerate(updates.values, FIRST_NODE)
        }
        self._ratios = {
            node: round(size / self._workflow.max_weight * self._workflow.quantization_range)
            for node, size in self._sizes.items()
        }
        self._expected = np.sum([self.quantised(node) for node in self._sizes], axis=0)
        self._contexts: dict[int, Any] = {}
        self._mean: NDArray[np.float64] | None = None
        self.sent: dict[int, int] = {}

    def quantised(self, node: int) -> NDArray[np.int64]:
        """Return the integers that a hospital masks, shape (parameters,)."""
        workflow, flwr = self._workflow, self._flwr
        self._seed(node)
        weight = self._ratios[node] / workflow.quantization_range
        scaled = flwr.parameters_multiply(self._layers[node], weight)
        layers = flwr.quantize(scaled, workflow.clipping_range, workflow.quantization_range)
        return np.concatenate([each.ravel() for each in layers]).astype(np.int64)

    def run(self) -> NDArray[np.float64]:
        """
        Play a round and return the mean, shape (parameters,).

        :raises RuntimeError: if there is none, or it does not follow from the sum of integers.
        """
        flwr = self._flwr
        self._mean, self.sent = None, dict.fromkeys(self._sizes, 0)
        self._contexts = {node: self._context(node) for node in self._sizes}
        server = flwr.LegacyContext(self._context(SERVER), strategy=self)
        state = server.state
        state.config_records[flwr.MAIN_CONFIGS_RECORD] = flwr.ConfigRecord(
            {flwr.Key.CURRENT_ROUND: 1}
        )
        state.array_records[flwr.MAIN_PARAMS_RECORD] = flwr.ArrayRecord()
        self._workflow(self, server)
        if self._mean is None:
            raise RuntimeError("Flower's round ended without a mean")
        if not np.array_equal(self._integers(self._mean), self._expected):
            raise RuntimeError("Flower's sum is not the sum of the quantised updates")
        return self._mean

    def _integers(self, mean: NDArray[np.float64]) -> NDArray[np.float64]:
        """Undo the last steps of Flower's server: return the sums that it dequantised."""
        limit, values = self._workflow.clipping_range, self._workflow.quantization_range
        totals = mean * sum(self._ratios.values()) / values + len(self._sizes) * limit
        return np.round(totals * values / (2 * limit), 3)  # float64 holds them to 1e-7

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None) -> list[Any]:
        """Deliver what the server sends, and return what the hospitals answer."""
        flwr, answers = self._flwr, []
        for message in messages:
            node = message.metadata.dst_node_id
            message.content, _ = self._travel(message.content)
            answer = flwr.secaggplus_mod(message, self._contexts[node], self._train)
            answer.content, sent = self._travel(answer.content)
            self.sent[node] += sent
            answers.append(answer)
        return answers

    def configure_fit(self, *_: Any) -> list[tuple[Any, Any]]:
        """Ask every hospital to train, by no weights: what goes down is not compared."""
        nothing = self._flwr.FitIns(self._flwr.ndarrays_to_parameters([]), {})
        return [(SimpleNamespace(node_id=node), nothing) for node in self._sizes]

    def aggregate_fit(self, _: int, results: Sequence[Any], failures: Sequence[Any]) -> Any:
        """Keep the mean, which Flower puts in the place of every hospital's update."""
        if not failures:
            layers = self._flwr.parameters_to_ndarrays(results[0][1].parameters)
            self._mean = np.concatenate([each.ravel() for each in layers])
        return None, {}

    def _train(self, message: Any, _: Any) -> Any:
        """Return a hospital's update, known before."""
        flwr, node = self._flwr, message.metadata.dst_node_id
        self._seed(node)
        parameters = flwr.ndarrays_to_parameters(self._layers[node])
        status = flwr.Status(flwr.Code.OK, '')
        result = flwr.FitRes(status, parameters, self._sizes[node], {})
        return flwr.Message(flwr.fitres_to_recorddict(result, keep_input=True), reply_to=message)

    def _seed(self, node: int) -> None:
        """Let Flower round as it did before: it draws from NumPy's global generator."""
        np.random.seed([SEED, node - FIRST_NODE])

    def _travel(self, content: Any) -> tuple[Any, int]:
        """Write and read the content of a message; return it, and how many bytes it took."""
        written = self._flwr.recorddict_to_proto(content)
        data = written.SerializeToString()
        return self._flwr.recorddict_from_proto(type(written).FromString(data)), len(data)

    def _context(self, node: int) -> Any:
        flwr = self._flwr
        return flwr.Context(
            run_id=1, node_id=node, node_config={}, state=flwr.RecordDict(), run_config={}
        )


def flower_rounds(updates: Updates, *, shares: int | None = None) -> Work:
    """
    Return work that is a round of Flower's secure aggregation; it counts rounds.

    :raises Skipped: if Flower is not installed.
    """
    flower = Flower(updates, shares=shares)

    def work() -> int:
        flower.run()
        return 1

    return work


def upload(updates: Updates) -> int:
    """
    Return the bytes that one hospital sends in a round with all others as neighbours.

    That is the content of its four messages, without what the network adds.

    :raises Skipped: if Flower is not installed.
    """
    flower = Flower(updates)
    flower.run()
    return max(flower.sent.values())
