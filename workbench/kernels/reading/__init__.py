"""From the text of a Python function to IR: names, types, control flow and calls are resolved here and never again."""
