/* Launches looked at, and gradients published and cleared, without Python's interpreter: the next step of a track (`tapes/followed.py`, whose `step`
   does the same and more), and a launch outside of tapes that was made before (`launches/seen.py`). Written against the stable interface of CPython, whose headers are not needed. Whatever is not the
   plain case is left to Python: nothing has changed then. */
#include <stdint.h>
typedef struct _object PyObject;
typedef intptr_t Size;
typedef PyObject *(*Fast)(PyObject *, PyObject *const *, Size);
typedef void (*wb_kernel)(const void *, int64_t, int64_t);
typedef void (*wb_parallel)(wb_kernel, const void *, int64_t, int64_t, int64_t);
typedef struct { const char *name; Fast run; int flags; const char *text; } PyMethodDef;
extern PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
extern PyObject *PyUnicode_InternFromString(const char *);
extern PyObject *PyObject_GetAttr(PyObject *, PyObject *), *PyObject_CallNoArgs(PyObject *);
extern PyObject *PyObject_CallFunctionObjArgs(PyObject *, ...), *PyObject_Type(PyObject *);
extern int PyObject_SetAttr(PyObject *, PyObject *, PyObject *), PyObject_RichCompareBool(PyObject *, PyObject *, int);
extern int PyObject_IsTrue(PyObject *), PyList_Append(PyObject *, PyObject *);
extern Size PyTuple_Size(PyObject *), PyList_Size(PyObject *), PyDict_Size(PyObject *);
extern PyObject *PyTuple_GetItem(PyObject *, Size), *PyList_GetItem(PyObject *, Size), *PyDict_GetItem(PyObject *, PyObject *);
extern PyObject *PyList_New(Size), *PyTuple_New(Size), *PyErr_NoMemory(void), *PyNumber_Add(PyObject *, PyObject *), *PyIter_Next(PyObject *);
extern int PyDict_Next(PyObject *, Size *, PyObject **, PyObject **);
extern int PyTuple_SetItem(PyObject *, Size, PyObject *);
extern int PyList_SetItem(PyObject *, Size, PyObject *);
extern long long PyLong_AsLongLong(PyObject *);
extern PyObject *PyLong_FromLong(long), *PyBool_FromLong(long);
extern double PyFloat_AsDouble(PyObject *);
extern char *PyBytes_AsString(PyObject *);
extern void Py_IncRef(PyObject *), Py_DecRef(PyObject *), PyErr_Clear(void), *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *);
extern Size PyBytes_Size(PyObject *);
extern PyObject *PyErr_Occurred(void), *PyEval_GetFrame(void), *PyFrame_GetBack(PyObject *), *PyFrame_GetCode(PyObject *);
extern unsigned long PyThread_get_thread_ident(void);
extern char PyFloat_Type, PyLong_Type, PyTuple_Type, PyBytes_Type, _Py_NoneStruct;
extern void *memcpy(void *, const void *, __SIZE_TYPE__), *memset(void *, int, __SIZE_TYPE__);
extern PyObject *PyDict_New(void);
#define NONE ((PyObject *)&_Py_NoneStruct)
enum { EQUAL = 2, BLOCK = 2048, LARGE = 1 << 16 };

static PyObject *serial, *allocation, *watchers, *origins, *version, *blank, *any, *f_lasti, *_program, *_reading;
static PyObject *attributes, *constants, *statics, *seen, *cells, *cell_contents, *one, *spans;
static PyObject *opened, *check_races, *remember_launches, *switches, *asks, *shown, *launches, *quick_name, *arrays, *stack_name, *fixed_name, *paths_name, *count_name;
static PyObject *exposed, *loan, *former, *written, *by_hand, *publisher, *gradient, *grad_notes, *noted_by, *address;
static PyObject *nbytes, *device_name, *read_at;

static PyObject *item(PyObject *of, Size k) { return PyTuple_GetItem(of, k); }
static Size number(PyObject *of, Size k) { return (Size)PyLong_AsLongLong(item(of, k)); }
static int type_is(PyObject *a, const char *type) {
    PyObject *found = PyObject_Type(a);
    Py_DecRef(found);
    return (void *)found == (void *)type;
}
static int equal(PyObject *a, PyObject *b) { return a == b || (a && b && PyObject_RichCompareBool(a, b, EQUAL) == 1); }

