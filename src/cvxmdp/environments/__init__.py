"""Environments: experience from simulators, features, demonstrations, and what a policy is worth there."""
