"""What a project's own files say about setting it up and testing it: CI, tox, nox, make, package scripts."""
