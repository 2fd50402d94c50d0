# C types for tso/engine.py, which stays plain Python: see its docstring.
cimport cython

cdef unsigned long long _MASK
cdef unsigned long long _MULTIPLIER


cdef class OldestFirstMap:
    cdef public long long capacity
    cdef public long long count
    cdef public long long evicted_key
    cdef public long long evicted_value
    cdef unsigned long long _multiplier
    cdef int _oldest
    cdef int _newest
    cdef long long[::1] _keys
    cdef long long[::1] _values
    cdef int[::1] _older
    cdef int[::1] _newer
    cdef int[::1] _next_in_chain
    cdef int[::1] _heads
    cdef long long _slot_count
    cdef int _shift

    @cython.locals(slot=int)
    cpdef long long get(self, long long key)

    @cython.locals(slot=int, bucket=cython.ulonglong, evicted=bint)
    cpdef bint put(self, long long key, long long value)

    @cython.locals(slot=int)
    cpdef bint replace(self, long long key, long long value)

    @cython.locals(slot=int)
    cdef int _find(self, long long key)

    cdef unsigned long long _bucket(self, long long key)

    @cython.locals(slot=int, here=int, after=int, bucket=cython.ulonglong, key=cython.longlong)
    cdef int _evict_oldest(self)

    @cython.locals(older=int, newer=int)
    cdef void _unlink(self, int slot)

    cdef void _append(self, int slot)

    @cython.locals(slot=int, bucket=cython.ulonglong)
    cdef void _rebuild_chains(self)


cdef class Engine:
    cdef public long long last_issued
    cdef public long long low_watermark
    cdef public long long clock_ts
    cdef OldestFirstMap _commits
    cdef long long _max_fence_count
    cdef dict _fences
    cdef list _fences_by_age

    cpdef long long issue(self)

    @cython.locals(cell=cython.longlong, commit_ts=cython.longlong)
    cpdef long long commit(self, long long start_ts, cell_ids, table_ids)

    @cython.locals(cell=cython.longlong)
    cpdef list conflicts(self, long long start_ts, cell_ids)
