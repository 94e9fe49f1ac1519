"""One file per package client: what it says of the index it uses on this machine."""
