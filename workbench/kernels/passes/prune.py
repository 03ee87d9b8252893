"""Drop what has no effect and no reader: statements, results of branches, carried values, pushes without pops.

Dead-code elimination by mark and sweep (Cytron et al., 1991): what has an effect is live, and so is what it reads.
"""

from __future__ import annotations

from ..ir import Function, Region, Stmt, Value, root, walk
from ..ops import control as c, memory as mem


def prune(function: Function, groups: tuple[frozenset[str], ...] = ()) -> Function:
    """Drop, in place, what has no effect and no reader. `groups`: array parameters that share memory."""
    live = _Live(function, groups)
    live.run()
    _sweep(function.body, live)
    return function


class _Live:
    """The statements and values that are needed, found backwards from the statements with an effect."""

    def __init__(self, function: Function, groups: tuple[frozenset[str], ...] = ()):
        self.groups = groups
        self.values: set[Value] = set()
        self.stmts: set[Stmt] = set()
        self.work: list[Value] = []
        self.function = function
        self.owner: dict[Value, tuple[Stmt, int]] = {}  # region parameter -> its loop and position
        self.place: dict[Value, int] = {}  # result of a statement with regions -> its position
        self.parents: dict[Stmt, Stmt] = {}
        self.pushes: dict[Value, list[Stmt]] = {}
        self.private: dict[str, list[Stmt]] = {}
        self.undo: list[Stmt] = []
        self._index(function.body, None)

    def _index(self, region: Region, parent: Stmt | None) -> None:
        for stmt in region.body:
            if parent is not None:
                self.parents[stmt] = parent
            if stmt.row in (c.PUSH, c.POP):
                self.pushes.setdefault(stmt.args[0], []).append(stmt)
            if stmt.role == "replay" and stmt.row in (mem.STORE, mem.LOG_STORE):
                self.private.setdefault(root(stmt.args[0]).name, []).append(stmt)
            if stmt.row in (mem.MARK, mem.ROLLBACK):
                self.undo.append(stmt)
            if stmt.regions:
                self.place.update((o, j) for j, o in enumerate(stmt.outs))
            for r in stmt.regions:
                for j, p in enumerate(r.params):
                    self.owner[p] = (stmt, j)
                self._index(r, stmt)

    def run(self) -> None:
        for stmt in walk(self.function.body):
            if stmt.row in _ROOTS and not (stmt.role == "replay" and stmt.row in (mem.STORE, mem.LOG_STORE)):
                self.keep(stmt)
        while self.work:
            self.visit(self.work.pop())

    def need(self, value: Value) -> None:
        if value not in self.values:
            self.values.add(value)
            self.work.append(value)

    def keep(self, stmt: Stmt) -> None:
        """This statement happens: so do its arguments, and the control flow that leads to it."""
        if stmt in self.stmts:
            return
        self.stmts.add(stmt)
        if stmt.row is c.CALL:
            needed = (*stmt.args, *stmt.regions[0].results)
        else:  # the results and parameters of regions ask for what they need
            needed = c.deciding(stmt) if stmt.regions else stmt.args
        for value in needed:
            self.need(value)
        self.reads(stmt)
        parent = self.parents.get(stmt)
        if parent is not None and parent not in self.stmts:
            self.keep(parent)

    def reads(self, stmt: Stmt) -> None:
        """A live read of private memory needs the writes to it before; a live pop needs its pushes."""
        if stmt.row is mem.LOAD:
            name = root(stmt.args[0]).name
            same = {name}.union(*(g for g in self.groups if name in g)) & self.private.keys()
            for other in [*(s for n in same for s in self.private[n]), *(self.undo if same else ())]:
                self.keep(other)
        elif stmt.row is c.POP:
            for other in self.pushes[stmt.args[0]]:
                self.keep(other)

    def visit(self, value: Value) -> None:
        if value.stmt is not None:
            stmt = value.stmt
            if stmt not in self.stmts:
                self.keep(stmt)
            if stmt.regions:
                self.result(stmt, self.place[value])
        elif value in self.owner:
            stmt, j = self.owner[value]
            self.keep(stmt)
            k = j - 1 if stmt.row is c.FOR else j
            if stmt.row is c.EACH:
                if j >= len(stmt.attr.shape):
                    self.need(stmt.args[j - len(stmt.attr.shape)])
            elif k >= 0 and stmt.row is not c.CALL:  # which is kept with all that it takes
                self.result(stmt, k)

    def result(self, stmt: Stmt, k: int) -> None:
        """Result k of a statement with regions is needed: so are the results of its regions and what it starts from."""
        if stmt.row in (c.IF, c.CALL, c.EACH):
            for r in stmt.regions:
                self.need(r.results[k])
            return
        body, fixed = stmt.regions[-1], 3 if stmt.row is c.FOR else 0
        self.need(stmt.args[fixed + k])
        self.need(body.results[k + stmt.attr.breaks])
        self.need(body.params[k + (stmt.row is c.FOR)])
        if stmt.row is c.WHILE:
            self.need(stmt.regions[0].params[k])
        self.need(stmt.outs[k])


_ROOTS = {mem.STORE, mem.LOG_STORE, mem.ACCUMULATE, *mem.ATOMICS, c.PRINTF, c.ASSERT}


def _sweep(region: Region, live: _Live) -> None:
    region.body[:] = [s for s in region.body if s in live.stmts]
    for stmt in region.body:
        if stmt.row in (c.FOR, c.WHILE, c.IF, c.EACH):
            _sweep_results(stmt, live)
        for r in stmt.regions:
            _sweep(r, live)


def _sweep_results(stmt: Stmt, live: _Live) -> None:
    kept = [k for k, out in enumerate(stmt.outs) if out in live.values]
    if stmt.row in (c.IF, c.EACH):
        for r in stmt.regions:
            r.results = tuple(r.results[k] for k in kept)
        if stmt.row is c.EACH:
            _sweep_elements(stmt, live)
    else:
        fixed, skip = (3, 1) if stmt.row is c.FOR else (0, 0)
        body = stmt.regions[-1]
        b = int(stmt.attr.breaks)
        stmt.args = (*stmt.args[:fixed], *(stmt.args[fixed + k] for k in kept))
        body.results = (*body.results[:b], *(body.results[b + k] for k in kept))
        body.params[:] = [*body.params[:skip], *(body.params[skip + k] for k in kept)]
        if stmt.row is c.WHILE:
            stmt.regions[0].params[:] = [stmt.regions[0].params[k] for k in kept]
    stmt.outs = tuple(stmt.outs[k] for k in kept)


def _sweep_elements(stmt: Stmt, live: _Live) -> None:
    """Tiles of which no element is read."""
    rank, (region,) = len(stmt.attr.shape), stmt.regions
    kept = [(a, p) for a, p in zip(stmt.args, region.params[rank:], strict=True) if p in live.values]
    stmt.args = tuple(a for a, _ in kept)
    region.params[rank:] = [p for _, p in kept]
