"""Pictures that the examples of a page make: the directives `shown` and `live`.

    .. shown:: picture
       :alt: what is to be seen

The page's examples are run once, as the tests run them; what they left under the name `picture` is saved and put in
place: what `tape.show()` returns, or a figure of matplotlib. `live` puts the live view of a tape there.
"""

from __future__ import annotations

import contextlib
import doctest
import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

import workbench

MADE = "_made"


@functools.cache
def left_by(page: Path) -> dict[str, Any]:
    """The names that the examples of a page leave behind. Raises ExtensionError where one does not do what it says."""
    test = doctest.DocTestParser().get_doctest(
        page.read_text("utf-8"), {"wb": workbench, "np": np}, page.name, str(page), 0
    )
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are for whoever reads the page, and said on it
        if runner.run(test, out=said.append, clear_globs=False).failed:
            raise ExtensionError("".join(said))
    return test.globs


def save(thing: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if hasattr(thing, "savefig"):
        thing.savefig(path, metadata={"Date": None})
    else:
        thing.save(path)


class Shown(SphinxDirective):
    required_arguments = 1
    option_spec = {"alt": directives.unchanged_required}  # noqa: RUF012 (docutils wants a dict)

    def thing(self) -> Any:
        """What is to be shown, and the name of its file."""
        left = left_by(Path(self.env.doc2path(self.env.docname)))
        if self.arguments[0] not in left or "alt" not in self.options:
            raise self.error(f"the examples leave no `{self.arguments[0]}`, or it has no :alt:")
        return left[self.arguments[0]]

    @property
    def stem(self) -> str:
        return f"{self.env.docname.replace('/', '-')}-{self.arguments[0]}"

    def run(self) -> list[nodes.Node]:
        save(self.thing(), Path(self.env.srcdir) / MADE / f"{self.stem}.svg")
        return [nodes.image(uri=f"/{MADE}/{self.stem}.svg", alt=self.options["alt"])]


class Live(Shown):
    def run(self) -> list[nodes.Node]:
        folder = Path(self.env.app.outdir) / "live"
        folder.mkdir(parents=True, exist_ok=True)
        self.thing().to_html(folder / f"{self.stem}.html")
        up = "../" * self.env.docname.count("/")
        frame = f'<iframe class="live" src="{up}live/{self.stem}.html" title="{self.options["alt"]}"></iframe>'
        return [nodes.raw("", frame, format="html")]


def setup(app: Any) -> dict[str, bool]:
    with contextlib.suppress(ImportError):
        import matplotlib

        matplotlib.use("svg")
        matplotlib.rcParams["svg.hashsalt"] = "workbench"
    app.add_directive("shown", Shown)
    app.add_directive("live", Live)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
