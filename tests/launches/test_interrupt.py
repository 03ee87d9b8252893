"""Kernels that never end obey Ctrl-C within a second, on every backend, and the process goes on working."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

import workbench as wb
from workbench.kernels.emit import c as emit_c

ROOT = Path(__file__).resolve().parents[2]
HEAD = """
import os, signal, threading, time
import numpy as np
import workbench as wb
wb.config.backend = "BACKEND"
signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs in the background without it

@wb.kernel
def square(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    y[i] = x[i] * x[i]

@wb.kernel
def endless(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    a = x[i]
    while a > -1.0:
        a = a * 0.5 + 1.0
    y[i] = a

@wb.kernel
def nested(x: wb.array(dtype=float), y: wb.array(dtype=float), n: int):
    i = wb.tid()
    a = x[i]
    for j in range(n):
        for k in range(n):
            a = a * 0.5 + 1.0
    y[i] = a

@wb.kernel
def uneven(x: wb.array(dtype=float), y: wb.array(dtype=float), n: int):
    i = wb.tid()
    a = x[i]
    for j in range(n):
        for k in range(j - i):
            a = a * 0.5 + x[k % 2]
    y[i] = a

@wb.kernel
def leaving(x: wb.array(dtype=float), y: wb.array(dtype=float), n: int):
    i = wb.tid()
    a = x[i]
    for j in range(n):
        for k in range(n):
            a = wb.sin(a) + 1.0
            if a < -5.0:
                break
    y[i] = a

@wb.kernel
def patient(x: wb.array(dtype=float), y: wb.array(dtype=float), n: int):
    i, j = wb.tid()
    s = float(0.0)
    for k in range(n):
        s = wb.sin(s + float(k))
    if s > 2.0:
        y[0] = s

def interrupted(kernel, n, dim=None, error=KeyboardInterrupt, numbers=()):
    "Seconds from the signal to the error of a launch that is ready to run."
    x, y = wb.array(np.ones(n), dtype=float, requires_grad=True), wb.zeros(n, dtype=float)
    sent = []
    def send():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGALRM if error is TimeoutError else signal.SIGINT)
    timer = threading.Timer(1.5, send)
    timer.start()
    try:
        with wb.Tape() as tape:
            wb.launch(kernel, dim=dim or n, inputs=[x, y, *numbers])
    except error as e:
        late = time.monotonic() - sent[0]
        print("late", round(late, 3), str(e))
    else:
        raise SystemExit("it ended")
    assert late < 1.0, late
    with wb.Tape() as tape:
        wb.launch(square, dim=n, inputs=[x, y])
    tape.backward(grads={y: wb.ones(n, dtype=float)})
    assert (y.numpy() == 1).all() and (x.grad.numpy() == 2).all()
    return x, y
"""


def run(backend: str, body: str) -> str:
    text = HEAD.replace("BACKEND", backend) + textwrap.dedent(body)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:  # where its functions are read
        file.write(text)
        file.flush()
        done = subprocess.run([sys.executable, file.name], capture_output=True, text=True, timeout=100, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


LOOPS = {
    "while": "interrupted(endless, 1)",
    "while in many threads": "interrupted(endless, 100_000)",
    "for in for": "interrupted(nested, 4, numbers=[5_000_000])",
    "for in for of its own turns": "interrupted(uneven, 4, numbers=[5_000_000])",
    "for with a break": "interrupted(leaving, 4, numbers=[2**31 - 1])",
    "a long grid": "interrupted(patient, 4, dim=(2**13, 2**18), numbers=[1000])",
}


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.host_memory
def test_ctrl_c_ends_what_never_ends(backend, loop):
    assert run(backend, LOOPS[loop]).startswith("late")


@pytest.mark.host_memory
def test_ctrl_c_ends_a_loop_and_later_ones_too(backend):
    said = run(backend, "for k in range(2):\n    interrupted(endless, 1000)")
    assert said.count("late") == 2


@pytest.mark.needs_cc
def test_what_a_handler_of_a_signal_raises_is_what_the_launch_raises():
    said = run(
        "c",
        """
        def late(*_):
            raise TimeoutError("too late")
        signal.signal(signal.SIGALRM, late)
        interrupted(endless, 1, error=TimeoutError)
    """,
    )
    assert "too late" in said


@pytest.mark.needs_cc
def test_a_signal_whose_handler_returns_stops_nothing():
    said = run(
        "c",
        """
        @wb.kernel
        def long(x: wb.array(dtype=float), y: wb.array(dtype=float)):
            i = wb.tid()
            n = int(0)
            while n < 200_000_000:
                n += 1
            y[i] = x[i] * float(n)
        seen = []
        signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
        x, y = wb.ones(1), wb.zeros(1)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        wb.launch(long, dim=1, inputs=[x, y])
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(int(y.numpy()[0]), len(seen) > 0)
    """,
    )
    assert said == "200000000 True\n"


@pytest.mark.needs_cc
def test_a_launch_of_another_thread_goes_on():
    said = run(
        "c",
        """
        @wb.kernel
        def long(y: wb.array(dtype=float)):
            i = wb.tid()
            n, a = int(0), float(1.0)
            while n < 50_000_000:
                n += 1
                a = a * 0.5 + 1.0
            y[i] = a
        y = wb.zeros(4)
        def other():
            with wb.Tape():
                pass
            wb.launch(long, dim=4, inputs=[y])
        made = threading.Thread(target=other)
        wb.launch(square, dim=4, inputs=[wb.ones(4), wb.zeros(4)])
        made.start()
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            pass
        made.join()
        print(y.numpy())
    """,
    )
    assert said == "[2. 2. 2. 2.]\n"


@pytest.mark.needs_cc
def test_what_an_interrupted_launch_was_writing_is_not_differentiated():
    said = run(
        "c",
        """
        x, y = wb.array(np.ones(4), dtype=float, requires_grad=True), wb.zeros(4, dtype=float)
        timer = threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        tape = wb.Tape()
        with tape:
            try:
                wb.launch(endless, dim=4, inputs=[x, y])
            except KeyboardInterrupt:
                pass
            wb.launch(square, dim=4, inputs=[y, y])
        try:
            tape.backward(grads={y: wb.ones(4)})
        except wb.GradientError as e:
            print(e.slug)
    """,
    )
    assert said.strip()


# ---- what it costs


@wb.kernel
def plain(x: wb.array(dtype=float), y: wb.array(dtype=float)):
    i = wb.tid()
    s = 0.0
    for j in range(3):
        for k in range(3):
            s += x[i] * float(j * k)
    y[i] = s


def test_loops_of_known_few_turns_ask_nothing():
    assert "wb_ask" not in emit_c.text(plain.program().function)
    assert "wb_ask" not in str(plain.cuda)
