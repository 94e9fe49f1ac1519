"""Sandboxes in containers: an engine of the tests' own where one can be started, else one that is reachable."""
