"""A real Kubernetes control plane on this machine, and a stand-in for its nodes."""
