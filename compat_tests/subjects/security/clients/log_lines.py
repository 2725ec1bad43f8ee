"""What a library writes into its log."""

from __future__ import annotations

import logging


class LogLines(logging.Handler):
    """What a library logs meanwhile: the message, and the causes of exceptions that it names."""

    def __init__(self, logger: str, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self.lines: list[str] = []
        self._logger = logging.getLogger(logger)
        self._before = self._logger.level

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        for named in record.args if isinstance(record.args, tuple) else ():
            cause = named.__cause__ if isinstance(named, BaseException) else None
            while cause is not None:
                self.lines.append(repr(cause))
                cause = cause.__cause__

    def __enter__(self) -> LogLines:
        self._logger.addHandler(self)
        self._logger.setLevel(self.level)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._before)
