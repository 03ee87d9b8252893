"""One gradient cell, or one thread, in full."""
