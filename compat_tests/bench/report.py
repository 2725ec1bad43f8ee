"""From single values to the table: medians of the rounds, and ours divided by the other broker's, round by round."""

from __future__ import annotations

from statistics import median

KAFKA, OURS, BEFORE = "kafka", "barnabas", "before"
UNITS = {
    "mb_per_s": "MB/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_s_per_gib": "broker CPU s/GiB",
    "cpu_us_per_request": "broker CPU us/request",
    "client_cpu_us_per_request": "client CPU us/request",
    "requests_per_s": "requests/s",
    "first_answer_s": "s to the first answer",
    "idle_resident_mb": "MB resident, idle",
    "resident_mb": "MB resident",
    "silent_median_s": "s without an acknowledgement, median",
    "silent_max_s": "s without an acknowledgement, longest",
    "dirty_mb_per_s": "MB/s of dirty records",
    "all_led_s": "s until all partitions answer",
    "read_gb": "GB read until then",
    "ack_p50_ms": "acknowledgement meanwhile, p50 ms",
    "ack_p99_ms": "acknowledgement meanwhile, p99 ms",
    "quiet_p99_ms": "acknowledgement before, p99 ms",
    "size_left": "size after / before",
    "transactions_per_s": "transactions/s",
    "commits_per_s": "commits/s",
    "cpu_us_per_transaction": "broker CPU us/transaction",
    "cpu_us_per_commit": "broker CPU us/commit",
    "stable_s": "s until stable",
    "left_s": "s until stable again after one left",
    "assignments": "calls of on_assign and on_revoke",
    "cpu_s": "broker CPU s",
    "write_s": "s to write one record into each",
}
# results[measure][quantity][broker] = one value for each round
Results = dict[str, dict[str, dict[str, list[float]]]]


def add(results: Results, measure: str, broker: str, values: dict[str, float]) -> None:
    """Note the values of one measure on one broker in one round."""
    for quantity, value in values.items():
        results.setdefault(measure, {}).setdefault(quantity, {}).setdefault(broker, []).append(value)


def ratios(values: dict[str, list[float]], other: str = KAFKA) -> list[float]:
    """Return ours / the other's for each round that has both."""
    return [ours / theirs for theirs, ours in zip(values.get(other, []), values.get(OURS, []), strict=False) if theirs]


def table(results: Results, peer: str = "Apache Kafka 4.3.1", other: str = KAFKA) -> str:
    """Return the Markdown table of medians and ratios. *other*: whose values stand beside ours, which *peer* names."""
    lines = [
        f"| measure | unit | {peer} | Barnabas | ratio | ratios by round |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for measure, quantities in results.items():
        for quantity, values in quantities.items():
            found = ratios(values, other)
            cells = [number(median(values[name])) if values.get(name) else "" for name in (other, OURS)]
            middle = f"{median(found):.2f}" if found else ""
            rounds = " ".join(f"{one:.2f}" for one in found)
            lines.append(
                f"| {measure} | {UNITS.get(quantity, quantity)} | {cells[0]} | {cells[1]} | {middle} | {rounds} |"
            )
    return "\n".join(lines)


def number(value: float) -> str:
    """Return a value with three significant digits or as a whole number."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
