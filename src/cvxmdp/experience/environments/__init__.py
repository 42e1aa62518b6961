"""Environments: sources of episodes."""
