"""Java's login configuration (JAAS): files with sections, and single entries in a setting.

    Client {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        username="kafka"
        password="secret";
    };

A section holds login modules, each a class name, a flag and options up to a semicolon. `//`, `/*…*/` and `#` begin
comments. Values are quoted with either quote, or bare words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\s+ | //[^\n]* | \#[^\n]* | /\*.*?\*/
    | (?P<quoted>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*')
    | (?P<mark>[{};=])
    | (?P<word>[^\s{};="']+)""",
    re.VERBOSE | re.DOTALL,
)


_FLAGS = ("required", "requisite", "sufficient", "optional")


class JaasError(ValueError):
    """The text is no login configuration; the message says where."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One entry of a section. `name`: the Java class. Options may hold secrets: never shown."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name})"


def parse_jaas(text: str) -> dict[str, tuple[LoginModule, ...]]:
    """The login modules by section. Raises JaasError."""
    tokens = _tokens(text)
    sections: dict[str, tuple[LoginModule, ...]] = {}
    while tokens:
        section = _word(tokens)
        _mark(tokens, "{")
        modules = []
        while tokens and tokens[0][1] != "}":
            modules.append(_module(tokens))
        _mark(tokens, "}")
        _mark(tokens, ";")
        sections[section] = tuple(modules)
    return sections


def parse_module(text: str) -> LoginModule:
    """The only login module of a setting. Raises JaasError."""
    tokens = _tokens(text)
    module = _module(tokens)
    if tokens:
        raise JaasError(f"line {tokens[0][0]}: one login module is allowed, and nothing behind its semicolon")
    return module


def _module(tokens: list[Token]) -> LoginModule:
    name, flag = _word(tokens), _word(tokens)
    if flag.lower() not in _FLAGS:
        raise JaasError(f"behind {name[:100]} one of {', '.join(_FLAGS)} is expected")
    options = {}
    while tokens and tokens[0][1] != ";":
        key = _word(tokens)
        _mark(tokens, "=")
        options[key] = _word(tokens)
    _mark(tokens, ";")
    return LoginModule(name, options)


Token = tuple[int, str, str]  # line, mark, word: one of the two is empty


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        line = text.count("\n", 0, position) + 1
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError(f"line {line}: a quote or comment does not end")
        if match["quoted"]:
            tokens.append((line, "", "\0" + re.sub(r"\\(.)", r"\1", match["quoted"][1:-1])))
        elif match["mark"]:
            tokens.append((line, match["mark"], ""))
        elif match["word"]:
            tokens.append((line, "", match["word"]))
        position = match.end()
    return tokens


def _word(tokens: list[Token]) -> str:
    if not tokens:
        raise JaasError("it ends too early")
    line, mark, word = tokens.pop(0)
    if mark:
        raise JaasError(f"line {line}: a word is expected, not {mark}")
    return word.removeprefix("\0")  # a quoted word may be empty


def _mark(tokens: list[Token], mark: str) -> None:
    if not tokens:
        raise JaasError(f"it ends without {mark}")
    line, found, _ = tokens.pop(0)
    if found != mark:
        raise JaasError(f"line {line}: {mark} is expected")
