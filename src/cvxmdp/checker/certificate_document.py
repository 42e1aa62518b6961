"""Certificate files: JSON whose arrays are base64 of plain bytes. Nothing that is read here is trusted."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from cvxmdp.checker.arithmetic import CertificateError

FORMAT = "cvxmdp certificate 2"
FIRST_FORMAT = "cvxmdp certificate 1"
LARGEST_FILE = 2**31  # bytes; a certificate for a million states has some 200 MB


def read_document(path: Path) -> dict[str, Any]:
    """The document of a file; a certificate in form, not yet in truth."""
    if not path.is_file():
        path.stat()  # raises where there is nothing at all
        raise CertificateError(f"{path.name} is no plain file")
    if path.stat().st_size > LARGEST_FILE:
        raise CertificateError(f"the file is larger than {LARGEST_FILE:,} bytes")
    document = read_json(path.read_bytes())
    if isinstance(document, dict) and document.get("format") == FIRST_FORMAT:
        raise CertificateError(
            f"the file is a certificate of cvxmdp 0.1 ({FIRST_FORMAT!r}), which named things by how the "
            "program was written. Certify the problem again with this version, or check the file with 0.1"
        )
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CertificateError(f"the file is not a certificate of the form {FORMAT!r}")
    for name in ("claims", "evidence"):
        if not isinstance(document.get(name), dict):
            raise CertificateError(f"the file has no {name!r}")
    if document.get("evidence_sha256") != evidence_digest(document["evidence"]):
        raise CertificateError("the evidence was changed after it was written: its checksum is off")
    return document


def read_json(raw: bytes) -> Any:
    """Strict JSON: no NaN, no name twice in one table."""
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise CertificateError(f"the file is not JSON: {error}") from error


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number that JSON knows")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A table whose names occur once: of two claims of one name readers would see either."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError(f"some name among {sorted(table)} occurs twice in one table")
    return table


def evidence_digest(evidence: Any) -> str:
    """A checksum of the evidence, against files damaged on the way."""
    return hashlib.sha256(json.dumps(evidence, sort_keys=True).encode()).hexdigest()


def decode_tree(tree: Any) -> Any:
    """Tables and lists with their arrays decoded; anything else is refused."""
    if isinstance(tree, dict) and set(tree) == {"shape", "float64"}:
        return decode(tree)
    if isinstance(tree, dict):
        return {name: decode_tree(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [decode_tree(value) for value in tree]
    raise CertificateError(f"the evidence holds {tree!r} where an array was expected")


def decode(encoded: Any) -> np.ndarray:
    """An array from its shape and base64 of its bytes; allocates no more than the text holds."""
    try:
        shape = tuple(int(size) for size in encoded["shape"])
        raw = base64.b64decode(encoded["float64"], validate=True)
        array = np.frombuffer(raw, dtype="<f8")
        if any(size < 0 for size in shape):
            raise ValueError(f"shape {shape}")
        return array.reshape(shape).astype(np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise CertificateError(f"the certificate holds a damaged array: {error}") from error