/* An attribute that its owner keeps alive, as slots and dictionaries do: a borrowed reference. */
static PyObject *lent(PyObject *of, PyObject *name) {
    PyObject *found = PyObject_GetAttr(of, name);
    if (found) Py_DecRef(found);
    return found;
}

/* The same object, or a number of the same type and bits. */
static int same(PyObject *now, PyObject *then) {
    if (now == then) return 1;
    if (type_is(now, &PyFloat_Type) && type_is(then, &PyFloat_Type)) {
        double a = PyFloat_AsDouble(now);
        return a == PyFloat_AsDouble(then) && a != 0.0;
    }
    return type_is(now, &PyLong_Type) && type_is(then, &PyLong_Type) && equal(now, then);
}

/* Do the names that a kernel uses mean what they meant: all the same objects. */
static int current(PyObject *reading) {
    PyObject *list = lent(reading, attributes), *other = lent(reading, constants);
    if (!list || !other || PyObject_IsTrue(other) || !(other = lent(reading, statics)) || PyObject_IsTrue(other)) return 0;
    for (Size k = 0, n = PyList_Size(list); k < n; ++k) {
        PyObject *entry = PyList_GetItem(list, k), *now = PyObject_GetAttr(item(entry, 0), item(entry, 1));
        if (now) Py_DecRef(now);
        if (now != item(entry, 2)) return 0;
    }
    if (!(list = lent(reading, seen))) return 0;
    for (Size k = 0, n = PyList_Size(list); k < n; ++k) {
        PyObject *entry = PyList_GetItem(list, k);
        if (PyDict_GetItem(item(entry, 0), item(entry, 1)) != item(entry, 2)) return 0;
    }
    if (!(list = lent(reading, cells))) return 0;
    for (Size k = 0, n = PyList_Size(list); k < n; ++k) {
        PyObject *entry = PyList_GetItem(list, k);
        if (lent(item(entry, 0), cell_contents) != item(entry, 1)) return 0;
    }
    return 1;
}

/* Is this what a memory that nobody watches but the tape `own` has as its watchers. */
static int only(PyObject *list, PyObject *own) {
    Size n = PyList_Size(list);
    if (n == 0) return 1;
    PyObject *ref = PyList_GetItem(list, 0);
    if (n != 1) return 0;
    if (ref == own) return 1;
    PyObject *tape = PyObject_CallNoArgs(ref);
    if (tape) Py_DecRef(tape);
    return tape == NONE;
}

static int called_from(PyObject *code, PyObject *instruction) {
    PyObject *here = PyEval_GetFrame(), *frame = here ? PyFrame_GetBack(here) : 0;
    if (!frame) return 0;
    PyObject *its = PyFrame_GetCode(frame), *at = its == code ? PyObject_GetAttr(frame, f_lasti) : 0;
    int same = at && equal(at, instruction);
    if (at) Py_DecRef(at);
    Py_DecRef(its);
    Py_DecRef(frame);
    return same;
}

/* What must hold for every step: (ident, stack, id of the tape, lent, capture_log, config, memory, asks, shown, numbers). */
static int undisturbed(PyObject *all) {
    PyObject *stack = item(all, 1), *choices = item(all, 5), *memory = item(all, 6);
    if ((unsigned long)PyLong_AsLongLong(item(all, 0)) != PyThread_get_thread_ident()) return 0;
    if (PyList_Size(stack) != 1 || (Size)PyList_GetItem(stack, 0) != number(all, 2)) return 0;
    if (PyDict_Size(item(all, 3)) || PyDict_GetItem(item(all, 4), opened) != NONE) return 0;
    PyObject *races = PyDict_GetItem(choices, check_races), *remember = PyDict_GetItem(choices, remember_launches);
    if (!races || PyObject_IsTrue(races) || !remember || !PyObject_IsTrue(remember)) return 0;
    if (!equal(PyDict_GetItem(memory, asks), item(all, 7)) || !equal(PyDict_GetItem(memory, shown), item(all, 8))) return 0;
    PyObject *read = lent(item(all, 9), any);
    return read && !PyObject_IsTrue(read);
}

