"""Sandboxes: where every tool and all project code are executed."""
