"""From a decorated Python function to IR: names, types, control flow and calls are resolved here and never again.

`source` finds the text, `refused_syntax` says what the language has not, `base` holds what is known while a kernel is
read, and `reader` goes through the tree with the help of `control_flow`, `subscripts` and `calls`. Builtins with a form
of their own, as those of tiles, are read by functions. Imports the IR, its rows and `show`; knows no pass.
To add a construct of Python: a `visit_...` method in the file it belongs to, and out of the table of refusals. To add
a builtin that reads its own arguments: a function with `@reads(it)`, in a file that `calls` imports.
"""
