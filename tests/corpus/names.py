"""Parameters that are called what the compiler calls its own: shadows, tangents, parts, marks, words of the C text."""

import workbench as wb

from . import floats, ints, program, zeros


@program(
    x=floats(4),
    d_x=floats(4),
    d_d_x=floats(4),
    d_x_1=floats(4),
    t_x=floats(4),
    t_t_x=floats(4),
    y=zeros(4),
    d_y=zeros(4),
)
def names_of_shadows_and_tangents(F):
    @wb.kernel
    def k(
        x: wb.array(dtype=F),
        d_x: wb.array(dtype=F),
        d_d_x: wb.array(dtype=F),
        d_x_1: wb.array(dtype=F),
        t_x: wb.array(dtype=F),
        t_t_x: wb.array(dtype=F),
        y: wb.array(dtype=F),
        d_y: wb.array(dtype=F),
    ):
        i = wb.tid()
        y[i] = x[i] * d_x[i] + d_d_x[i] * d_x_1[i] * t_x[i]
        d_y[i] = y[i] * t_t_x[i] + d_x[i] * d_x[i]
        for turn in range(3):
            d_y[i] = d_y[i] * x[i] + d_x[i]

    return k


@program(
    x=floats(4),
    d_x=floats(4),
    lo=floats(2, low=4.0, high=5.0),
    after_lo=floats(4),
    ties_lo=floats(4),
    d_lo=zeros(2),
    hi=zeros(1),
    ties_hi=floats(4),
    after_ties_hi=zeros(4),
)
def names_of_companions_of_extremes(F):
    @wb.kernel
    def k(
        x: wb.array(dtype=F),
        d_x: wb.array(dtype=F),
        lo: wb.array(dtype=F),
        after_lo: wb.array(dtype=F),
        ties_lo: wb.array(dtype=F),
        d_lo: wb.array(dtype=F),
        hi: wb.array(dtype=F),
        ties_hi: wb.array(dtype=F),
        after_ties_hi: wb.array(dtype=F),
    ):
        i = wb.tid()
        wb.atomic_min(lo, i % 2, x[i] * after_lo[i])
        wb.atomic_max(hi, 0, d_x[i] * ties_lo[i] * ties_hi[i])
        wb.atomic_add(d_lo, i // 2, x[i] * d_x[i] * ties_hi[i])
        after_ties_hi[i] = ties_hi[i] * ties_lo[i]

    return k


@program(x=floats(8), d_x=floats(8), y=zeros(8))
def names_of_shadows_over_shared_memory(F):
    @wb.kernel
    def twice(x: wb.array(dtype=F), d_x: wb.array(dtype=F), t_x: wb.array(dtype=F), y: wb.array(dtype=F)):
        i = wb.tid()
        y[i] = x[i] * d_x[i] * t_x[i]

    @wb.kernel
    def over(x: wb.array(dtype=F), d_x: wb.array(dtype=F)):
        i = wb.tid()
        d_x[i] = x[i] * d_x[i] + x[i]

    def run(a):
        wb.launch(twice, 8, [a.x, a.x, a.d_x, a.y])
        wb.launch(over, 4, [a.x[0:8:2], a.x[1:8:2]])
        wb.launch(over, 5, [a.d_x[0:5], a.d_x[0:5]])

    return run


@program(x=floats(8), y=zeros(4))
def names_of_extremes_over_shared_memory(F):
    @wb.kernel
    def k(x: wb.array(dtype=F), d_x: wb.array(dtype=F), y: wb.array(dtype=F), ties_y: wb.array(dtype=F)):
        i = wb.tid()
        wb.atomic_max(y, i, x[i] * ties_y[i] * d_x[i])

    def run(a):
        wb.launch(k, 4, [a.x[1:5], a.x[2:6], a.y, a.x[2:6]])

    return run


@program(dim=6, x=floats(8), part_0=floats(8), d_part_0=floats(8), y=zeros(8), part_1=zeros(8))
def names_of_parts_of_a_stencil(F):
    @wb.kernel
    def k(
        x: wb.array(dtype=F),
        part_0: wb.array(dtype=F),
        d_part_0: wb.array(dtype=F),
        y: wb.array(dtype=F),
        part_1: wb.array(dtype=F),
    ):
        i = wb.tid() + 1
        y[i] = wb.exp(x[i - 1]) * x[i + 1] + part_0[i - 1] * part_0[i + 1] * d_part_0[i]
        part_1[i] = x[i] * part_0[i] * wb.exp(d_part_0[i + 1])

    return k


@program(
    x=floats(8),
    owner_x=floats(8),
    by_x=floats(4),
    at=ints(3, 0, 2, 1),
    adder_x=zeros(4),
    kind_x=zeros(8),
    found=zeros(4),
    owner_owner_x=zeros(1),
)
def names_of_the_marks_of_races(F):
    @wb.kernel
    def k(
        x: wb.array(dtype=F),
        owner_x: wb.array(dtype=F),
        by_x: wb.array(dtype=F),
        at: wb.array(dtype=int),
        adder_x: wb.array(dtype=F),
        kind_x: wb.array(dtype=F),
        found: wb.array(dtype=F),
        owner_owner_x: wb.array(dtype=F),
    ):
        i = wb.tid()
        x[at[i]] = x[at[i]] * by_x[i] + owner_x[i]
        found[at[i]] = x[at[i]] * x[at[i]]
        kind_x[at[i]] = by_x[i] * owner_x[at[i]]
        wb.atomic_add(adder_x, at[i], by_x[i] * owner_x[i])
        wb.atomic_add(owner_owner_x, 0, by_x[i])

    def run(a):
        args = [a.x[1:8:2], a.owner_x[0:4], a.by_x, a.at, a.adder_x, a.kind_x[0:8:2], a.found, a.owner_owner_x]
        wb.launch(k, 4, args)

    return run


@program(
    args=floats(4),
    begin=floats(4),
    end=floats(4),
    status=floats(4),
    block=floats(4),
    scratch=floats(4),
    args_n0=zeros(4),
    wb_place=zeros(4),
    threadIdx=zeros(1),
)
def names_of_the_text(F):
    @wb.kernel
    def k(
        args: wb.array(dtype=F),
        begin: wb.array(dtype=F),
        end: wb.array(dtype=F),
        status: wb.array(dtype=F),
        block: wb.array(dtype=F),
        scratch: wb.array(dtype=F),
        args_n0: wb.array(dtype=F),
        wb_place: wb.array(dtype=F),
        threadIdx: wb.array(dtype=F),
    ):
        i = wb.tid()
        t_1, e_1, v0 = args[i] * begin[i], end[i] * status[i], block[i] * scratch[i]
        for wb_c in range(i):
            t_1 = t_1 * e_1 + v0 * F(wb_c)
        args_n0[i] = t_1 * e_1 + F(args.shape[0]) * v0
        wb_place[i] = args_n0[i] * args_n0[i]
        wb.atomic_add(threadIdx, 0, t_1 * v0)

    return k


@program(x=floats(4), y=floats(4), z=floats(4), u=floats(4), v=floats(4), w=zeros(4))
def names_of_fields(F):
    @wb.struct
    class Pair:
        x: wb.array(dtype=F)
        d_x: wb.array(dtype=F)

    @wb.struct
    class Launch:
        dim0: F
        x: wb.array(dtype=F)

    @wb.kernel
    def k(s: Pair, d_s: Launch, s_x: wb.array(dtype=F), d_s_x: wb.array(dtype=F), launch: Launch, w: wb.array(dtype=F)):
        i = wb.tid()
        w[i] = s.x[i] * s.d_x[i] * d_s.x[i] + s_x[i] * d_s_x[i] * launch.x[i] * launch.dim0 + d_s.dim0 * s.x[i]

    def run(a):
        s, d_s, launch = Pair(), Launch(), Launch()
        s.x, s.d_x, d_s.x, d_s.dim0, launch.x, launch.dim0 = a.x, a.y, a.z, 2.0, a.x, 3.0
        wb.launch(k, 4, [s, d_s, a.u, a.v, launch, a.w])

    return run


@program(x=floats(3), n_x=floats(3), d_x=zeros(3), rows=floats(3), x_1=zeros(3))
def names_beside_private_copies(F):
    @wb.kernel
    def k(
        x: wb.array(dtype=F),
        n_x: wb.array(dtype=F),
        d_x: wb.array(dtype=F),
        rows: wb.array(dtype=F),
        x_1: wb.array(dtype=F),
    ):
        i = wb.tid()
        for turn in range(i + 2):
            x[i] = x[i] * n_x[i] + d_x[i]
            d_x[i] = x[i] * rows[i]
            if d_x[i] > F(1.0):
                x_1[i] = x_1[i] + d_x[i] * x[i]

    return k
