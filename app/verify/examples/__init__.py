"""Proof by examples: small programs that run outside the process of their judge."""
