# C types for cellblock.py, which stays plain Python: see its docstring.
cimport cython

ctypedef const unsigned char *Octets

cdef bint _IS_COMPILED
cdef long long _LEAST
cdef object _new
cdef object _Cell

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

    @cython.locals(octets=Octets, results=list, cells=list, _=cython.longlong)
    cpdef list cells(self, counts)

    @cython.locals(
        octets=Octets, data=bytes, before=cython.longlong, behind=cython.longlong,
        first_start=cython.longlong, first_end=cython.longlong, first_value_at=cython.longlong,
        first_value_end=cython.longlong, first_version=cython.ulonglong, first_family=bytes,
        results=list, pairs=list, names=list, values=list, known=dict, taken=cython.longlong,
        count=cython.longlong, index=cython.longlong, start=cython.longlong, end=cython.longlong,
        version=cython.ulonglong, length=cython.longlong, said_of=bytes, name=tuple,
        filed=cython.longlong, value=bytes,
    )
    cpdef list pairs(self, counts, bytes prefix, bytes suffix)

    cdef Py_ssize_t _begin(self, claimed) except -1

    @cython.locals(
        octets=Octets, data=bytes, position=cython.longlong, size=cython.longlong,
        key_length=cython.longlong, value_length=cython.longlong, row_length=cython.longlong,
        row_at=cython.longlong, family_at=cython.longlong, value_at=cython.longlong,
        stamp_at=cython.longlong, qualifier_at=cython.longlong, family_length=cython.longlong,
        is_within=bint,
    )
    cdef int _next(self) except -1

    @cython.locals(at=cython.longlong, high=cython.ulonglong)
    cdef unsigned long long _version(self) noexcept

    cdef int _finish(self) except -1

@cython.locals(value=cython.ulonglong)
cdef unsigned long long number(Octets octets, long long at) noexcept
