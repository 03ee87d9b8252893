"""From a decorated Python function to IR: names, types, control flow and calls are resolved here and never again.

`source` finds the text, `refused_syntax` says what the language has not, `reader` goes through the tree with the help
of `control_flow`, `subscripts`, `calls` and `func_grad`. Imports the IR, its rows and `show`; knows no pass.
To add a construct of Python: a `visit_...` method in the file it belongs to, and out of the table of refusals.
"""
