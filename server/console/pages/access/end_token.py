"""`/end-token?id=…`: whose a delegation token is, and what follows when it ends; then it ends, when its owner's name
was typed: its secret cannot be brought back.
"""

from __future__ import annotations

from typing import Any

from barnabas.server.client.access.delegation_tokens import Token, describe_tokens, end_token, why_none
from barnabas.server.client.failures import Failed, Refused, Unsupported
from barnabas.server.console.pages.access.tokens import token_of, token_row
from barnabas.server.console.web.view import Done, View, refused
from barnabas.server.console.web.visit import Visit


async def show(visit: Visit) -> View:
    token: Token | None = None
    why = None
    try:
        for each in await describe_tokens(visit.client):
            if each.token_id == visit.query.text("id"):
                token = each
    except (Refused, Unsupported) as error:
        why = why_none(error)
        if why is None:
            raise
    return _view(visit, token, why)


def _view(
    visit: Visit, token: Token | None, why: str | None, problems: list[str] | None = None, status: int = 200
) -> View:
    data: dict[str, Any] = {
        "not_offered": why,
        "ends": None if token is None else token_row(token, visit.now_ms),
        "confirmed_by": "" if token is None else token.owner.name,
        "problems": problems or [],
    }
    return View("end_token", "End a delegation token", data, status)


async def change(visit: Visit) -> Done | View:
    token = await token_of(visit, visit.form.text("id"))
    if visit.form.raw("confirm").strip() != token.owner.name:
        return _view(visit, token, None, ["The name that was typed is another one; the token was left."], 422)
    failed = await end_token(visit.client, token.hmac)
    if isinstance(failed, Failed):
        raise refused(f"token {token.token_id}", failed)
    what = f"ended delegation token {token.token_id} of {token.owner}"
    return Done(what, "token-ended", "/tokens", {"token_id": token.token_id})
