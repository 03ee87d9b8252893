"""A program of the workbench on a Python that lacks what that of a browser lacks, and has no compiler on its PATH."""

import sys
import threading
from pathlib import Path


class Missing:
    """As in Pyodide, and a little worse: its ctypes and subprocess are there, and fail when they are used."""

    names = {"ctypes", "_ctypes", "fcntl", "mmap", "subprocess", "_posixsubprocess", "multiprocessing", "cupy"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def start(self):
    raise RuntimeError("can't start new thread")


assert not Missing.names & set(sys.modules)
sys.meta_path.insert(0, Missing())
threading.Thread.start = start

import numpy as np

import workbench as wb


@wb.kernel
def turn(x: wb.array[float], y: wb.array[float], steps: int):
    i = wb.tid()
    s = x[i]
    for k in range(steps):
        s = s * wb.cos(s)
    y[i] = s


x = wb.array(np.linspace(0.1, 0.9, 20000), dtype=float, requires_grad=True)
y, loss = wb.zeros(20000, dtype=float), wb.zeros(1, dtype=float)
with wb.Tape() as tape:
    wb.launch(turn, dim=20000, inputs=[x, y, 3])
    wb.utils.array_sum(y, out=loss)
tape.backward(loss)
s, slope = x.numpy().astype(float), 1.0
for k in range(3):
    s, slope = s * np.cos(s), slope * (np.cos(s) - s * np.sin(s))
assert np.allclose(y.numpy(), s, atol=1e-6) and np.allclose(x.grad.numpy(), slope, atol=1e-6)

few = wb.array([0.5, 0.25], dtype=wb.float64, requires_grad=True)
two = wb.zeros(2, dtype=wb.float64)


@wb.kernel
def square(x: wb.array[wb.float64], y: wb.array[wb.float64]):
    i = wb.tid()
    y[i] = x[i] * x[i]


with wb.Tape(keep="all") as tape:
    wb.launch(square, dim=2, inputs=[few], outputs=[two])
assert np.allclose(wb.jacobian(tape, two, few), [[1.0, 0.0], [0.0, 0.5]])
wb.gradcheck(tape, [few], [two])
with wb.capture() as graph:
    wb.launch(square, dim=2, inputs=[few], outputs=[two])
few.assign([3.0, 4.0])
graph.replay()
assert two.numpy().tolist() == [9.0, 16.0]
few.assign([0.5, 0.25])
tape.backward(grads={two: np.ones(2)})
tape.to_html("page.html")
assert "square" in Path("page.html").read_text() and "data:image" in tape.show()._repr_mimebundle_()["text/html"]
assert "_ctypes" not in sys.modules and "subprocess" not in sys.modules

# matplotlib, which the seeding panel draws with, imports subprocess: there it can be imported, and starts nothing
Missing.names -= {"subprocess", "_posixsubprocess"}
panel = tape.seeds(two)
panel.measure.value = True
assert len(panel.engine.columns) == 2 and not panel.working
panel.wait()
