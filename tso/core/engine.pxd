# C types for tso/core/engine.py, which stays plain Python: see its docstring.
cimport cython

cdef unsigned long long _MASK
cdef unsigned long long _MULTIPLIER
cdef unsigned long long _MAX_SIGNED
cdef unsigned long long _MAX_KEY
cdef unsigned long long _TIMESTAMP
cdef unsigned long long _COMMIT
cdef unsigned long long _HANDSHAKE
cdef unsigned long long _FENCE
cdef unsigned long long _INVALIDATE
cdef unsigned long long _START
cdef unsigned long long _IS_RETRY
cdef unsigned long long _CELL
cdef unsigned long long _CELLS
cdef unsigned long long _TABLE
cdef unsigned long long _TABLES


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
    cdef OldestFirstMap _owners
    cdef long long _forgotten_start
    cdef long long _max_fence_count
    cdef dict _fences

    cpdef long long issue(self)

    cpdef long long begin(self, long long client)

    cpdef give(self, long long start_ts, long long client)

    @cython.locals(owner=cython.longlong)
    cpdef long long owner(self, long long start_ts)

    @cython.locals(cell=cython.longlong, commit_ts=cython.longlong)
    cpdef long long commit(self, long long start_ts, cell_ids, table_ids)

    @cython.locals(cell=cython.longlong)
    cpdef list conflicts(self, long long start_ts, cell_ids)


cdef class _Fields:
    cdef unsigned long long number
    cdef Py_ssize_t first
    cdef Py_ssize_t last
    cdef const unsigned char[::1] _data
    cdef Py_ssize_t _end
    cdef Py_ssize_t _position

    @cython.locals(key=cython.ulonglong, length=cython.ulonglong, left=cython.ulonglong, wire_type=int)
    cdef unsigned long long next(self) except? 0

    cdef void unpack(self, list into) except *

    @cython.locals(value=cython.ulonglong, bits=cython.ulonglong, byte=cython.uchar, shift=int)
    cdef unsigned long long _varint(self, Py_ssize_t end) except? 0


@cython.locals(
    envelope=_Fields, body=_Fields, parts=list, cell_ids=list, table_ids=list,
    field=cython.ulonglong, start_ts=cython.longlong, has_others=bint, has_start=bint, is_retry=bint,
)
cpdef tuple read_commit(bytes payload)

@cython.locals(body=bytearray)
cpdef bytes timestamp_frame(long long start_ts, low_watermark)

@cython.locals(body=bytearray)
cpdef bytes commit_frame(long long start_ts, long long commit_ts)

cdef long long _signed(unsigned long long value)

@cython.locals(rest=cython.ulonglong)
cdef void _put(bytearray out, long long value) except *

@cython.locals(size=Py_ssize_t)
cdef bytes _framed(unsigned long long kind, bytearray body)
