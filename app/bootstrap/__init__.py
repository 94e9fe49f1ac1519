"""The composition root: the only room that names implementations and puts a job's rooms together.

sandboxes ◄─ desk (one job in one process) ◄─ local (the command line) · attending (a server's worker)
publishing (a server's publisher, which knows no model)
"""