/* Write a number as `struct` does with this code. 0 for one that does not fit. */
static int put(char *to, int code, PyObject *now) {
    if (code == 'f' || code == 'd') {
        double value = PyFloat_AsDouble(now);
        float rounded = (float)value;
        if (code == 'd') memcpy(to, &value, 8);
        else memcpy(to, &rounded, 4);
        return code == 'd' || rounded - rounded == 0.0f || value - value != 0.0;
    }
    long long value = PyLong_AsLongLong(now);
    Size bytes = code == 'q' || code == 'Q' ? 8 : code == 'i' || code == 'I' ? 4 : code == 'h' || code == 'H' ? 2 : 1;
    for (Size k = 0; k < bytes; ++k) to[__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? bytes - 1 - k : k] = (char)(value >> 8 * k);
    return !PyErr_Occurred();
}

/* Write what may change into a block of arguments: in sixes position, code, offset, least and greatest whole number,
   NumPy's class; or for vectors their size, 0 and who gives their bytes, which are kept instead. 0 for what Python must look at. */
static int numbers_into(char *block, PyObject *list, PyObject *flat) {
    for (Size j = 0, n = PyTuple_Size(list); j < n; j += 6) {
        Size k = number(list, j);
        int code = (int)number(list, j + 1);
        char *to = block + number(list, j + 2);
        PyObject *now = item(flat, k);
        if (code == 'v') {
            PyObject *bytes = PyObject_CallFunctionObjArgs(item(list, j + 5), now, (PyObject *)0);
            int good = bytes && type_is(bytes, &PyBytes_Type) && PyBytes_Size(bytes) == number(list, j + 3);
            if (good) memcpy(to, PyBytes_AsString(bytes), number(list, j + 3));
            if (bytes && !good) Py_DecRef(bytes);
            if (!good || PyTuple_SetItem(flat, k, bytes)) return 0; /* it takes the bytes, also where it fails */
            continue;
        }
        if (type_is(now, &PyLong_Type)) {
            long long value = PyLong_AsLongLong(now);
            if (PyErr_Occurred() || value < number(list, j + 3) || value > number(list, j + 4)) return 0;
        } else if (!type_is(now, (char *)item(list, j + 5)) && (!type_is(now, &PyFloat_Type) || (code != 'f' && code != 'd')))
            return 0;
        if (!put(to, code, now)) return 0;
    }
    return 1;
}

/* The arguments with the fields of structs in their place: a new tuple. `paths`: see `steps.described`. */
static PyObject *flattened(PyObject *args, PyObject *paths) {
    if (paths == NONE) return Py_IncRef(args), args;
    Size count = PyTuple_Size(paths);
    PyObject *flat = PyTuple_New(count);
    for (Size k = 0; flat && k < count; ++k) {
        PyObject *path = item(paths, k), *now = number(path, 0) < PyTuple_Size(args) ? item(args, number(path, 0)) : 0;
        if (now) Py_IncRef(now);
        for (Size j = 1, n = PyTuple_Size(path); now && j < n; ++j) {
            PyObject *field = PyObject_GetAttr(now, item(path, j));
            Py_DecRef(now);
            now = field;
        }
        if (!now) return Py_DecRef(flat), (PyObject *)0;
        PyTuple_SetItem(flat, k, now);
    }
    return flat;
}

/* Is a launch this step: (kernel, program, reading, switches, grid, device, count, code, instruction, serials, numbers,
   writes, watched, starts, reads, address, block, begin, end, paths, free, size of the block, team, address of the pool's
   function, address of its flag, what raises then). Pairs lie flat. */
static int fits(PyObject *step, PyObject *kernel, PyObject *dim, PyObject *args, PyObject *device, PyObject *choices) {
    if (kernel != item(step, 0) || device != item(step, 5)) return 0;
    if (!equal(PyDict_GetItem(choices, switches), item(step, 3))) return 0;
    if (lent(kernel, _program) != item(step, 1) || lent(kernel, _reading) != item(step, 2) || !current(item(step, 2))) return 0;
    PyObject *grid = item(step, 4), *list = item(step, 9);
    if (dim != grid) {
        int whole = type_is(dim, &PyLong_Type) && type_is(grid, &PyLong_Type);
        if (type_is(dim, &PyTuple_Type) && type_is(grid, &PyTuple_Type) && PyTuple_Size(dim) == PyTuple_Size(grid)) {
            whole = 1;
            for (Size k = 0, n = PyTuple_Size(dim); k < n; ++k) whole = whole && type_is(item(dim, k), &PyLong_Type);
        }
        if (!whole || !equal(dim, grid)) return 0;
    }
    for (Size k = 0, n = PyTuple_Size(list); k < n; k += 2) {
        PyObject *its = lent(item(args, number(list, k)), serial);
        if (!its || !equal(its, item(list, k + 1))) return 0;
    }
    list = item(step, 10);
    for (Size k = 0, n = PyTuple_Size(list); k < n; k += 2)
        if (!same(item(args, number(list, k)), item(list, k + 1))) return 0;
    return 1;
}

