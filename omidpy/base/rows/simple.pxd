# C types for simple.py, which stays plain Python: see its docstring.
cimport cython

cdef bint _IS_COMPILED
cdef bytes _PREFIX
cdef bytes _SUFFIX
cdef Py_ssize_t _SUFFIX_BYTES
cdef bytes _LEGACY_TOMBSTONE
cdef Py_ssize_t _LONG_BYTES
cdef bytes _COLON

@cython.locals(is_whole=cython.bint)
cpdef simple_row(list cells, before)

@cython.locals(newest=dict)
cdef _newest_values(list cells)

cpdef values_of(list row)

cpdef simple_values(list cells, before)

@cython.locals(half=cython.Py_ssize_t, place=cython.Py_ssize_t, pairs=list)
cpdef paired(cells)

@cython.locals(shadows=dict, pairs=list)
cdef _paired(cells)

@cython.locals(rows=list, row=list)
cpdef by_row(cells)
