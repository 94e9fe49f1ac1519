"""Finds the place in a file that an edit of a model means."""
