"""Certificates of a test: authorities, and what they issue, as PEM files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """A certificate with those that issued it except the root, and its key, in files."""

    certificate: Path
    key: Path

    @property
    def keystore(self) -> Path:
        """Key and certificates in one file, as Java reads them."""
        file = self.key.with_suffix(".keystore.pem")
        file.write_text(self.key.read_text() + self.certificate.read_text())
        return file

    def pkcs12(self, password: str) -> Path:
        """Return a keystore with key and certificates, those of authorities in reverse order as OpenSSL writes them."""
        key = load_pem_private_key(self.key.read_bytes(), None)
        assert isinstance(key, rsa.RSAPrivateKey)
        certificate, *authorities = x509.load_pem_x509_certificates(self.certificate.read_bytes())
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        file = self.key.with_suffix(".p12")
        file.write_bytes(serialize_key_and_certificates(None, key, certificate, authorities[::-1], encryption))
        return file


class Authority:
    """A certificate authority.

    Args:
        folder: Where its files are.
        name: Name of the authority, and of its certificate's file.
        issuer: The authority that issued its certificate; None for a root.
    """

    def __init__(self, folder: Path, name: str, issuer: Authority | None = None):
        self._folder, self._name, self._issuer = folder, _name(name), issuer
        self._key = rsa.generate_private_key(65537, 2048)
        signer = issuer or self
        self._certificate = signer._sign(self._name, self._key.public_key(), is_authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._certificate.public_bytes(Encoding.PEM))

    def issue(
        self, name: str, *, password: str = "", form: PrivateFormat = PrivateFormat.PKCS8, validity: timedelta = DAY
    ) -> Issued:
        """Issue a certificate for 127.0.0.1, and write it with the intermediate authorities and its key.

        Args:
            name: Common name, and name of the files.
            password: Password of the key's file; none if empty.
            form: Form of the key: PKCS #8, or the older one of OpenSSL.
            validity: Time from now until the certificate expires.
        """
        key = rsa.generate_private_key(65537, 2048)
        chain = self._sign(_name(name), key.public_key(), validity=validity).public_bytes(Encoding.PEM)
        authority = self
        while authority._issuer:
            chain += authority._certificate.public_bytes(Encoding.PEM)
            authority = authority._issuer
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        issued = Issued(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        issued.certificate.write_bytes(chain)
        issued.key.write_bytes(key.private_bytes(Encoding.PEM, form, encryption))
        return issued

    def _sign(
        self, subject: x509.Name, key: rsa.RSAPublicKey, *, is_authority: bool = False, validity: timedelta = DAY
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * DAY)
            .not_valid_after(now + validity)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
