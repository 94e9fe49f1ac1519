"""Sandboxes in E2B's cloud."""
