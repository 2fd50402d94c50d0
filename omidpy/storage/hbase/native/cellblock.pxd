# C types for cellblock.py, which stays plain Python: see its docstring.
cimport cython

from cpython.object cimport PyTypeObject

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(object)
    object PyType_GenericAlloc(PyTypeObject *, Py_ssize_t)
    void Py_INCREF(object)
    void PyTuple_SET_ITEM(object, Py_ssize_t, object)

# From Python 3.14 on a tuple remembers its hash, and memory that is all zeros says that it is 0.
cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030E0000
    #define omidpy_is_unhashed(made) (((PyTupleObject *) (made))->ob_hash = -1)
    #else
    #define omidpy_is_unhashed(made) ((void) (made))
    #endif
    """
    void omidpy_is_unhashed(object)

ctypedef const unsigned char *Octets
ctypedef unsigned char *Places

cdef bint _IS_COMPILED
cdef long long _LEAST
cdef long long _STAMP_BYTES
cdef long long _MOST_SEARCHED
cdef int _COLON
cdef object _new
cdef object _Cell
cdef object _Change
cdef unsigned long long _STEP
cdef object _WRITTEN
cdef object _DELETED

# A named tuple, made without a plain one first.  The collector of cycles need not look at it: there
# is nothing but bytes and a number in it.
cdef inline object new_cell(
    object kind, bytes row, bytes family, bytes qualifier, object version, bytes value
):
    cdef object cell = PyType_GenericAlloc(<PyTypeObject *> kind, 5)
    PyObject_GC_UnTrack(cell)
    omidpy_is_unhashed(cell)
    Py_INCREF(row)
    PyTuple_SET_ITEM(cell, 0, row)
    Py_INCREF(family)
    PyTuple_SET_ITEM(cell, 1, family)
    Py_INCREF(qualifier)
    PyTuple_SET_ITEM(cell, 2, qualifier)
    Py_INCREF(version)
    PyTuple_SET_ITEM(cell, 3, version)
    Py_INCREF(value)
    PyTuple_SET_ITEM(cell, 4, value)
    return cell

# The same for a change, of whose old value nothing is said.
cdef inline object new_change(
    object kind, bytes row, bytes column, value, object what, object start_ts, object commit_ts
):
    cdef object change = PyType_GenericAlloc(<PyTypeObject *> kind, 7)
    PyObject_GC_UnTrack(change)
    omidpy_is_unhashed(change)
    Py_INCREF(row)
    PyTuple_SET_ITEM(change, 0, row)
    Py_INCREF(column)
    PyTuple_SET_ITEM(change, 1, column)
    Py_INCREF(value)
    PyTuple_SET_ITEM(change, 2, value)
    Py_INCREF(what)
    PyTuple_SET_ITEM(change, 3, what)
    Py_INCREF(start_ts)
    PyTuple_SET_ITEM(change, 4, start_ts)
    Py_INCREF(commit_ts)
    PyTuple_SET_ITEM(change, 5, commit_ts)
    Py_INCREF(None)
    PyTuple_SET_ITEM(change, 6, None)
    return change

@cython.locals(
    sizes=list, cells_size=cython.longlong, fixed=cython.longlong, row=bytes, length=cython.longlong,
    count=cython.longlong, family=bytes, qualifier=bytes, value=bytes, size=cython.longlong,
    index=cython.longlong, body=cython.longlong, out=Out, version=cython.ulonglong,
)
cpdef tuple encode_puts(changes, long long durability)

@cython.final
cdef class Out:
    cdef bytearray _actions
    cdef bytearray _cells
    cdef long long _size
    cdef long long _cells_size
    cdef long long _at
    cdef long long _cells_at

    cdef tuple done(self)

    @cython.locals(
        out=Places, length=cython.longlong, body=cython.longlong, at=cython.longlong,
    )
    cdef int action(
        self, long long index, long long size, bytes row, long long count, long long durability
    ) except -1

    @cython.locals(
        out=Places, at=cython.longlong, row_length=cython.longlong, family_length=cython.longlong,
        qualifier_length=cython.longlong, value_length=cython.longlong, key_length=cython.longlong,
    )
    cdef int cell(
        self, bytes row, bytes family, bytes qualifier, unsigned long long version, bytes value
    ) except -1

@cython.locals(size=cython.longlong)
cdef long long varint_size(unsigned long long value) noexcept

cdef long long put_varint(Places out, long long at, unsigned long long value) noexcept

cdef void put_number(Places out, long long at, unsigned long long value) noexcept

@cython.locals(index=cython.longlong)
cdef void copy(Places out, long long at, Octets data, long long length) noexcept

@cython.final
cdef class Block:
    cdef bytes _data
    cdef Octets _octets
    cdef long long _end
    cdef long long _position
    cdef bytes _row
    cdef bytes _family
    cdef long long _qualifier_at
    cdef long long _stamp_at
    cdef long long _value_at
    cdef long long _run_at
    cdef long long _run_end
    cdef long long _run_length
    cdef long long _said_at

    @cython.locals(results=list, cells=list)
    cpdef list cells(self, counts)

    @cython.locals(octets=Octets, cells=list, _=cython.longlong, qualifier=bytes, value=bytes)
    cdef list _row_of_cells(self, claimed)

    cpdef list pairs(self, counts, bytes prefix, bytes suffix)

    @cython.locals(
        octets=Octets, data=bytes, before=cython.longlong, behind=cython.longlong,
        first_start=cython.longlong, first_end=cython.longlong, first_value_at=cython.longlong,
        first_value_end=cython.longlong, first_version=cython.ulonglong, first_family=bytes,
        pairs=list, names=list, values=list, known=dict, taken=cython.longlong,
        count=cython.longlong, index=cython.longlong, start=cython.longlong, end=cython.longlong,
        version=cython.ulonglong, length=cython.longlong, said_of=bytes, name=tuple,
        filed=cython.longlong, value=bytes, pair=tuple,
    )
    cdef list _row_of_pairs(self, claimed, bytes prefix, bytes suffix)

    @cython.locals(
        results=list, names=list, start=cython.longlong, found=dict, pairs=list,
    )
    cpdef list values(self, counts, bytes prefix, bytes suffix, bytes before, bytes erased)

    @cython.locals(
        octets=Octets, ahead=cython.longlong, behind=cython.longlong, values=dict, gone=list,
        place=cython.longlong, is_run=bint, _=cython.longlong, cell_at=cython.longlong,
        start=cython.longlong, length=cython.longlong, name=bytes, value=bytes,
    )
    cdef dict _plain_values(
        self, claimed, bytes prefix, bytes suffix, bytes before, bytes erased, list names
    )

    @cython.locals(
        results=list, names=list, start=cython.longlong, found=list, cells=list, bounds=tuple,
    )
    cpdef list changes(
        self, counts, bytes prefix, bytes suffix, bytes first, bytes before, bytes erased
    )

    @cython.locals(
        octets=Octets, ahead=cython.longlong, behind=cython.longlong, first=bytes, before=bytes,
        found=list, place=cython.longlong, is_run=bint, _=cython.longlong, cell_at=cython.longlong,
        start=cython.longlong, length=cython.longlong, version=cython.ulonglong,
        stamp_at=cython.longlong, name=bytes, value=bytes, commit_ts=cython.ulonglong,
        start_ts=cython.ulonglong, last_start_ts=cython.ulonglong, last_name=bytes,
    )
    cdef list _plain_changes(
        self, claimed, bytes prefix, bytes suffix, tuple bounds, bytes erased, list names
    )

    cdef void _lengthen_run(self, long long cell_at, bint is_run) noexcept

    @cython.locals(said_at=cython.longlong, run_end=cython.longlong)
    cdef bint _finds_said(self, long long ahead, long long behind) noexcept

    @cython.locals(
        octets=Octets, family_length=cython.longlong, family_at=cython.longlong,
        start=cython.longlong, stamp_at=cython.longlong, length=cython.longlong,
        size=cython.longlong,
    )
    cdef bint _is_said(self, long long at, long long ahead, long long behind) noexcept

    cdef long long _end_of(self, long long at) noexcept

    @cython.locals(
        octets=Octets, family=bytes, start=cython.longlong, family_length=cython.longlong,
        name=bytes,
    )
    cdef bytes _name(self, list names, long long place, long long length)

    cdef Py_ssize_t _begin(self, claimed) except -1

    @cython.locals(
        octets=Octets, data=bytes, position=cython.longlong, size=cython.longlong,
        key_length=cython.longlong, value_length=cython.longlong, row_length=cython.longlong,
        row_at=cython.longlong, family_at=cython.longlong, value_at=cython.longlong,
        stamp_at=cython.longlong, qualifier_at=cython.longlong, family_length=cython.longlong,
        is_within=bint,
    )
    cdef int _next(self) except -1

    cdef unsigned long long _version(self) noexcept

    @cython.locals(high=cython.ulonglong)
    cdef unsigned long long _stamp(self, long long at) noexcept

    cdef int _finish(self) except -1

@cython.locals(value=cython.ulonglong)
cdef unsigned long long number(Octets octets, long long at) noexcept

@cython.locals(index=cython.longlong)
cdef bint is_same(
    Octets octets, long long at, Octets others, long long other_at, long long length
) noexcept

@cython.locals(index=cython.longlong)
cdef bint is_below(Octets octets, long long at, Octets bound) noexcept