/* Has no other tape to do with the memory, and need nothing be copied. `last`: the run that wrote it last, if that is
   known; `writes` are pairs of a position and of whether the track writes this memory in one way only. */
static int free_of_others(PyObject *step, PyObject *args, PyObject *own, PyObject *last) {
    PyObject *list = item(step, 14);
    for (Size k = 0, n = PyTuple_Size(list); k < n; ++k) {
        PyObject *a = lent(item(args, number(list, k)), allocation), *found = lent(a, origins);
        if (!found || PyObject_IsTrue(found)) return 0;
    }
    list = item(step, 11);
    for (Size k = 0, n = PyTuple_Size(list); k < n; k += 2) {
        PyObject *a = lent(item(args, number(list, k)), allocation), *found = lent(a, origins);
        if (!found || !only(lent(a, watchers), own)) return 0;
        if (!PyObject_IsTrue(found)) continue;
        PyObject *parts = number(list, k + 1) ? lent(found, spans) : 0, *key = 0, *value = 0;
        Size place = 0;
        if (!parts || PyDict_Size(parts) != 1 || !PyDict_Next(parts, &place, &key, &value)) return 0;
        if (item(key, 1) != last) return 0;
    }
    list = item(step, 12);
    for (Size k = 0, n = PyTuple_Size(list); k < n; ++k)
        if (!only(lent(lent(item(args, number(list, k)), allocation), watchers), own)) return 0;
    list = item(step, 13);
    for (Size k = 0, n = PyTuple_Size(list); k < n; ++k) {
        PyObject *a = lent(item(args, number(list, k)), allocation);
        if (!equal(lent(a, blank), lent(a, version))) return 0;
    }
    return 1;
}

/* Note that the memory changes, and that the tape watches it. 0 if there is no memory left. */
static int enter(PyObject *step, PyObject *args, PyObject *own) {
    PyObject *list = item(step, 12);
    for (Size k = 0, n = PyTuple_Size(list); k < n; ++k) {
        PyObject *a = lent(item(args, number(list, k)), allocation), *found = lent(a, watchers);
        if (PyList_Size(found) == 1 && PyList_GetItem(found, 0) == own) continue;
        PyObject *made = PyList_New(1);
        if (!made) return 0;
        Py_IncRef(own);
        PyList_SetItem(made, 0, own);
        int failed = PyObject_SetAttr(a, watchers, made);
        Py_DecRef(made);
        if (failed) return 0;
    }
    list = item(step, 11);
    for (Size k = 0, n = PyTuple_Size(list); k < n; k += 2) {
        PyObject *a = lent(item(args, number(list, k)), allocation);
        if (PyObject_IsTrue(lent(a, origins)) && PyObject_SetAttr(a, origins, NONE)) return 0;
        PyObject *next = PyNumber_Add(lent(a, version), one);
        if (!next) return 0;
        int failed = PyObject_SetAttr(a, version, next);
        Py_DecRef(next);
        if (failed) return 0;
    }
    return 1;
}

static PyObject *answer(int done) {
    if (!done) PyErr_Clear();
    return PyBool_FromLong(done);
}

/* The lock of all memory, if nobody has it. */
static int locked(PyObject *acquire, PyObject *waiting) {
    PyObject *held = PyObject_CallFunctionObjArgs(acquire, waiting, (PyObject *)0);
    int has = held && PyObject_IsTrue(held);
    if (held) Py_DecRef(held);
    return has;
}

/* The answer, when the lock has been given back. */
static PyObject *released(PyObject *release, int done, int failed) {
    PyErr_Clear();
    PyObject *let = PyObject_CallNoArgs(release);
    if (let) Py_DecRef(let);
    return failed || !let ? PyErr_NoMemory() : PyBool_FromLong(done);
}

/* The block of arguments of this launch. 0 for numbers that Python must look at. */
static int filled(char *block, PyObject *step, PyObject *flat) {
    memcpy(block, PyBytes_AsString(item(step, 16)), number(step, 21));
    return numbers_into(block, item(step, 20), flat);
}

