"""Where deliveries become work: an event, the facts around it, a decision, and what follows from that.

inbox ─► desk ─► circumstances ─► decide ─► admission (new jobs: draft, sections)
  ▲                                      ├► living (words, approvals, more money, stops)
  │                                      ├► answers (replies and visible reasons)
  │                                      └► surroundings (what changed around jobs)
reconcile ─ hindsight: the same events, from what GitHub says now
stock: base commits are brought, merges made, before anybody works
"""
