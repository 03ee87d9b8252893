"""Recordings of events, and what is done by walking them.

`recording` notes what happens to memory, `tape` is what users hold, `reverse` walks back, `publish` writes `.grad`;
`jvp`, `replay`, `checkpoint` and `capture` are other ways over the same events. Imports `launches` and below.
To add a kind of event: its record in `kinds`, and what notes it in `recording`.
"""
