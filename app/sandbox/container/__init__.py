"""Sandboxes in containers of Docker or Podman."""
