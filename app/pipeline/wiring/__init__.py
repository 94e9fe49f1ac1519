"""Builds the parts of a job from settings; implementations are chosen here."""
