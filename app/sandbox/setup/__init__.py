"""Finds and installs a repository's dependencies."""
