"""Certificates: proofs that a colleague can check, Slater points and repair."""
