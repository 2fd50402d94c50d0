# C types for answers.py, which stays plain Python: see its docstring.
cimport cython

ctypedef const unsigned char *Octets

cdef bint _IS_COMPILED
cdef int _VARINT
cdef int _FIXED64
cdef int _BYTES
cdef int _FIXED32
cdef unsigned long long _LEAST_KEY
cdef unsigned long long _MAX_KEY
cdef unsigned long long _V1
cdef unsigned long long _V2
cdef unsigned long long _V3
cdef unsigned long long _V4
cdef unsigned long long _V5
cdef unsigned long long _B1
cdef unsigned long long _B2
cdef unsigned long long _B3
cdef unsigned long long _B6
cdef object _new
cdef object _Cell

@cython.final
cdef class Fields:
    cdef bytes _data
    cdef Octets _octets
    cdef long long _position
    cdef long long _end
    cdef readonly unsigned long long number
    cdef readonly long long start
    cdef readonly long long stop

    @cython.locals(key=cython.ulonglong, kind=cython.int, width=cython.longlong)
    cpdef unsigned long long next(self) except? 18446744073709551615

    @cython.locals(length=cython.ulonglong, left=cython.ulonglong)
    cpdef Py_ssize_t skip_delimited(self) except -1

    cpdef bytes own(self)

    cpdef Fields message(self)

    @cython.locals(
        octets=Octets, value=cython.ulonglong, shift=cython.int, byte=cython.ulonglong,
    )
    cdef unsigned long long _varint(self) except? 18446744073709551615

@cython.locals(
    whole=Fields, header=Fields, position=cython.longlong, key=cython.ulonglong,
    cells_length=cython.ulonglong,
)
cpdef answer(bytes frame)

@cython.locals(key=cython.ulonglong)
cdef _fault(Fields fields)

@cython.locals(key=cython.ulonglong)
cdef unsigned long long _first_number(Fields fields) except? 18446744073709551615

@cython.locals(key=cython.ulonglong, inline=list, count=cython.ulonglong)
cdef _result(Fields fields)

@cython.locals(
    key=cython.ulonglong, row=bytes, family=bytes, qualifier=bytes, value=bytes,
    version=cython.ulonglong,
)
cdef _cell(Fields fields)

@cython.locals(fields=Fields, key=cython.ulonglong)
cpdef read_get(answer)

@cython.locals(
    fields=Fields, key=cython.ulonglong, parts=list, owners=list, fault_count=cython.longlong,
)
cpdef read_multi(answer, long long part_count, long long action_count)

@cython.locals(
    one=Fields, key=cython.ulonglong, one_key=cython.ulonglong, index=cython.ulonglong,
    results=dict, count=cython.longlong,
)
cdef _part(Fields fields, list owners, long long most)

@cython.locals(key=cython.ulonglong)
cdef _named_fault(Fields fields)

@cython.locals(fields=Fields, key=cython.ulonglong)
cpdef read_mutate(answer)
