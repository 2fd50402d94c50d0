# C types for protobuf.py, which stays plain Python: see its docstring.
cimport cython

ctypedef const unsigned char *Octets

cdef bint _IS_COMPILED
cdef unsigned long long _MASK
cdef unsigned long long _LEAST_KEY
cdef unsigned long long _MAX_KEY
cdef unsigned long long _NUMBER
cdef unsigned long long _MESSAGE

cpdef put_varint(bytearray out, unsigned long long value)

cpdef put_uint64(bytearray out, unsigned long long field_key, value)

cpdef put_int64(bytearray out, unsigned long long field_key, value)

@cython.locals(number=cython.longlong)
cdef _put_each(bytearray body, unsigned long long field_key, values)

@cython.locals(length=cython.ulonglong)
cpdef put_bytes(bytearray out, unsigned long long field_key, body)

@cython.locals(
    octets=Octets, size=cython.Py_ssize_t, position=cython.Py_ssize_t, count=cython.Py_ssize_t,
    kind=cython.ulonglong, field_key=cython.ulonglong, value=cython.ulonglong,
    byte=cython.ulonglong, shift=cython.int, values=dict,
)
cpdef numbers(bytes payload)

cpdef signed64(value)

cpdef int64(values, field_key)

cpdef required(values, field_key, what)
