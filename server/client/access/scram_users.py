"""Users that log in by SCRAM: DescribeUserScramCredentials 0, AlterUserScramCredentials 0, of the controller (KIP-554).

A password never leaves this process: what is sent is what the brokers keep, its salted hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from barnabas.kproto import ApiKey
from barnabas.kproto.messages import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from barnabas.server.client.client import Client, Job
from barnabas.server.client.failures import Failed
from barnabas.server.security.sasl.scram_credentials import SALT_BYTES, ScramMechanism, salted_password


class Credential(NamedTuple):
    """`mechanism`: its name; of one that is not known here its number."""

    mechanism: str
    iterations: int


async def describe_users(client: Client) -> dict[str, list[Credential] | Failed]:
    """All users that have credentials. Raises ClientError."""
    request = DescribeUserScramCredentialsRequest(users=None)
    answer = await client.ask_patiently(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, lambda version: request, lambda answer: answer.error_code
    )
    found: dict[str, list[Credential] | Failed] = {}
    for row in sorted(answer.results, key=lambda row: str(row.user)):
        if row.error_code:
            found[row.user] = Failed.of(row.error_code, row.error_message)
        else:
            found[row.user] = [Credential(_name(each.mechanism), each.iterations) for each in row.credential_infos]
    return found


async def put_user(
    client: Client,
    name: str,
    mechanism: ScramMechanism,
    password: str,
    iterations: int,
    random_bytes: Callable[[int], bytes],
) -> Failed | None:
    """Give a user a password, a new one if there is one. Raises ClientError."""
    salt = random_bytes(SALT_BYTES)
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism.number,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(mechanism, password, salt, iterations),
    )
    return await _alter(client, name, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


async def delete_credential(client: Client, name: str, mechanism: ScramMechanism) -> Failed | None:
    """Raises ClientError."""
    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism.number)
    return await _alter(client, name, AlterUserScramCredentialsRequest(deletions=[deletion]))


async def _alter(client: Client, name: str, request: AlterUserScramCredentialsRequest) -> Failed | None:
    def read(answer: Any, names: list[str]) -> Iterator[tuple[str, Failed | None]]:
        for row in answer.results:
            yield row.user, Failed.of(row.error_code, row.error_message) if row.error_code else None

    job = Job(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, lambda names, version: request, read)
    return (await client.by_controller([name], job, repeatable=False))[name]


def _name(number: int) -> str:
    mechanism = ScramMechanism.of_number(number)
    return str(number) if mechanism is None else mechanism.value
