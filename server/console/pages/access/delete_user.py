"""`/delete-user?user=…`: the credentials of a user and what names him, then those that were chosen are deleted, when
his name was typed: nobody has the password to bring them back.
"""

from __future__ import annotations

from typing import Any

from barnabas.kproto import ErrorCode
from barnabas.server.client.access.acls import describe_acls
from barnabas.server.client.access.quotas import describe_quotas
from barnabas.server.client.access.scram_users import delete_credential, describe_users
from barnabas.server.client.failures import ClientError, Failed
from barnabas.server.console.pages.access.users import MECHANISMS
from barnabas.server.console.web.view import Done, Refusal, View, refused, status_of
from barnabas.server.console.web.visit import Visit
from barnabas.server.security.sasl.scram_credentials import ScramMechanism


async def show(visit: Visit) -> View:
    return await _view(visit, visit.query.text("user"), visit.query.many("mechanism"))


async def _view(
    visit: Visit, user: str, chosen: list[str], problems: list[str] | None = None, status: int = 200
) -> View:
    found = (await describe_users(visit.client)).get(user, [])
    if isinstance(found, Failed):
        raise refused(f"user {user}", found)
    data: dict[str, Any] = {
        "user": user,
        "credentials": [
            {
                "mechanism": each.mechanism,
                "iterations": each.iterations,
                "chosen": not chosen or each.mechanism in chosen,
            }
            for each in found
            if each.mechanism in MECHANISMS
        ],
        "acls": await _acls(visit, user),
        "quotas": await _quotas(visit, user),
        "problems": problems or [],
    }
    return View("delete_user", f"Delete credentials of {user}", data, status)


async def _acls(visit: Visit, user: str) -> int | None:
    """How many name him; None: that cannot be asked for."""
    try:
        return sum(each.entry.principal == f"User:{user}" for each in await describe_acls(visit.client))
    except ClientError:
        return None


async def _quotas(visit: Visit, user: str) -> int | None:
    try:
        return sum(("user", user) in each.entity for each in await describe_quotas(visit.client))
    except ClientError:
        return None


async def change(visit: Visit) -> Done | View:
    user, chosen = visit.form.text("user"), visit.form.many("mechanism")
    if visit.form.raw("confirm").strip() != user or not user:
        why = "The name that was typed is another one; nothing was deleted."
        return await _view(visit, user, chosen, [why], 422)
    mechanisms = [each for name in dict.fromkeys(chosen) if (each := ScramMechanism.of_name(name)) is not None]
    if not mechanisms or len(mechanisms) != len(set(chosen)):
        return await _view(visit, user, chosen, [f"mechanism: some of {', '.join(MECHANISMS)} are expected"], 422)
    done: list[str] = []
    for each in mechanisms:
        failed = await delete_credential(visit.client, user, each)
        if failed is not None:
            before = f"; {', '.join(done)} was deleted before" if done else ""
            status = 404 if failed.code == ErrorCode.RESOURCE_NOT_FOUND else status_of(failed.code)
            raise Refusal(status, f"user {user}, {each.value}: {failed}{before}")
        done.append(each.value)
    what = f"deleted the credentials {', '.join(done)} of user {user}"
    return Done(what, "user-deleted", "/users", {"user": user, "mechanisms": done})
