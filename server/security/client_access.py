"""How a client comes to a broker of one's own: what it must know, in the words of each client.

For brokers that were made for a test, whose files and passwords their maker knows (`barnabas dev --security`,
`barnabas.Broker(security=…)`). What is returned is all that the client's constructor or file of settings needs.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.server.security.sasl.client import ClientCredentials

PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
AUTHORITY: Final = "ca.pem"
BROKER: Final = "broker.pem"
_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def login_module(mechanism: str, options: Mapping[str, str]) -> str:
    """A line of `sasl.jaas.config`. Neither names nor values hold quotation marks or backslashes."""
    said = " ".join(f'{name}="{value}"' for name, value in options.items())
    return f"{_MODULES[mechanism]} required {said};"


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """`bootstrap`: `host:port`. `protocol`: one of `PROTOCOLS`; `mechanism`: one of `MECHANISMS`, where one logs in.
    `directory`: of the files, without a slash at its end. With SSL the user shows a certificate.
    """

    bootstrap: str
    protocol: str
    directory: str
    user: str
    password: str
    mechanism: str = "SCRAM-SHA-256"

    def __repr__(self) -> str:
        return f"ClientAccess({self.user} to {self.bootstrap} with {self.protocol})"  # without the password

    @property
    def authority(self) -> str:
        """The file with the certificate of the authority that has issued the broker's (PEM)."""
        return f"{self.directory}/{AUTHORITY}"

    @property
    def certificate(self) -> str:
        """The file with the user's private key and certificate (PEM)."""
        return f"{self.directory}/{self.user}.pem"

    def librdkafka(self) -> dict[str, Any]:
        """For confluent-kafka and kcat, and whatever else has librdkafka in it."""
        options: dict[str, Any] = {"bootstrap.servers": self.bootstrap, "security.protocol": self.protocol}
        if self._is_encrypted:
            options["ssl.ca.location"] = self.authority
        if self._logs_in:
            options |= {"sasl.mechanism": self.mechanism}
            options |= {"sasl.username": self.user, "sasl.password": self.password}
        else:
            options |= {"ssl.certificate.location": self.certificate, "ssl.key.location": self.certificate}
        return options

    def java(self) -> dict[str, str]:
        """For Java's clients, Kafka's own commands, and with `kafka.` before each name for Spark."""
        options = {"bootstrap.servers": self.bootstrap, "security.protocol": self.protocol}
        if self._is_encrypted:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.authority}
        if self._logs_in:
            login = login_module(self.mechanism, {"username": self.user, "password": self.password})
            options |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": login}
        else:
            options |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.certificate}
        return options

    def kafka_python(self) -> dict[str, Any]:
        """Arguments for kafka-python's classes."""
        options = {"bootstrap_servers": self.bootstrap, "security_protocol": self.protocol}
        if self._is_encrypted:
            options["ssl_cafile"] = self.authority
        if not self._logs_in:
            options |= {"ssl_certfile": self.certificate, "ssl_keyfile": self.certificate}
        return options | self._python_login()

    def aiokafka(self) -> dict[str, Any]:
        """Arguments for aiokafka's classes."""
        options: dict[str, Any] = {"bootstrap_servers": self.bootstrap, "security_protocol": self.protocol}
        context = self.ssl_context()
        if context is not None:
            options["ssl_context"] = context
        return options | self._python_login()

    def ssl_context(self) -> ssl.SSLContext | None:
        """For whatever takes Python's own; None without TLS."""
        if not self._is_encrypted:
            return None
        context = ssl.create_default_context(cafile=self.authority)
        if not self._logs_in:
            context.load_cert_chain(self.certificate)
        return context

    @property
    def credentials(self) -> ClientCredentials | None:
        """For our own client; None without a log-in."""
        return ClientCredentials(self.mechanism, self.user, self.password) if self._logs_in else None

    @property
    def _is_encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def _logs_in(self) -> bool:
        return self.protocol.startswith("SASL")

    def _python_login(self) -> dict[str, str]:
        if not self._logs_in:
            return {}
        return {
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }
