"""Builds the parts of a server from settings; implementations are chosen here."""
