"""Proxies before the console that are trusted: what they say of a visitor counts, what others say does not.

`X-Forwarded-For`: each proxy adds at its end whom it was called by, so the visitor is the last one there that is not a
trusted proxy himself; what stands before him he may have written. `X-Forwarded-Proto: https`: his way to the last proxy
is encrypted, so cookies can be for such ways only. `Forwarded` (RFC 7239) is not read.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from barnabas.server.network.addresses import plain_host


class Proxies:
    """addresses: of proxies, or networks of them (`10.0.0.0/8`). Raises ValueError for what is neither."""

    def __init__(self, addresses: Iterable[str] = ()) -> None:
        self._networks = [ipaddress.ip_network(text) for text in addresses]

    def are_trusted(self, address: str) -> bool:
        try:
            known = ipaddress.ip_address(plain_host(address))
        except ValueError:
            return False
        return any(known in network for network in self._networks)

    def visitor(self, address: str, forwarded_for: Iterable[str]) -> str:
        """Whose request it is, that comes from a trusted proxy. forwarded_for: the headers, in order."""
        found = address
        for text in reversed([part.strip() for header in forwarded_for for part in header.split(",")]):
            host = text[1 : text.index("]")] if text.startswith("[") and "]" in text else text
            host = host.partition(":")[0] if host.count(":") == 1 else host
            try:
                found = str(ipaddress.ip_address(host))
            except ValueError:
                break  # nobody's address: who added it is the last that is known
            if not self.are_trusted(found):
                break
        return found
