# Copyright 2026 The fdrl_ros maintainers
# SPDX-License-Identifier: Apache-2.0
"""A federation in one process whose parties keep journals on the disk."""

from fdrl_ros.federation.journal.comparison import compare
from fdrl_ros.federation.journal.journal import FILE, Journal
from fdrl_ros.federation.protocol.channel import Channel
from support.federation_bench import Bench


class Journaled(Bench):
    """A federation whose journals lie on the disk."""

    def channel(self, name, store):
        folder = self.directory / f'{name}_journal'
        folder.mkdir(exist_ok=True)
        journal = Journal(folder / FILE, self.identities[name], 'test', store)
        store.before_closing(journal.close)
        return Channel(
            self.identities[name], self.roster, store, journal, clock=lambda: self.clocks[name]
        )

    def paths(self):
        return {name: self.directory / f'{name}_journal' / FILE for name in self.identities}

    def compared(self):
        paths = {name: path for name, path in self.paths().items() if path.exists()}
        for name in list(self.parties):
            self.kill(name)
        return compare(paths, self.roster, seen={})
