"""Certificates: proofs that a colleague can check, Slater points and repair."""

from cvxmdp.certificates.atoms import CertificateError
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.certify import certify
from cvxmdp.certificates.checker import Check, check
from cvxmdp.certificates.slater import Slater, slater

__all__ = [
    "Certificate",
    "CertificateError",
    "Check",
    "Slater",
    "certify",
    "check",
    "slater",
]
