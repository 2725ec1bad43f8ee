"""Coverage-guided input for the decoders and for record validation, with atheris (libFuzzer), which is no dependency:

    .venv/bin/pip install atheris
    .venv/bin/python -m compat_tests.fuzz.coverage_guided messages -max_total_time=300 [DIRECTORY]

Targets: `messages` (every request and response in every version, and headers), `records` (what a client's batch goes
through), `old` (message sets of formats 0 and 1), `packed` (decompression). Options are libFuzzer's; a directory keeps
what reached new code. An input that raises what it should not, or takes longer than a second (`-timeout=1`), ends the
run and is kept as `crash-…`, to be given as the only argument after the target.

Without atheris the same targets run on random input: `--random SECONDS SEED` instead of libFuzzer's options.
"""

from __future__ import annotations

import random
import struct
import sys
import time
from collections.abc import Callable
from importlib import import_module

from barnabas.kproto import (
    ApiKey,
    DecodeError,
    KafkaError,
    decoder,
    encoder,
    request_class,
    response_class,
    schema_versions,
)
from barnabas.kproto.compression import decompress
from barnabas.kproto.frame import parse_request_header, parse_response_header
from barnabas.kproto.records import BATCH_OVERHEAD, RecordsRefused, check_batch, iter_records
from barnabas.kproto.records_legacy import iter_legacy, up_convert
from barnabas.kproto.records_scan import check_client_header, validate_records
from compat_tests.fuzz.batches import SPECIAL, Batches, seal
from compat_tests.fuzz.damage import damaged
from compat_tests.fuzz.grammar import Grammar, Limits
from compat_tests.fuzz.pools import Pools, Producer

Target = Callable[[bytes], None]
Instrument = Callable[[Callable[..., object]], Callable[..., object]]
PLAIN_MAX = 1 << 20
EVERYTHING = [
    (key, version, part)
    for key in ApiKey
    for version in range(schema_versions(key)[0], schema_versions(key)[1] + 1)
    for part in (0, 1)
]


class Messages:
    """Two bytes choose the message, the rest is its input."""

    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument
        self._decoders: dict[int, Callable[..., object]] = {}

    def __call__(self, data: bytes) -> None:
        if len(data) < 2:
            return
        choice = int.from_bytes(data[:2], "big") % len(EVERYTHING)
        key, version, part = EVERYTHING[choice]
        body = data[2:]
        try:
            if part:
                parse_response_header(key, version, body)
            else:
                parse_request_header(struct.pack(">hh", key, version) + body)
        except DecodeError:
            pass
        cls = (response_class if part else request_class)(key)
        decode = self._decoders.get(choice)
        if decode is None:
            decode = self._decoders[choice] = self._instrument(decoder(cls, version))
        try:
            message, end = decode(body, 0)  # type: ignore[misc]
        except DecodeError:
            return
        assert end <= len(body)
        # What was taken can be written, and is the same again.
        again = b"".join(encoder(cls, version)(message))  # type: ignore[arg-type]
        assert b"".join(encoder(cls, version)(decoder(cls, version)(again, 0)[0])) == again  # type: ignore[arg-type]


def records(data: bytes) -> None:
    """A batch with the right length and checksum, as nothing else comes that far."""
    if len(data) < BATCH_OVERHEAD:
        return
    batch = bytearray(data)
    struct.pack_into(">qi", batch, 0, 0, len(batch) - 12)
    batch[16] = 2
    seal(batch)
    try:
        header = check_batch(batch)
        check_client_header(header)
        scan = validate_records(batch, max_bytes=PLAIN_MAX)
    except KafkaError:
        return
    # What the quick look takes, the slow one reads.
    read = list(iter_records(batch, max_bytes=PLAIN_MAX))
    assert len(read) == header.record_count
    assert scan.max_timestamp == max(-1, *(record.timestamp for record in read))
    if scan.consecutive:
        assert [record.offset for record in read] == list(range(len(read)))


def old(data: bytes) -> None:
    """A message set."""
    try:
        found = list(iter_legacy(data, max_bytes=PLAIN_MAX))
    except (KafkaError, DecodeError):
        found = []
    try:
        batch = up_convert(data, max_bytes=PLAIN_MAX)
    except RecordsRefused:
        return
    except KafkaError:
        return
    if batch is not None:
        check_batch(batch)
        assert len(list(iter_records(batch, max_bytes=PLAIN_MAX * 4))) <= max(len(found), len(data))


def packed(data: bytes) -> None:
    """One byte chooses the codec."""
    if not data:
        return
    try:
        plain = decompress(data[0] % 6, data[1:], max_bytes=PLAIN_MAX)
    except KafkaError:
        return
    assert len(plain) <= PLAIN_MAX


def seeds(name: str, rng: random.Random) -> bytes:
    """One right input, to begin with."""
    if name == "messages":
        choice = rng.randrange(len(EVERYTHING))
        key, version, _ = EVERYTHING[choice]
        served = {int(key): (version, version)}
        maker = Grammar(rng, Pools(), served, Limits(odd_texts=False, huge_bytes=0, damage=0.0))
        frame = maker.request_of(key, version, 1).frame
        header = parse_request_header(frame, 4)
        return struct.pack(">H", choice & ~1) + frame[header.body_offset :]
    made = Batches(rng)
    if name == "records":
        if rng.random() < 0.1:
            return rng.choice(SPECIAL[3:])(rng)[:5000]
        return made.records(Producer("tx0", 1, 0)) or b""
    if name == "old":
        return made.message_set() or b""
    batch = made.records(Producer(None, -1, -1)) or bytes(70)
    return bytes((batch[22] & 7 if len(batch) > 22 else 0,)) + batch[BATCH_OVERHEAD:]


def targets(instrument: Instrument) -> dict[str, Target]:
    """By name."""
    return {"messages": Messages(instrument), "records": records, "old": old, "packed": packed}


def run_random(name: str, seconds: float, seed: int) -> int:
    """Without guidance, one round at least; how many inputs were tried. Raises what the target raises."""
    rng = random.Random(seed)
    target = targets(lambda function: function)[name]
    until = time.monotonic() + seconds
    tried = 0
    while not tried or time.monotonic() < until:
        data = seeds(name, rng)
        for _ in range(20):
            target(data)
            tried += 1
            data = damaged(rng, data)
    return tried


def main() -> int:
    name, *options = sys.argv[1:]
    if options[:1] == ["--random"]:
        print(f"{run_random(name, float(options[1]), int(options[2]))} inputs")
        return 0
    import atheris  # type: ignore[import-not-found]

    for module in ("compression", "frame", "records", "records_legacy", "records_scan", "records_uniform", "varint"):
        _instrument_module(f"barnabas.kproto.{module}", atheris.instrument_func)
    atheris.Setup([sys.argv[0], "-timeout=1", "-max_len=4096", *options], targets(atheris.instrument_func)[name])
    atheris.Fuzz()
    return 0


def _instrument_module(name: str, instrument: Instrument) -> None:
    """Every plain function, in place."""
    module = import_module(name)
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) == name and hasattr(value, "__code__"):
            instrument(value)


if __name__ == "__main__":
    sys.exit(main())
