"""The checker: reads problems and certificates, and recomputes every claim with its own closed forms."""
