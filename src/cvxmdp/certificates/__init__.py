"""Certificates: proofs that a colleague can check, Slater points, repair and the budget frontier."""

from cvxmdp.certificates.atoms import CertificateError
from cvxmdp.certificates.certificate import Certificate
from cvxmdp.certificates.certify import certify
from cvxmdp.certificates.checker import Check, check
from cvxmdp.certificates.frontier import Frontier, frontier
from cvxmdp.certificates.slater import Slater, slater

__all__ = [
    "Certificate",
    "CertificateError",
    "Check",
    "Frontier",
    "Slater",
    "certify",
    "check",
    "frontier",
    "slater",
]
