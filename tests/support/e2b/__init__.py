"""E2B on loopback: its control plane and its envd, as the real SDK speaks to them."""
