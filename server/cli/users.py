"""`barnabas users`: SCRAM credentials in the metadata store, without a broker."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from random import SystemRandom
from typing import Final, TypeVar

import trio

from barnabas.logdir import LogDirError, LogDirLocked
from barnabas.replication import METADATA_JOURNAL, USER_CONFIG, BadNode, Store, StoreError, make_roots, write_config
from barnabas.replication.tree.users import read_users
from barnabas.server.cli.output import OutputFailed
from barnabas.server.cluster.identity import open_store
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.runtime.offload import in_thread
from barnabas.server.runtime.wording import in_words
from barnabas.server.security.sasl.scram_arguments import parse_user
from barnabas.server.security.sasl.scram_credentials import ScramCredential, ScramMechanism
from barnabas.server.security.sasl.users import ScramUsers
from barnabas.server.storage.log_dirs import make_dirs, metadata_dir

_STANDARD_INPUT: Final = "-"

Added = tuple[str, ScramMechanism, ScramCredential]
T = TypeVar("T")


def run(chosen: argparse.Namespace, config: BrokerConfig) -> int:
    """Run the action; returns the exit code."""
    try:
        added = _added(chosen.scram) if chosen.action == "add" else []
    except ValueError as error:
        _complain(str(error))
        return 2
    where = _where(config)
    if chosen.action != "add" and not config.is_clustered:  # what only looks makes no directory and no store
        stores = _stores(config)
        if not stores:
            _complain(f"there is no metadata store in {where}: no broker has run on it, and no user was added")
            return 1
        if len(stores) == 1:
            config = config.with_static("log.dirs", stores[0])
    try:
        return trio.run(_with_store, config, partial(_act, chosen, added, where))
    except OutputFailed:
        raise
    except LogDirLocked:
        _complain(
            f"a broker runs on {where}, and its users are its own meanwhile: ask it with "
            "kafka-configs --bootstrap-server HOST:PORT --entity-type users"
        )
        return 1
    except (LogDirError, StoreError, OSError, BadNode) as error:
        _complain(in_words(error))
        return 1


def _complain(text: str) -> None:
    print(f"barnabas: {text}", file=sys.stderr)


def _where(config: BrokerConfig) -> str:
    """Where the store is, in words."""
    if config.store_socket is not None:
        return f"the store at {config.store_socket}"
    if config.is_clustered:
        return f"ZooKeeper at {config.get_optional_str('zookeeper.connect')}"
    return ", ".join(_stores(config) or config.log_dirs)


def _stores(config: BrokerConfig) -> list[str]:
    """The log directories that hold a store."""
    return [path for path in config.log_dirs if _is_there(os.path.join(path, METADATA_JOURNAL))]


def _is_there(path: str) -> bool:
    """Raises OSError where that cannot be found out."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def _added(texts: Iterable[str]) -> list[Added]:
    """Raises ValueError."""
    lines = [
        line
        for text in texts
        for line in (sys.stdin.read().splitlines() if text == _STANDARD_INPUT else [text])
        if line.strip()
    ]
    if not lines:
        raise ValueError("standard input names no user")
    return [parse_user(line, secrets.token_bytes) for line in lines]


def add(config: BrokerConfig, users: Mapping[str, Mapping[str, str]]) -> None:
    """Give users credentials. users: by name and mechanism, as the store has them. Raises LogDirError, StoreError,
    OSError.
    """

    async def put(store: Store) -> None:
        await make_roots(store)
        for name, credentials in users.items():
            await write_config(store, USER_CONFIG, name, partial(_with, credentials))

    trio.run(_with_store, config, put)


async def _with_store(config: BrokerConfig, act: Callable[[Store], Awaitable[T]]) -> T:
    if config.is_clustered:
        async with open_store(config, in_thread, "", lambda error: None) as store:
            return await act(store)
    dirs = make_dirs(
        config,
        disk=None,
        wall_ms=lambda: int(time.time() * 1000),
        rng=SystemRandom(),
        on_failure=lambda failed: None,
    )
    dirs.open()  # and lock: a running broker would not see the changes
    try:
        async with open_store(config, in_thread, metadata_dir(dirs).path, lambda error: None) as store:
            return await act(store)
    finally:
        dirs.unlock()


async def _act(chosen: argparse.Namespace, added: list[Added], where: str, store: Store) -> int:
    if chosen.action == "add":
        await make_roots(store)
        for name, mechanism, credential in added:
            await write_config(store, USER_CONFIG, name, partial(_with, {mechanism.value: credential.text()}))
            print(f"{name}: {mechanism.value} with {credential.iterations} iterations, in {where}")
        return 0
    known = ScramUsers(b"")
    for name, config in (await read_users(store, _unreadable)).items():
        for problem in known.put(name, config):
            _complain(problem)
    if chosen.action == "list":
        for name in known.names:
            held = sorted((one.value, credential.iterations) for one, credential in known.credentials(name).items())
            print(f"{name}: {', '.join(f'{mechanism} with {iterations} iterations' for mechanism, iterations in held)}")
        if not known.names:
            _complain(f"no user has SCRAM credentials in {where}")
        return 0
    doomed = [one for one in known.credentials(chosen.name) if chosen.mechanism in (None, one.value)]
    if not doomed:
        which = chosen.mechanism or "SCRAM"
        _complain(f"there is no user {chosen.name} with a {which} credential in {where}")
        return 1
    await write_config(store, USER_CONFIG, chosen.name, lambda stored: _without(stored, doomed))
    print(f"{chosen.name}: removed {', '.join(sorted(one.value for one in doomed))}")
    return 0


def _with(credentials: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    return {**stored, **credentials}


def _without(stored: Mapping[str, str], doomed: Iterable[ScramMechanism]) -> dict[str, str]:
    gone = {one.value for one in doomed}
    return {key: value for key, value in stored.items() if key not in gone}


def _unreadable(error: BadNode) -> None:
    _complain(str(error))
