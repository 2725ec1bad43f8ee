"""Subjects as text. The expected texts are what Java 17's X500Principal.getName() makes of the same bytes."""

from __future__ import annotations

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from barnabas.server.security.tls.names import name_text, subject_of

JAVA = {
    "CN=a\\=b\\#c,O=x": "301c310a3008060355040a130178310e300c06035504030c05613d622363",
    'CN=a\\,b\\+c\\;d\\<e\\>f\\"g\\\\h': "301a3118301606035504030c0f612c622b633b643c653e6622675c68",
    "CN=é中,OU=a  b": "301f310d300b060355040b130461202062310e300c06035504030c05c3a9e4b8ad",
    "1.2.840.113549.1.9.1=#16056140622e63,CN=x": (
        "3022310a300806035504031301783114301206092a864886f70d01090116056140622e63"
    ),
    "2.5.4.5=#13023132,2.5.4.12=#13057469746c65,2.5.4.42=#130167,2.5.4.4=#130173,"
    "CN=x,UID=u,DC=com,STREET=st,L=l,ST=s,C=DE": (
        "30819b310b3009060355040613024445310a30080603550408130173310a3008060355040713016c310b300906035504091302"
        "737431133011060a0992268993f22c6401191603636f6d3111300f060a0992268993f22c640101130175310a30080603550403"
        "130178310a30080603550404130173310a3008060355042a130167310e300c060355040c13057469746c65310b300906035504"
        "0513023132"
    ),
    "CN=a+OU=b,O=c": "3022310a3008060355040a1301633114300806035504031301613008060355040b130162",
    "CN=,O=x": "3017310a3008060355040a1301783109300706035504031300",
    "1.2.3.4=#0c03616263,CN=z": "310a300806035504031301 7a310c300a06032a03040c03616263",
    "CN=a\nb": "300e310c300a06035504030c03610a62",
    "CN=\\ sp\\ ": "300f310d300b06035504030c0420737020",
    "CN=\\ \\ s  p\\ \\ ": "30133111300f06035504030c082020732020702020",
    "CN=\\ ": "300c310a300806035504030c0120",
    "CN=tele": "300f310d300b0603550403140474656c65",
    "CN=ia5": "300e310c300a06035504031603696135",
    "CN=a\\00b\x01\x7f": "3010310e300c06035504030c05610062017f",
    "CN=#1c0c000000750000006e00000069": "30173115301306035504031c0c000000750000006e00000069",
    "CN=#12023132": "300d310b3009060355040312023132",
    "CN=😀x": "3010310e300c06035504030c05f09f988078",
}


def _content(text: str) -> bytes:
    """What lies in the outer SEQUENCE, which is left out of some."""
    data = bytes.fromhex(text)
    if data[0] != 0x30:
        return data
    return data[3:] if data[1] == 0x81 else data[2:]


@pytest.mark.parametrize("expected", JAVA)
def test_subjects_are_written_as_java_writes_them(expected: str) -> None:
    assert name_text(_content(JAVA[expected])) == expected


def test_where_java_garbles_the_text_is_written() -> None:
    assert name_text(_content("30133111300f06035504031e0800630061006600e9")) == "CN=café"


def test_the_subject_is_found_in_a_certificate() -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", common_name="kafka1")
    certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    # The library's text, but for what Java escapes beyond RFC 4514.
    expected = certificate.subject.rfc4514_string().replace("#", "\\#").replace("\\\\#", "\\#")
    assert subject_of(certificate.public_bytes(Encoding.DER)) == expected
    assert expected.startswith("CN=kafka1,OU=Testing cert \\#")


@pytest.mark.parametrize("length", range(40))
def test_what_is_cut_off_is_refused(length: int) -> None:
    whole = bytes.fromhex(JAVA["CN=a+OU=b,O=c"])
    with pytest.raises(ValueError, match=r"value|subject|identifier"):
        subject_of(whole[:length])
