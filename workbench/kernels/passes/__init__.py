"""Rewritings of IR: IR in, IR out, each checked by `check`."""
