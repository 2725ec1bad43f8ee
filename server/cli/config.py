"""`barnabas config`: what settings there are, where each comes from, what is wrong with a file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.server.cli.common import OK, Refused, complain, load_settings, refused_files

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig


def run(chosen: argparse.Namespace, environ: Mapping[str, str]) -> int:
    """Do what was chosen; returns the exit code."""
    if chosen.markdown:
        from barnabas.server.settings.document import markdown

        sys.stdout.write(markdown())
        return OK
    try:
        if chosen.check is not None:
            return _check(chosen.check)
        config = load_settings(chosen.file, None if chosen.no_env else environ, chosen.set)
        for notice in config.notices:
            print(f"barnabas: {notice.text}", file=sys.stderr)
        return _show(config, chosen.keys, everything=chosen.all)
    except Refused as error:
        return complain(error.lines)


def _check(file: str) -> int:
    from barnabas.server.cli.check import check

    with refused_files(file):
        found = check(file)
    refusals = (*found.refusals, *_unusable_stores(found.config))
    for text in found.warnings:
        print(f"warning: {text}")
    print(
        f"{file} {'cannot' if refusals else 'can'} be used ({_count(found.settings, 'setting')}, "
        f"{_count(len(refusals), 'refusal')}, {_count(len(found.warnings), 'warning')})",
        flush=True,
    )
    return complain(refusals) if refusals else OK


def _unusable_stores(config: BrokerConfig) -> Sequence[str]:
    """Problems of the listeners' keys and certificates, as far as their files show."""
    if all(address.protocol in ("PLAINTEXT", "SASL_PLAINTEXT") for address in config.listeners):
        return ()
    from barnabas.server.config.problems import SettingsRefused
    from barnabas.server.network.tls_listener import tls_listeners

    try:
        tls_listeners(config)
    except SettingsRefused as refused:
        return refused.problems
    return ()


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _show(config: BrokerConfig, keys: Sequence[str], *, everything: bool) -> int:
    from barnabas.server.config import default_file
    from barnabas.server.config.describe import Source, broker_entries
    from barnabas.server.settings import BROKER

    unknown = [key for key in keys if key not in BROKER and not config.is_set(key)]
    if unknown:
        return complain([f"unknown setting: {key}{_hint(key)}" for key in unknown])
    names = list(keys) or (sorted(BROKER) if everything else [])
    for entry in broker_entries(config, names or [*config.static, ""]):
        value = "(hidden)" if entry.sensitive else "(not set)" if entry.value is None else entry.value
        stands_in = config.origin(entry.name) == default_file.ORIGIN and entry.source is Source.STATIC_BROKER
        source = default_file.ORIGIN if stands_in else entry.source.name.lower().replace("_", " ")
        print(f"{entry.name}={value}  # {source}")
        if keys and entry.doc:
            print(f"    {entry.doc}")
    return OK


def _hint(key: str) -> str:
    """What may be meant by a setting that there is not."""
    from difflib import get_close_matches

    from barnabas.server.settings import BROKER

    if key.endswith(".properties") or os.path.isfile(key):
        return f" (a file is named with --file {key})"
    close = get_close_matches(key, BROKER, n=1, cutoff=0.85)
    return f" (is {close[0]} meant?)" if close else ""
