"""Sandboxes through Anthropic's sandbox-runtime."""
