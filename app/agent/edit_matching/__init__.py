"""Finds the place in a file that a model's edit refers to."""
