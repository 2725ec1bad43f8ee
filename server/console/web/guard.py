"""What every request must satisfy, and what every answer carries.

The Host: an address, `localhost`, or a name that the console was told it has. A page of somebody else whose name leads
to 127.0.0.1 (DNS rebinding) comes with that name, and is turned away; addresses cannot be rebound.

The origin: a change that a page of another origin sends is turned away by its header Origin or Sec-Fetch-Site, where
browsers say it, before the token is looked at.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import Final

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
)
"""Of every answer. A stricter referrer policy would have browsers send `Origin: null` with our own forms."""

_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]/@\s]+)(?::[0-9]{1,5})?")


def is_known_host(header: str, names: Collection[str]) -> bool:
    """Whether a header Host names this console. The port is not looked at: tunnels have others."""
    match = _HOST.fullmatch(header)
    if match is None:
        return False
    host = match["host"].lower().removesuffix(".")
    if host == "localhost" or host in names:
        return True
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def is_of_this_origin(headers: Mapping[str, str]) -> bool:
    """Whether a change may come from one of our pages, by what browsers say; headers by lower-case name."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    if origin is None:
        return True
    return origin.partition("://")[2] == headers.get("host", "")
