"""`barnabas config --check`: all problems of a settings file, not only the first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from barnabas.server.cluster.zookeeper import zookeeper_settings
from barnabas.server.config.broker import BrokerConfig, ConfigBuilder
from barnabas.server.config.exposure import exposures
from barnabas.server.config.problems import Notice, SettingsRefused
from barnabas.server.config.sasl import sasl_settings


@dataclass(frozen=True, slots=True)
class Findings:
    """A sentence each. refusals: keep a broker from starting; warnings: do not. settings: how many the file has.
    config: what the file says, without what is refused.
    """

    config: BrokerConfig
    settings: int
    refusals: tuple[str, ...]
    warnings: tuple[str, ...]


def check(file: str) -> Findings:
    """The problems that `serve` would find in `file` alone, without environment. Raises OSError, PropertiesError."""
    builder = ConfigBuilder().file(file)
    values = builder.static
    refusals: tuple[str, ...] = ()
    notices: tuple[Notice, ...]
    open_to_others: tuple[str, ...] = ()
    try:
        config = builder.build()
        notices = config.notices
        open_to_others = tuple(exposures(config, Path(file)))
    except SettingsRefused as error:
        refusals, notices = error.problems, error.notices
        config = _rest({key: text for key, text in values.items() if key not in error.keys})
    if config.uses_zookeeper:
        try:
            zookeeper_settings(config)
        except SettingsRefused as error:
            refusals += error.problems
    try:
        sasl_settings(config)
    except SettingsRefused as error:
        refusals += error.problems
    return Findings(config, len(values), refusals, (*(notice.text for notice in notices), *open_to_others))


def _rest(values: dict[str, str]) -> BrokerConfig:
    """The configuration without the refused settings, if it is consistent: for checks of single settings."""
    try:
        return BrokerConfig.from_values(values)
    except SettingsRefused as error:
        return BrokerConfig.from_values({key: text for key, text in values.items() if key not in error.keys})
