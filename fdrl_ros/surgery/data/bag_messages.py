# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""All messages of any bag as they were sent, to play them again."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fdrl_ros.errors import RecordsError
from fdrl_ros.surgery.data.bag import LATCHED, opened


@dataclass(frozen=True)
class BagTopic:
    """
    A topic of a bag.

    :param kind: name of its type, such as std_msgs/msg/String.
    :param definition: of that type, with those of all types in it.
    :param latched: whether who came late got its newest messages.
    :param count: messages in the bag.
    """

    name: str
    kind: str
    definition: str
    latched: bool
    count: int


class Bag:
    """A bag that is open for reading."""

    def __init__(self, path: Path, reader: Any) -> None:
        self._path, self._reader = path, reader
        self.topics = tuple(_topic(each) for each in reader.connections)
        """Its topics."""
        self.seconds = 1e-9 * reader.duration
        """From its first message to its last."""

    def messages(self, names: Sequence[str]) -> Iterator[tuple[str, int, bytes]]:
        """
        Yield messages of some topics in the order in which they were recorded.

        :returns: for each its topic, when it was recorded, ns, and it in CDR.
        :raises RecordsError: if the bag is cut off or damaged.
        """
        chosen = [each for each in self._reader.connections if each.topic in names]
        if not chosen:
            return  # the library takes none of them for all
        messages = iter(self._reader.messages(connections=chosen))
        while True:
            try:
                found, at, data = next(messages)
            except StopIteration:
                return
            except Exception as error:  # the library and decompressors raise many kinds
                raise RecordsError(f'{self._path} is cut off or damaged: {error}') from error
            yield found.topic, at, bytes(data)


@contextmanager
def open_bag(path: Path) -> Iterator[Bag]:
    """
    Open a bag, and close it.

    :param path: of its folder, or of its one file.
    :raises RecordsError: if it is none, is cut off, or is of messages in another encoding.
    :raises ResourceError: if the library that reads bags is not installed.
    """
    with opened(path) as found:
        reader: Any = found
        other = {each.ext.serialization_format for each in reader.connections} - {'cdr'}
        if other:
            raise RecordsError(f'{path}: messages are encoded as {", ".join(sorted(other))}')
        yield Bag(path, reader)


def _topic(connection: Any) -> BagTopic:
    offered = {each.durability.name for each in connection.ext.offered_qos_profiles}
    latched = 'TRANSIENT_LOCAL' in offered or connection.topic.rpartition('/')[2] in LATCHED
    definition = connection.msgdef.data if connection.msgdef.format.name == 'MSG' else ''
    return BagTopic(connection.topic, connection.msgtype, definition, latched, connection.msgcount)
