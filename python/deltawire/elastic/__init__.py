"""Sessions that go on when ranks die, leave and join (docs/design/elastic.md).

`Session` is the interface. Here: views and quorums (`views`), messages (`calls`), the
door that each member keeps open (`reception`), and the meeting in which the members agree on the
next view (`attending`, `hosting`, `founding`); `membership` joins them.
"""
