"""Elastic sessions on a virtual clock: the code of `deltawire.elastic` and `deltawire.Session` as
it is, one thread at a time, over a network and processes that a seed disturbs
(docs/design/simulation.md).

`machine` has threads and the time, `network` doors and lines, `mesh` a model of what the core
promises of a mesh, `core` what stands in for it, `plan` what a seed decides, `job` the processes,
and `promises` what they are held to.
"""
