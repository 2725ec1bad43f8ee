"""`/users`: who can log in by SCRAM. A new password."""

from __future__ import annotations

import os
from typing import Any, Final

from barnabas.server.client.access.scram_users import describe_users, put_user
from barnabas.server.client.failures import Failed
from barnabas.server.console.web.fields import Fields, Unclear
from barnabas.server.console.web.view import Done, View, refused
from barnabas.server.console.web.visit import Visit
from barnabas.server.security.sasl.scram_credentials import ITERATIONS_MIN, ScramMechanism

MECHANISMS: Final = tuple(each.value for each in ScramMechanism)


async def show(visit: Visit) -> View:
    return await _view(visit)


async def _view(visit: Visit, problems: list[str] | None = None, status: int = 200) -> View:
    data: dict[str, Any] = {
        "users": [
            {
                "user": name,
                "trouble": str(each) if isinstance(each, Failed) else None,
                "credentials": []
                if isinstance(each, Failed)
                else [{"mechanism": one.mechanism, "iterations": one.iterations} for one in each],
            }
            for name, each in (await describe_users(visit.client)).items()
        ],
        "mechanisms": list(MECHANISMS),
        "fields": {name: visit.form.text(name) for name in ("user", "mechanism")},
        "problems": problems or [],
    }
    return View("users", "Users", data, status)


async def change(visit: Visit) -> Done | View:
    try:
        user, mechanism, password = _fields(visit.form)
    except Unclear as error:
        return await _view(visit, [str(error)], 422)
    failed = await put_user(visit.client, user, mechanism, password, ITERATIONS_MIN * 2, os.urandom)
    if failed is not None:
        raise refused(f"user {user}", failed)
    what = f"gave user {user} a {mechanism.value} password"
    return Done(what, "user-put", "/users", {"user": user, "mechanism": mechanism.value})


def _fields(form: Fields) -> tuple[str, ScramMechanism, str]:
    """Raises Unclear."""
    user = form.text("user")
    if not user:
        raise Unclear("user", "user: a name is expected")
    mechanism = ScramMechanism.of_name(form.choice("mechanism", MECHANISMS))
    assert mechanism is not None
    password = form.raw("password")
    if not password:
        raise Unclear("password", "password: it must not be empty")
    return user, mechanism, password
