"""Other coding agents, each started in the sandbox with access to one model."""
