"""Sandboxes in containers of Docker or Podman, over the engine's own command line."""