/* Call the kernel of a step with this block of arguments, in the pool where several share it; other threads of Python
   run meanwhile. 0 where a handler of a signal has raised something: the launch is over all the same. */
static int run(PyObject *step, const char *block) {
    wb_kernel kernel = (wb_kernel)number(step, 15);
    int64_t begin = number(step, 17), end = number(step, 18), team = number(step, 22);
    wb_parallel parallel = (wb_parallel)number(step, 23);
    volatile int *stop = (volatile int *)number(step, 24);
    void *state = PyEval_SaveThread();
    if (team == 1) kernel(block, begin, end);
    else parallel(kernel, block, begin, end, team);
    PyEval_RestoreThread(state);
    return team == 1 || !*stop;
}

/* The answer, or what a handler of a signal has raised. */
static PyObject *unless_stopped(PyObject *step, PyObject *answered, int whole) {
    if (whole || !answered) return answered;
    PyObject *none = PyObject_CallNoArgs(item(step, 25));
    if (none) return Py_DecRef(none), answered;
    Py_DecRef(answered);
    return 0;
}

/* (following, kernel, dim, args, device) -> bool. following: (steps, args, ids, own, last run, clock, acquire, release,
   what `undisturbed` takes, False). */
static PyObject *step_of(PyObject *self, PyObject *const *given, Size n) {
    (void)self;
    if (n != 5) return answer(0);
    PyObject *following = given[0], *kernel = given[1], *dim = given[2], *args = given[3], *device = given[4];
    PyObject *steps = item(following, 0), *kept = item(following, 1), *ids = item(following, 2), *own = item(following, 3);
    PyObject *all = item(following, 8);
    if (!locked(item(following, 6), item(following, 9))) return answer(0);
    Size at = PyList_Size(kept);
    PyObject *step = at < PyTuple_Size(steps) ? item(steps, at) : NONE;
    PyObject *flat = 0;
    _Alignas(8) char block[BLOCK];
    int done = step != NONE && PyTuple_Size(args) == number(step, 6) && undisturbed(all) &&
               (flat = flattened(args, item(step, 19))) && fits(step, kernel, dim, flat, device, item(all, 5)) &&
               called_from(item(step, 7), item(step, 8)) && free_of_others(step, flat, own, item(following, 4)) &&
               filled(block, step, flat);
    int failed = done && !enter(step, flat, own), whole = 1;
    if (done && !failed) {
        PyObject *id = PyIter_Next(item(following, 5));
        whole = run(step, block);
        failed = !id || PyList_Append(ids, id) || PyList_Append(kept, flat);
        if (id) Py_DecRef(id);
    }
    if (flat) Py_DecRef(flat);
    return unless_stopped(step, released(item(following, 7), done, failed), whole);
}

/* What a launch is remembered by: the grid, serial numbers of the arrays, numbers. 0 for arguments of other kinds. */
static PyObject *key_of(PyObject *dim, PyObject *flat, PyObject *places, PyObject *fixed) {
    Size count = PyTuple_Size(places), others = PyTuple_Size(fixed);
    PyObject *key = PyTuple_New(1 + count + others);
    if (!key) return 0;
    Py_IncRef(dim);
    PyTuple_SetItem(key, 0, dim);
    for (Size k = 0; k < count + others; ++k) {
        PyObject *its = k < count ? PyObject_GetAttr(item(flat, number(places, k)), serial) : item(flat, number(fixed, k - count));
        if (!its) return Py_DecRef(key), (PyObject *)0;
        if (k >= count) Py_IncRef(its);
        PyTuple_SetItem(key, k + 1, its);
    }
    return key;
}

/* A launch outside of tapes that was made before: (others, kernel, dim, args, device) -> bool. others: (tapes of the
   threads, lent, capture_log, config, acquire, release, False); what the kernel remembers has the steps by their keys. */
