"""`/tokens`: delegation tokens, as far as whoever asks may see them; make one, renew one. The secret of a token is
shown when it is made, and never again.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any, Final

from barnabas.server.client.access.delegation_tokens import (
    Holder,
    Token,
    create_token,
    describe_tokens,
    renew_token,
    why_none,
)
from barnabas.server.client.failures import ClientError, Failed, Refused, Unsupported
from barnabas.server.client.texts.when import time_utc
from barnabas.server.console.pages.common import cut
from barnabas.server.console.web.fields import Fields, Unclear
from barnabas.server.console.web.view import Done, Refusal, View, refused, status_of
from barnabas.server.console.web.visit import Visit

RENEWERS_MAX: Final = 100
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PERIOD: Final = re.compile(r"([0-9]{1,9})\s*([smhd])")


async def show(visit: Visit) -> View:
    return await _view(visit)


async def _view(visit: Visit, problems: list[str] | None = None, status: int = 200, made: Token | None = None) -> View:
    """made: it is shown whether the others can be listed or not: its secret is nowhere else. Raises ClientError."""
    why, tokens = None, list[Token]()
    try:
        tokens = await describe_tokens(visit.client)
    except ClientError as error:
        why = why_none(error) if isinstance(error, (Refused, Unsupported)) else None
        if why is None and made is None:
            raise
        why = why or f"tokens cannot be listed now: {error}"
    text = visit.query.text("q").lower()
    chosen = [each for each in tokens if text in str(each.owner).lower() or text in each.token_id.lower()]
    shown, pages = cut(chosen, visit.query)
    data: dict[str, Any] = {
        "not_offered": why,
        "q": visit.query.text("q"),
        "tokens": [token_row(each, visit.now_ms) for each in shown],
        "all": len(tokens),
        "made": None if made is None else {**token_row(made, visit.now_ms), "hmac": b64encode(made.hmac).decode()},
        "fields": {name: visit.form.raw(name) if problems else "" for name in ("owner", "renewers", "lifetime")},
        "problems": problems or [],
        **pages,
    }
    return View("tokens", "Delegation tokens", data, status)


def token_row(token: Token, now_ms: int) -> dict[str, Any]:
    """Without its secret."""
    return {
        "token_id": token.token_id,
        "owner": str(token.owner),
        "requester": None if token.requester is None else str(token.requester),
        "renewers": [str(each) for each in token.renewers],
        "issue": token.issue_ms,
        "expiry": token.expiry_ms,
        "max": token.max_ms,
        "is_expired": token.expiry_ms < now_ms,
        "may_last": token.expiry_ms < token.max_ms,
    }


async def change(visit: Visit) -> Done | View:
    try:
        if visit.form.choice("do", ("create", "renew")) == "renew":
            return await _renew(visit)
        return await _create(visit)
    except Unclear as error:
        return await _view(visit, [str(error)], 422)
    except Unsupported as error:
        return await _view(visit, [str(error)], 422)


async def _create(visit: Visit) -> Done | View:
    """Raises Unclear, ClientError."""
    form = visit.form
    owner = Holder.of(form.text("owner")) if form.text("owner") else None
    renewers = [Holder.of(line) for line in form.raw("renewers").split("\n") if line.strip()]
    if len(renewers) > RENEWERS_MAX:
        raise Unclear("renewers", f"renewers: {RENEWERS_MAX} at most are expected, one a line")
    made = await create_token(visit.client, owner, renewers, period_ms(form, "lifetime"))
    if isinstance(made, Failed):
        if status_of(made.code) == 422:
            return await _view(visit, [str(made)], 422)
        raise refused("token", made)
    what = f"made delegation token {made.token_id} of {made.owner}, until {time_utc(made.expiry_ms)}"
    data = {**token_row(made, visit.now_ms), "hmac": b64encode(made.hmac).decode()}
    return Done(what, "token-made", "/tokens", data, await _view(visit, made=made))


async def _renew(visit: Visit) -> Done:
    """Raises Unclear, Refusal, ClientError."""
    token = await token_of(visit, visit.form.text("id"))
    until = await renew_token(visit.client, token.hmac, period_ms(visit.form, "lifetime"))
    if isinstance(until, Failed):
        raise refused(f"token {token.token_id}", until)
    what = f"renewed delegation token {token.token_id} of {token.owner}, until {time_utc(until)}"
    return Done(what, "token-renewed", "/tokens", {"token_id": token.token_id, "expiry": until})


async def token_of(visit: Visit, token_id: str) -> Token:
    """Raises Refusal, ClientError."""
    for each in await describe_tokens(visit.client):
        if each.token_id == token_id:
            return each
    raise Refusal(404, "there is no such token; it may have ended")


def period_ms(form: Fields, name: str) -> int:
    """`12h`, `7d`; 0 for nothing. Raises Unclear."""
    text = form.text(name).lower()
    if not text:
        return 0
    match = _PERIOD.fullmatch(text)
    if match is None or not int(match[1]):
        raise Unclear(name, f"{name}: a time as 30m, 12h or 7d is expected, not {text[:40]!r}")
    return int(match[1]) * _UNITS_MS[match[2]]
