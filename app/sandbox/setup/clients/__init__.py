"""One file per package client: which package index it uses on this machine."""
