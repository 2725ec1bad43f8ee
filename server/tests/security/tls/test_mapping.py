"""`ssl.principal.mapping.rules`: the examples of KIP-371 and its corners."""

from __future__ import annotations

import pytest

from barnabas.server.security.tls.mapping import PrincipalMapping

SERVICE = "CN=kafka1,OU=ops,O=Foo,C=DE"
PERSON = "CN=Bob Smith,OU=People,O=X"


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        ("DEFAULT", SERVICE, SERVICE),
        ("RULE:^CN=([^,]+),.*$/$1/", SERVICE, "kafka1"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L", PERSON, "bob smith@people"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U", PERSON, "BOB SMITH@PEOPLE"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, DEFAULT", SERVICE, SERVICE),
        ("RULE:^CN=x.*$/a/,\n RULE:^CN=k.*$/b/", SERVICE, "b"),
        ("RULE:^CN=x.*$/a/", SERVICE, None),
        ("", SERVICE, None),
        # The whole subject has to match, and then every match in it is replaced.
        ("RULE:kafka/x/", SERVICE, None),
        ("RULE:.*CN=(.*?),.*/$1/", SERVICE, "kafka1"),
        ("RULE:.*/x/", SERVICE, "xx"),
        ("RULE:^CN=(.*?)/$1!/", SERVICE, "!kafka1,OU=ops,O=Foo,C=DE"),
        # Groups: as many digits as there are groups; what is no group stays as it is.
        (r"RULE:^CN=(.)(.*)$/$12-$2/", "CN=ab", "a2-b"),
        (r"RULE:^CN=(.)(.*)$/$3$0/", "CN=ab", "$3CN=ab"),
        (r"RULE:^CN=(a)?(.*)$/[$1]$2/", "CN=b", "[]b"),
        # Escapes.
        (r"RULE:^CN=(.*)\/(.*)$/$1\/\$2\\$2/", "CN=a/b", r"a/$2\b"),
        (r"RULE:^CN=([^,]+),.*$/$1,/,DEFAULT", SERVICE, "kafka1,"),
    ],
)
def test_rules(rules: str, subject: str, name: str | None) -> None:
    assert PrincipalMapping(rules).name(subject) == name


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ("default", "'default' begins with no rule"),
        ("RULE:a/b", "begins with no rule"),
        ("RULE:a/b/X", "begins with no rule"),
        ("RULE:a/b/L DEFAULT", "begins with no rule"),
        ("RULE:(/b/", "is none of Python's: missing"),
        (r"RULE:\p{Alpha}/b/", "is none of Python's: bad escape"),
    ],
)
def test_what_is_no_rule_is_named(rules: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint.replace("(", r"\(")):
        PrincipalMapping(rules)
