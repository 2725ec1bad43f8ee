"""`barnabas log dump|verify|stats`: inspection of log directories without a broker, ours and Apache Kafka's.

Nothing is written and nothing locked, so a broker may be using the directory. Exit codes: 0 done, nothing found wrong ·
1 problems found, or something could not be read · 2 the command line cannot be used, or a path is no log · 130
interrupted. What is found goes to standard output, complaints and the progress bar to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence

from barnabas.kproto.errors import KafkaError
from barnabas.logdir import LogDirError
from barnabas.logdir.offline import LogReader, is_log_dir, open_log, open_log_dir
from barnabas.server.cli.output import OutputFailed
from barnabas.server.cli.progress import Progress, readable

STATS_WIDTH = 100
"""Characters of a line of `stats` where there is no terminal, unless all is asked for."""

OK, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130


def run(chosen: argparse.Namespace) -> int:
    """Run one action; the exit code."""
    if chosen.action == "verify" and chosen.list:
        return _list_kinds()
    if not chosen.paths:
        return _complain("which directory or file?")
    for path in chosen.paths:
        if not os.path.exists(path):
            return _complain(f"{path} is not there")
    try:
        code = {"dump": _dump, "verify": _verify, "stats": _stats}[chosen.action](chosen)
        sys.stdout.flush()
        return code
    except LogDirError as error:
        return _complain(str(error))
    except (BrokenPipeError, OutputFailed):
        raise
    except OSError as error:
        return _complain(f"{error.filename or 'a file'} cannot be read: {error.strerror or error}")
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return INTERRUPTED


def _complain(text: str) -> int:
    print(f"barnabas: {text}", file=sys.stderr)
    return REFUSED


def _progress(total: int, *, beside_output: bool = False) -> Progress:
    """`beside_output`: so much is printed that a bar between it would be a nuisance."""
    shown = sys.stderr.isatty() and not (beside_output and sys.stdout.isatty())
    return Progress(sys.stderr, total, time.monotonic, shown=shown)


def _logs(paths: Sequence[str]) -> Iterator[LogReader]:
    for path in paths:
        if is_log_dir(path):
            yield from open_log_dir(path).partitions
        else:
            yield open_log(path)


def _dump(chosen: argparse.Namespace) -> int:
    from barnabas.server.cli.log_dump import Dump, DumpOptions

    first, end = chosen.offset or (None, None)
    oldest, newest = chosen.time or (None, None)
    options = DumpOptions(
        records=chosen.records or chosen.keys or chosen.values,
        keys=chosen.keys,
        values=chosen.values,
        decode=chosen.decode,
        as_json=chosen.json,
        committed=chosen.committed,
        limit=chosen.limit,
        start_offset=first,
        end_offset=end,
        min_timestamp_ms=oldest,
        max_timestamp_ms=newest,
    )
    progress = _progress(_size(chosen.paths), beside_output=True)

    def complain(text: str) -> None:
        progress.clear()
        print(f"barnabas: {text}", file=sys.stderr)

    dump = Dump(options, sys.stdout, complain, progress)
    try:
        for path in chosen.paths:
            dump.path(os.path.abspath(path), os.path.isdir(path))
    finally:
        progress.clear()
    return FAILED if dump.failed else OK


def _size(paths: Sequence[str]) -> int:
    from barnabas.logdir.offline.verify import size_to_verify

    return sum(size_to_verify(path) for path in paths)


def _verify(chosen: argparse.Namespace) -> int:
    from barnabas.logdir.offline.verify import verify

    total = _size(chosen.paths)
    progress = _progress(total)
    problems = warnings = 0
    try:
        for path in chosen.paths:
            for problem in verify(path, progress):
                progress.clear()
                if problem.warning:
                    warnings += 1
                else:
                    problems += 1
                print(json.dumps(problem.as_dict()) if chosen.json else problem)
    finally:
        progress.clear()
    if not chosen.json:
        print(f"{problems} problems, {warnings} warnings in {readable(total)} of logs")
    return FAILED if problems or (chosen.strict and warnings) else OK


def _list_kinds() -> int:
    from barnabas.logdir.offline.problems import KINDS

    width = max(map(len, KINDS))
    for kind, meaning in KINDS.items():
        print(f"{kind.ljust(width)}  {meaning}")
    return OK


def _stats(chosen: argparse.Namespace) -> int:
    from barnabas.logdir.offline.stats import log_stats
    from barnabas.server.cli.log_stats import lines

    full = not chosen.quick
    progress = _progress(_size(chosen.paths))
    found = []
    code = OK
    try:
        for log in _logs(chosen.paths):
            try:
                stats = log_stats(log, full=full, progress=progress)
            except (KafkaError, LogDirError) as error:
                progress.clear()
                text = error.message if isinstance(error, KafkaError) else str(error)
                print(f"barnabas: {log.path} is left out: {text}", file=sys.stderr)
                code = FAILED
                continue
            found.append(stats)
            if chosen.json:
                progress.clear()
                print(json.dumps(stats.as_dict()), flush=True)
    finally:
        progress.clear()
    if chosen.json:
        return code
    if found:
        # Who names directories of partitions wants to see them.
        internal = chosen.internal or not any(map(is_log_dir, chosen.paths))
        width = None if chosen.wide else shutil.get_terminal_size().columns if sys.stdout.isatty() else STATS_WIDTH
        print("\n".join(lines(found, full=full, internal=internal, width=width)))
    elif code == OK:
        print("no partitions")
    return code
