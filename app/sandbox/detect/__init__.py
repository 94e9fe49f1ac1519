"""One file per ecosystem: what a repository's manifests say must be installed before its tests can be executed."""
