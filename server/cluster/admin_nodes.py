"""Requests that old tools and older brokers leave in the tree for the controller: `replication.tree.admin_tree`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from barnabas.replication import BadNode, Concerns, Controller, Effect, Store, read_states
from barnabas.replication.tree import admin_tree

Perform = Callable[[Iterable[Effect]], Awaitable[None]]


async def read_admin_nodes(
    store: Store, machine: Controller, about: Concerns, perform: Perform, unreadable: Callable[[BadNode], None]
) -> None:
    """Read the requests at the places that changed, and carry them out. `perform` carries out the machine's effects."""
    if about.isr_changes:
        names, partitions = await admin_tree.read_isr_changes(store, unreadable)
        await perform(machine.states_seen(await read_states(store, machine.known(partitions))))
        await admin_tree.drop_isr_changes(store, machine.guard, names)
    if about.log_dir_events:
        names, brokers = await admin_tree.read_log_dir_events(store, unreadable)
        await perform(machine.log_dirs_failed(brokers))
        await admin_tree.drop_log_dir_events(store, machine.guard, names)
    if about.reassignments:
        await perform(machine.reassignments_seen(await admin_tree.read_reassignments(store, unreadable)))
    if about.elections:
        elections = await admin_tree.read_elections(store, unreadable)
        if elections is not None:
            await perform(machine.elections_seen(elections))