static PyObject *launch_of(PyObject *self, PyObject *const *given, Size n) {
    (void)self;
    if (n != 5) return answer(0);
    PyObject *others = given[0], *kernel = given[1], *dim = given[2], *args = given[3], *device = given[4];
    PyObject *choices = item(others, 3), *known = lent(kernel, launches), *quick, *places, *stack, *fixed, *paths;
    if (!known || !PyObject_IsTrue(known) || !(quick = lent(known, quick_name)) || !PyDict_Size(quick)) return answer(0);
    if (!(places = lent(known, arrays)) || !(type_is(dim, &PyLong_Type) || type_is(dim, &PyTuple_Type))) return answer(0);
    if (!(fixed = lent(known, fixed_name)) || !(paths = lent(known, paths_name))) return answer(0);
    if (PyTuple_Size(args) != (Size)PyLong_AsLongLong(lent(known, count_name))) return answer(0);
    PyObject *flat = flattened(args, paths), *key = flat ? key_of(dim, flat, places, fixed) : 0;
    PyObject *step = key ? PyDict_GetItem(quick, key) : 0;
    if (key) Py_DecRef(key);
    if (!step || step == NONE || !locked(item(others, 4), item(others, 6))) {
        if (flat) Py_DecRef(flat);
        return answer(0);
    }
    Py_IncRef(step);
    _Alignas(8) char block[BLOCK];
    PyObject *races = PyDict_GetItem(choices, check_races), *remember = PyDict_GetItem(choices, remember_launches);
    int done = !PyDict_Size(item(others, 1)) && PyDict_GetItem(item(others, 2), opened) == NONE && races &&
               !PyObject_IsTrue(races) && remember && PyObject_IsTrue(remember) &&
               (stack = lent(item(others, 0), stack_name)) && PyList_Size(stack) == 0 &&
               fits(step, kernel, dim, flat, device, choices) && free_of_others(step, flat, 0, 0) &&
               filled(block, step, flat);
    int failed = done && !enter(step, flat, 0), whole = 1;
    if (done && !failed) whole = run(step, block);
    Py_DecRef(flat);
    PyObject *answered = unless_stopped(step, released(item(others, 5), done, failed), whole);
    Py_DecRef(step);
    return answered;
}

/* (numbers, flat arguments of all events): write numbers into blocks. In fours: event, position, code, address. */
static PyObject *fill_of(PyObject *self, PyObject *const *given, Size n) {
    (void)self;
    if (n != 2) return answer(0);
    int done = 1;
    for (Size j = 0, size = PyTuple_Size(given[0]); done && j < size; j += 4) {
        PyObject *flat = PyList_GetItem(given[1], number(given[0], j)), *now;
        if (!flat) return answer(0);
        now = type_is(flat, &PyTuple_Type) ? item(flat, number(given[0], j + 1)) : PyList_GetItem(flat, number(given[0], j + 1));
        done = now && put((char *)number(given[0], j + 3), (int)number(given[0], j + 2), now);
    }
    return answer(done);
}

/* May the bytes of a gradient change without a word: nobody watches it, and no other library or array of NumPy has it. */
static int unseen_by_others(PyObject *grad) {
    PyObject *shown_to = lent(grad, exposed), *told = lent(grad, watchers);
    return shown_to && !PyObject_IsTrue(shown_to) && told && PyList_Size(told) == 0 && lent(grad, loan) == NONE;
}

static int none_of(PyObject *dict) { return dict && PyDict_Size(dict) == 0; }

/* One version more, and nothing written by the user since. 0 if there is no memory left. */
static int marked(PyObject *grad, PyObject *by, int is_blank) {
    PyObject *next = PyNumber_Add(lent(grad, version), one);
    int good = next && !PyObject_SetAttr(grad, version, next) && (!is_blank || !PyObject_SetAttr(grad, blank, next));
    if (next) Py_DecRef(next);
    if (good && !none_of(lent(grad, written))) {
        PyObject *empty = PyDict_New();
        good = empty && !PyObject_SetAttr(grad, written, empty);
        if (empty) Py_DecRef(empty);
    }
    return good && !PyObject_SetAttr(grad, by_hand, NONE) && !PyObject_SetAttr(grad, publisher, by);
}

static int publish_one(PyObject *row, PyObject *tape, PyObject *clock, PyObject *token) {
    PyObject *a = PyObject_CallNoArgs(item(row, 0)), *memory = a && a != NONE ? lent(a, gradient) : 0;
    PyObject *notes = memory && memory != NONE ? lent(a, grad_notes) : 0;
    int good = notes && PyDict_Size(notes) == number(row, 3) && lent(a, noted_by) == token &&
               lent(memory, former) == NONE && unseen_by_others(memory);
    PyObject *when = good ? PyIter_Next(clock) : 0, *by = when ? PyTuple_New(2) : 0;
    if (by) {
        Py_IncRef(when), Py_IncRef(tape);
        PyTuple_SetItem(by, 0, when), PyTuple_SetItem(by, 1, tape);
        memcpy((char *)(Size)PyLong_AsLongLong(lent(memory, address)), (char *)number(row, 1), number(row, 2));
        good = marked(memory, by, 0);
        Py_DecRef(by);
    } else good = 0;
    if (when) Py_DecRef(when);
    if (a) Py_DecRef(a);
    return good;
}

