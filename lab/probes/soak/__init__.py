"""Training under faults: ranks are killed, cut off, frozen, and recover."""
