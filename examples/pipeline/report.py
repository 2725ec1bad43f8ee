"""The batch side: what the windows say about the day, checked against the topic, as numbers (JSON) and as a picture."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import matplotlib
import pandas
from matplotlib.axes import Axes
from pyspark.sql import functions as F
from shop import CAMPAIGN, COUNTRIES, DAY_START_MS
from stream import Pipeline, parse

matplotlib.use("Agg")

import matplotlib.dates
import matplotlib.pyplot as plt
import matplotlib.ticker

# Okabe and Ito's palette, which people of every colour vision can tell apart.
COLOURS = dict(zip(COUNTRIES, ("#0072B2", "#D55E00", "#009E73", "#E69F00"), strict=True))
KINDS = ("views", "carts", "purchases")


def write(pipeline: Pipeline, directory: Path) -> dict[str, Any]:
    """Write `report.json` and `report.png` into *directory*; return what the JSON holds."""
    windows = pipeline.spark.read.parquet(str(pipeline.parquet)).toPandas().sort_values(["start", "country"])
    numbers = _numbers(pipeline, windows)
    (directory / "report.json").write_text(json.dumps(numbers, indent=2) + "\n")
    _picture(windows, numbers, directory / "report.png")
    return numbers


def _numbers(pipeline: Pipeline, windows: pandas.DataFrame) -> dict[str, Any]:
    def records(topic: str) -> Any:
        reader = pipeline.spark.read.format("kafka").option("kafka.bootstrap.servers", pipeline.bootstrap)
        return reader.option("subscribe", topic).load()

    lines = parse(records(pipeline.source)).cache()
    garbled = lines.where("garbled is not null").count()
    events = lines.where("garbled is null and kind != 'heartbeat'")
    counted = int(windows[list(KINDS)].to_numpy().sum())
    sold = events.where("kind = 'purchase'").groupBy("product").agg(F.count("*"), F.sum("cents"))
    products = {name: {"sold": count, "revenue_cents": cents} for name, count, cents in sold.collect()}
    total = events.count()
    lines.unpersist()
    # A window that a crash sent twice has the same key and value: the last one stands for both.
    sent = {bytes(row.key): bytes(row.value) for row in records(pipeline.sink).select("key", "value").collect()}
    return {
        "events": total,
        "garbled": garbled,
        "counted": counted,
        "too_late": total - counted,
        "windows": len(windows),
        "windows_in_topic": len(sent),
        "topic_equals_parquet": _totals(map(json.loads, sent.values())) == _totals(windows.to_dict("records")),
        **{kind: int(windows[kind].sum()) for kind in KINDS},
        "revenue_cents": int(windows["revenue_cents"].sum()),
        "revenue_cents_by_country": {
            country: int(cents) for country, cents in windows.groupby("country")["revenue_cents"].sum().items()
        },
        "products": dict(sorted(products.items(), key=lambda item: -item[1]["revenue_cents"])),
    }


def _totals(windows: Any) -> list[tuple[Any, ...]]:
    def total(window: Any) -> tuple[Any, ...]:
        start = pandas.Timestamp(window["start"]).tz_localize(None).isoformat()
        return start, window["country"], *(int(window[name]) for name in (*KINDS, "revenue_cents"))

    return sorted(map(total, windows))


def _picture(windows: pandas.DataFrame, numbers: dict[str, Any], path: Path) -> None:
    midnight = datetime.fromtimestamp(DAY_START_MS / 1000, UTC).replace(tzinfo=None)
    style = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True}
    with plt.rc_context(style):
        figure, (traffic, revenue, conversion) = plt.subplots(
            3, 1, figsize=(11, 9.5), sharex=True, height_ratios=(3, 3, 2), layout="constrained"
        )
        _traffic(traffic, windows)
        _revenue(revenue, windows)
        _conversion(conversion, windows, midnight)
        country, first, last = CAMPAIGN
        for axes in (traffic, revenue, conversion):
            axes.axvspan(_hours(midnight, first), _hours(midnight, last), color="0.92", lw=0, zorder=0)
            axes.grid(axis="y", color="0.88", lw=0.8)
            axes.set_ylim(bottom=0)
        middle = _hours(midnight, (first + last) / 2)
        at = {"xy": (middle, 1), "xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom", "color": "0.35"}
        traffic.annotate(f"campaign in {country}", **at)
        conversion.set_xlim(midnight, _hours(midnight, 24))
        conversion.xaxis.set_major_locator(matplotlib.dates.HourLocator(byhour=range(0, 24, 3)))
        conversion.xaxis.set_major_formatter(matplotlib.dates.DateFormatter("%H:%M"))
        conversion.set_xlabel(f"{midnight:%A}, {midnight.day} {midnight:%B %Y} (UTC)")
        figure.suptitle(
            f"A day in the shop: {numbers['views']:,} views, {numbers['purchases']:,} purchases, "
            f"{numbers['revenue_cents'] / 100:,.0f} €",
            x=0.01,
            ha="left",
            fontsize=15,
            fontweight="bold",
        )
        figure.text(
            0.01,
            -0.012,
            f"{numbers['events']:,} events in the topic, {numbers['counted']:,} of them counted in "
            f"{numbers['windows']:,} windows; {numbers['too_late']:,} came after their window was closed, "
            f"{numbers['garbled']:,} further lines were garbled.",
            color="0.35",
            va="top",
        )
        figure.savefig(path, dpi=130, bbox_inches="tight", facecolor="white")
        plt.close(figure)


def _hours(midnight: datetime, hours: float) -> datetime:
    return midnight + timedelta(hours=hours)


def _by_country(windows: pandas.DataFrame, column: str, every: str) -> pandas.DataFrame:
    grouped = windows.groupby([pandas.Grouper(key="start", freq=every), "country"])[column].sum()
    return grouped.unstack(fill_value=0).reindex(columns=list(COUNTRIES), fill_value=0)


def _traffic(axes: Axes, windows: pandas.DataFrame) -> None:
    views = _by_country(windows, "views", "10min")
    views.loc[views.index[-1] + timedelta(minutes=10)] = views.iloc[-1]  # where the last step ends
    axes.stackplot(views.index, views.to_numpy().T, labels=list(views), colors=COLOURS.values(), step="post", lw=0)
    axes.set_title("Page views per 10 minutes", loc="left")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="upper left", frameon=False)


def _revenue(axes: Axes, windows: pandas.DataFrame) -> None:
    hourly = _by_country(windows, "revenue_cents", "1h") / 100
    bottom = hourly.iloc[:, 0] * 0.0
    for country in hourly:
        axes.bar(
            hourly.index,
            hourly[country],
            width=timedelta(minutes=54),
            bottom=bottom,
            align="edge",
            color=COLOURS[country],
        )
        bottom += hourly[country]
    axes.set_title("Revenue per hour, €", loc="left")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _conversion(axes: Axes, windows: pandas.DataFrame, midnight: datetime) -> None:
    country, hours = CAMPAIGN[0], 2  # in less time the nights have too few visitors for a share to mean anything
    edges = [_hours(midnight, hour) for hour in range(0, 25, hours)]
    for name, rows, colour in (
        (country, windows[windows["country"] == country], COLOURS[country]),
        ("the other countries", windows[windows["country"] != country], "0.45"),
    ):
        sums = rows.groupby(pandas.Grouper(key="start", freq=f"{hours}h"))[["purchases", "views"]].sum()
        share = (100 * sums["purchases"] / sums["views"]).reindex(edges[:-1])
        axes.stairs(share, edges, baseline=None, color=colour, lw=2, label=name)
    axes.set_title("Purchases per 100 views", loc="left")
    axes.yaxis.set_major_locator(matplotlib.ticker.MaxNLocator(nbins=5, integer=True))
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), frameon=False, ncols=2)
