"""One file per ecosystem: what a repository's manifests say must be installed."""
