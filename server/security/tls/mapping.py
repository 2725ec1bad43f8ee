"""The name of a principal, made of a certificate's subject by `ssl.principal.mapping.rules` (KIP-371).

Rules lie behind each other, with commas between them: `DEFAULT`, which takes the subject as it is, or
`RULE:pattern/replacement/`, perhaps with `L` (lower case) or `U` (upper case) behind it. The first one whose pattern
matches the whole subject counts; what the pattern finds in it is replaced, wherever it finds it. In patterns and
replacements `\\/` is a slash; `$1` is a group, and as many digits are read as there are groups.

Patterns are Python's here, Java's there: character classes such as `\\p{Alpha}` are refused when the rules are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_RULE: Final = re.compile(
    r"RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)\s*(?:,\s*|$)", re.DOTALL
)
_DEFAULT: Final = re.compile(r"DEFAULT\s*(?:,\s*|$)")
_NONE: Final = re.compile(r",\s*")

Rule = Callable[[str], str | None]


class PrincipalMapping:
    """Rules, read from a setting's text. Raises ValueError with what is wrong with them."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        self._rules: list[Rule] = []
        rest = rules.strip()
        while rest:
            if found := _DEFAULT.match(rest):
                self._rules.append(_as_it_is)
            elif found := _RULE.match(rest):
                self._rules.append(_rule(found["pattern"], found["replacement"], found["case"]))
            elif not (found := _NONE.match(rest)):
                raise ValueError(
                    f"{rest!r} begins with no rule: DEFAULT or RULE:pattern/replacement/ with L, U or nothing"
                )
            rest = rest[found.end() :]

    def name(self, subject: str) -> str | None:
        """The principal's name; None: no rule matches, and such a peer is not let in."""
        for rule in self._rules:
            name = rule(subject)
            if name is not None:
                return name
        return None


def _as_it_is(subject: str) -> str:
    return subject


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} is none of Python's: {error}") from None
    template = _template(replacement, compiled.groups)

    def rule(subject: str) -> str | None:
        if compiled.fullmatch(subject) is None:
            return None
        name = compiled.sub(lambda found: "".join(_filled(part, found) for part in template), subject)
        return name.lower() if case == "L" else name.upper() if case == "U" else name

    return rule


def _filled(part: str | int, found: re.Match[str]) -> str:
    return part if isinstance(part, str) else found[part] or ""


def _template(replacement: str, groups: int) -> list[str | int]:
    """Texts and numbers of groups."""
    parts: list[str | int] = []
    position = 0
    while position < len(replacement):
        char = replacement[position]
        position += 1
        if char == "\\" and position < len(replacement):
            parts.append(replacement[position])
            position += 1
        elif char == "$" and (digits := re.compile(r"[0-9]+").match(replacement, position)):
            number = digits[0]
            while len(number) > 1 and int(number) > groups:
                number = number[:-1]
            if int(number) > groups:
                parts.append("$")
                continue
            parts.append(int(number))
            position += len(number)
        else:
            parts.append(char)
    return parts
