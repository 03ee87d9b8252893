"""Slices and rows of arrays and of values, arrays made in the kernel: what shares memory, and what does not."""

import workbench as wb

from . import floats, ints, mat33, program, vec2, vec3, vec4, zeros


@program(dim=1, x=floats(9), z=floats(3, 4), n=ints(6), y=zeros(9))
def slices_read_as_python_reads_them(F):
    @wb.func
    def total(s: wb.array(dtype=F)):
        t = F(0.0)
        for k in range(len(s)):
            t += s[k] * s[k] * F(k + 1)
        return t

    @wb.kernel
    def k(x: wb.array(dtype=F), z: wb.array2d(dtype=F), n: wb.array(dtype=wb.int32), y: wb.array(dtype=F)):
        m = n[0]
        y[0] = total(x[1:m]) + total(x[2:-1:2]) * total(x[:3])
        y[1] = total(x[::-1]) - total(x[-3:]) * total(x[6:2:-2])
        y[2] = total(x[m:-9:-1]) + total(x[-m : m - 1]) + total(x[m : m - 2]) + total(x[:100])
        y[3] = total(z[:, 2]) * total(z[1]) + total(z[1, 1:4]) + total(z[0:2][1][::3])
        s = x[1:m][::2][1:]
        y[4] = s[-1] * s[0] * F(s.shape[0]) + x[:m][m - 1] * x[m:][-1] * x[::-1][m]
        w = z[1:, ::-1]
        for i in range(w.shape[0]):
            for j in range(w.shape[1]):
                y[5] += w[i, j] * w[i][-1] * F(i + 2 * j)
        step = 1 - m // 2
        y[6] = total(x[::step]) + total(x[7:1:step])

    return k


@program(dim=3, x=floats(3, 6), y=floats(3, 6), p=floats(3, 6, of=vec2), s=zeros(4))
def slices_written_and_added_to(F):
    @wb.func
    def decay(row: wb.array(dtype=F), by: F):
        for k in range(1, len(row)):
            row[k] = row[k] * by + row[k - 1] * row[0]

    @wb.kernel
    def k(x: wb.array2d(dtype=F), y: wb.array2d(dtype=F), p: wb.array2d(dtype=vec2(F)), s: wb.array(dtype=F)):
        i = wb.tid()
        row = x[i]
        row[1] = row[0] * row[2]
        part = y[i, 1:5]
        part[0] += row[1] * part[2]
        part[-1] *= part[0]
        decay(part[::-1], row[3])
        odd = p[i, 1::2]
        odd[1].x += odd[0].y * part[1]
        odd[2] = odd[2] * part[0] + odd[0]
        odd[0][1] *= row[5]
        tail = s[1:]
        wb.atomic_add(tail, i, part[2] * odd[1].x)
        tail[0] -= part[1]

    return k


@program(x=floats(4, 5), n=ints(1, 0, 3, 2), y=zeros(4))
def rows_chosen_by_branches_and_loops(F):
    @wb.func
    def first_above(x: wb.array2d(dtype=F), i: int):
        for j in range(i, 4):
            if x[j, 0] > F(1.2):
                return x[j]
        return x[i]

    @wb.kernel
    def k(x: wb.array2d(dtype=F), n: wb.array(dtype=wb.int32), y: wb.array(dtype=F)):
        i = wb.tid()
        row = x[i]
        if n[i] > 1:
            row = x[n[i] - 1]
        part = row[1:3] if n[i] == 0 else x[n[i]][2:4]
        y[i] = row[0] * part[1] + first_above(x, i)[1] * first_above(x, n[i])[2]
        for j in range(n[i]):
            part = x[j, j : j + 2]
            y[i] += row[j] * part[1]
            row = x[3 - j]
        y[i] *= part[0]
        if n[i] != 1:
            late = x[n[i], 1:]
        if n[i] != 1:
            y[i] += late[0] * late[-1]

    return k


@program(x=floats(4), v=floats(4, of=vec4), m=floats(4, of=mat33), y=zeros(4))
def slices_of_vectors_and_matrices(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), v: wb.array(dtype=vec4(F)), m: wb.array(dtype=mat33(F)), y: wb.array(dtype=F)):
        i = wb.tid()
        a, r = v[i], m[i]
        turned = a[::-1]
        y[i] = wb.dot(a[1:3], turned[-2:]) + wb.length(r[0, 1:]) * wb.trace(r[1:, :2]) + wb.dot(r[:, 2], a[0:3])
        a[1:3] = turned[::2] * x[i]
        a[::3] += a[1:3]
        a[-1:] *= x[i]
        r[1] = a[1:4]
        r[:, 0] = r[1] * x[i]
        r[1:, 1:] = r[0:2, 0:2] * x[i]
        r[i % 3][1] += x[i]
        r[i % 3] *= 2.0
        for j in range(3):
            y[i] += wb.dot(r[j], a[1:]) * r[j, i % 3]
        v[i] = a
        m[i] = r

    return k