/* (rows, tape, clock, token) -> list of the rows that Python must publish. A row: memory, address of its adjoint, how
   many bytes, how many notes about its gradient, which are those that `token` stands for. */
static PyObject *publish_of(PyObject *self, PyObject *const *given, Size n) {
    (void)self;
    PyObject *left = n == 4 ? PyList_New(0) : 0;
    for (Size k = 0, size = left ? PyTuple_Size(given[0]) : 0; k < size; ++k) {
        PyObject *row = item(given[0], k);
        if (!publish_one(row, given[1], given[2], given[3])) {
            PyErr_Clear();
            PyList_Append(left, row);
        }
    }
    return left ? left : PyErr_NoMemory();
}

/* (gradients, device, (0, None), 0) -> list of those that Python must clear; the others on this device are all zeros. */
static PyObject *clear_of(PyObject *self, PyObject *const *given, Size n) {
    (void)self;
    PyObject *left = n == 4 ? PyList_New(0) : 0;
    for (Size k = 0, size = left ? PyList_Size(given[0]) : 0; k < size; ++k) {
        PyObject *memory = PyList_GetItem(given[0], k);
        Size bytes = (Size)PyLong_AsLongLong(lent(memory, nbytes));
        int good = lent(memory, device_name) == given[1] && bytes < LARGE && unseen_by_others(memory);
        if (good && !equal(lent(memory, blank), lent(memory, version))) {
            memset((char *)(Size)PyLong_AsLongLong(lent(memory, address)), 0, bytes);
            good = marked(memory, given[2], 1);
        }
        if (!good || PyObject_SetAttr(memory, read_at, given[3])) {
            PyErr_Clear();
            PyList_Append(left, memory);
        }
    }
    return left ? left : PyErr_NoMemory();
}

static PyMethodDef definitions[] = {
    {"step", step_of, 0x80, 0}, {"launch", launch_of, 0x80, 0}, {"fill", fill_of, 0x80, 0},
    {"publish", publish_of, 0x80, 0}, {"clear", clear_of, 0x80, 0}};

PyObject *wb_steps(void) {
    struct { PyObject **at; const char *text; } names[] = {
        {&serial, "serial"}, {&allocation, "allocation"}, {&watchers, "watchers"}, {&origins, "origins"},
        {&version, "version"}, {&blank, "blank"}, {&any, "any"}, {&f_lasti, "f_lasti"}, {&_program, "_program"},
        {&_reading, "_reading"}, {&attributes, "attributes"}, {&constants, "constants"}, {&statics, "statics"},
        {&seen, "seen"}, {&cells, "cells"}, {&cell_contents, "cell_contents"}, {&opened, "opened"},
        {&check_races, "check_races"}, {&remember_launches, "remember_launches"}, {&switches, "switches"},
        {&asks, "asks"}, {&shown, "shown"}, {&launches, "launches"}, {&quick_name, "quick"}, {&arrays, "arrays"},
        {&stack_name, "stack"}, {&spans, "spans"}, {&fixed_name, "fixed"}, {&paths_name, "paths"},
        {&count_name, "count"}, {&exposed, "exposed"}, {&loan, "loan"}, {&former, "former"}, {&written, "written"},
        {&by_hand, "_by_hand"}, {&publisher, "publisher"}, {&gradient, "grad"}, {&grad_notes, "grad_notes"},
        {&noted_by, "noted_by"}, {&address, "address"}, {&nbytes, "nbytes"}, {&device_name, "device"},
        {&read_at, "read_at"}};
    for (unsigned k = 0; k < sizeof names / sizeof *names; ++k) *names[k].at = PyUnicode_InternFromString(names[k].text);
    one = PyLong_FromLong(1);
    Size count = sizeof definitions / sizeof *definitions;
    PyObject *all = PyTuple_New(count);
    for (Size k = 0; all && k < count; ++k) PyTuple_SetItem(all, k, PyCFunction_NewEx(&definitions[k], 0, 0));
    return all;
}
