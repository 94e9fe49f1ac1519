"""Verification: what the harness runs, and the verdict that follows from it."""