@program(x=floats(5), n=ints(0, 3, 1, 2, -1), y=zeros(5))
def local_arrays_of_numbers(F):
    @wb.func
    def fill(s: wb.array(dtype=F), by: F):
        for k in range(len(s)):
            s[k] = s[k] * by + F(k)

    @wb.func
    def made(a: F, b: F):
        t = wb.zeros(shape=(2, 3), dtype=F)
        for i in range(t.shape[0]):
            for j in range(t.shape[1]):
                t[i, j] = a * F(i) + b * F(j)
        return t

    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=wb.int32), y: wb.array(dtype=F)):
        i = wb.tid()
        s = wb.zeros(4, dtype=F)
        for j in range(4):
            s[j] = x[(i + j) % 5]
        fill(s[1:], x[i])
        s[n[i]] += s[0] * s[-1]
        g = made(x[i], s[n[i]])
        row = g[i % 2]
        row[wb.min(n[i], 2)] = row[1] * s[2]
        fill(row[::-2], x[i])
        h = made(s[1], x[i])
        if n[i] > 0:
            t = wb.zeros(shape=2, dtype=F)
            t[1] = x[i] * x[i]
            g[1, n[i] - 1] = t[1] * t[0] + t[1]
        for a in range(2):
            for b in range(3):
                y[i] += g[a][b] * h[a, b] * F(a + 2 * b + 1)
        if n[i] > 0:
            t[0] = s[3]
            y[i] += t[0] * t[1]

    return k


@program(dim=4, x=floats(4, of=vec3), n=ints(2, 0, 1, 3), y=zeros(4))
def local_arrays_of_vectors_and_structs(F):
    V, M = vec3(F), mat33(F)

    @wb.struct
    class Hit:
        t: F
        at: V
        id: wb.int32

    @wb.func
    def keep(hits: wb.array(dtype=Hit), count: int, t: F, at: V):
        j = count
        while j > 0 and hits[j - 1].id > count:
            hits[j] = hits[j - 1]
            j -= 1
        hits[j].t = t * t
        hits[j].at = at
        hits[j].id = 5 - count
        return count + 1

    @wb.kernel
    def k(x: wb.array(dtype=V), n: wb.array(dtype=wb.int32), y: wb.array(dtype=F)):
        i = wb.tid()
        p = wb.zeros(shape=(2, 2), dtype=V)
        hits = wb.zeros(shape=4, dtype=Hit)
        count = int(0)  # noqa: RUF046, UP018
        for j in range(n[i] + 1):
            p[j % 2, 1] = x[j] * F(j + 1)
            p[1][j / 2].y += x[i][0]
            count = keep(hits, count, wb.length(x[j]), p[1, j / 2])
        h = hits[0]
        y[i] = wb.dot(p[0, 1], h.at) * h.t + F(count)
        for j in range(count):
            y[i] += hits[j].at[1] * hits[j].t * F(hits[j].id)
        r = wb.zeros(2, dtype=M)
        r[i % 2] = wb.outer(x[i], p[1, 0])
        r[1][2, 0] += y[i]
        y[i] += wb.trace(r[i % 2] @ r[1])

    return k


@program(x=floats(4), n=ints(1, 2, 4, 3), y=zeros(4))
def names_after_loops_that_turn(F):
    @wb.func
    def signed(a: F, k: int):
        if k > 2:
            return a * a
        if k > 0:
            return -a

    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=wb.int32), y: wb.array(dtype=F)):
        i = wb.tid()
        j = int(0)  # noqa: RUF046, UP018
        for j in range(n[i] - 1):
            y[i] += x[j]
        for f in range(n[i]):
            z = x[f] * x[i]
            if f == 2:
                break
        y[i] += x[f] * z + x[j] * x[j]
        for g in range(n[i] - 1, -1, -1):
            row = x[g:]
            if row[0] > F(1.0):
                continue
            y[i] += row[0]
        w = int(0)  # noqa: RUF046, UP018
        while w < n[i]:
            q = x[w] * z
            w += 1
        y[i] += q * signed(row[0], n[i]) * F(g + 1)
        while True:
            w -= 1
            u = x[w] * q
            if w < 1:
                break
        y[i] += u * u

    return k


@program(x=floats(4), n=ints(0, 1, 2, 3), y=zeros(4))
def loops_over_what_is_known(F):
    V = vec3(F)

    @wb.func
    def square(a: F):
        return a * a

    @wb.func
    def twice(a: F):
        return a + a

    FUNCS, NAMES, WEIGHTS = (square, twice), ["square", "twice"], [0.5, 1.5, -2.0]

    @wb.func
    def within(v: V, low: F):
        for c in range(wb.static(len(v))):
            if v[c] < low:
                return False
        return True

    @wb.kernel
    def k(x: wb.array(dtype=F), n: wb.array(dtype=wb.int32), y: wb.array(dtype=F)):
        i = wb.tid()
        a = x[i]
        for f in wb.static([square, twice, square]):
            a = f(a) * F(0.5)
        for j in range(len(FUNCS)):
            for m in range(2):
                if m + j == n[i]:
                    continue
                a += wb.static(FUNCS[1 - j])(x[m]) * wb.static(WEIGHTS[j] + 1.0)
        for j in range(2):
            a = FUNCS[j](a)
        for k, (name, w) in enumerate(zip(wb.static(NAMES), WEIGHTS)):
            if wb.static(name == "square"):
                a += x[k] * w
            else:
                if n[i] > 2:
                    break
                a *= w
        for c in (x[i], a, F(2.0)):
            if n[i] == 1 and c == a:
                break
            y[i] += c * x[0]
        for _ in wb.static(()):
            y[i] = F(9.0)
        s = wb.zeros(3, dtype=F)
        for j in range(len(s)):
            s[j] = a * F(j) + (x[0] if 0 < n[i] <= j < 3 else x[1])
        if within(V(s[0], s[1], s[2]), F(0.0)) or n[i] == 3:
            y[i] += s[0] * s[1] * s[2]

    return k
