# C types for tso/core/engine.py, which stays plain Python: see its docstring.
cimport cython

cdef unsigned long long _MASK
cdef unsigned long long _MULTIPLIER
cdef unsigned long long _STEP_INVERSE
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
cdef long long _AT_HAND
cdef signed char _MARKED
cdef long long _FEW_TABLES
cdef long long _EMPTIED_FOR_ONE
cdef long long _MAX_CAPACITY
cdef int _MIN_BITS
cdef int _GROUP_BITS
cdef long long _STEP
cdef long long _EVERYBODYS
cdef long long _FORGOTTEN
cdef int _NUMBER_BITS
cdef Py_ssize_t _STAMP_BYTES
cdef Py_ssize_t _MOST_LEAVING
cdef Py_ssize_t _MAX_BYTES
cdef int _FRAME_HEAD
cdef int _SHORTEST_FRAME
cdef int _ANSWER_HEAD
cdef Py_ssize_t _ENTRY_BYTES
cdef unsigned char _IS_ABORTED
cdef unsigned char _ANSWERED_START
cdef unsigned char _ANSWERED_COMMIT
cdef unsigned char _WATERMARK_FIRST
cdef unsigned char _WATERMARK_SECOND
cdef unsigned char _NEWEST_FENCE_FIRST
cdef unsigned char _NEWEST_FENCE_SECOND


@cython.final
cdef class Numbers:
    cdef public long long total
    cdef public long long count
    cdef object __weakref__
    cdef object _memory
    cdef long long[::1] _numbers
    cdef long long _seen
    cdef long long _emptied
    cdef unsigned long long _multiplier
    cdef int _shift
    cdef unsigned long long _last_bucket
    cdef int[::1] _places

    cdef void add(self, long long number) noexcept

    @cython.locals(
        bits=int, end=cython.longlong, place=cython.longlong, number=cython.longlong,
        bucket=cython.ulonglong,
    )
    cpdef bint sort(self, long long most) except -1

    cdef object _room(self, str typecode, long long count)

    cpdef long long find(self, long long number) noexcept

    cdef long long number(self, long long place) noexcept

    @cython.locals(bucket=cython.ulonglong, place=int)
    cdef unsigned long long _bucket(self, long long number) noexcept


@cython.final
cdef class LatestMap:
    cdef public long long capacity
    cdef public long long count
    cdef public long long evicted_key
    cdef public long long evicted_value
    cdef public bint evicted_is_old
    cdef bint _holds_timestamps
    cdef unsigned long long _multiplier
    cdef unsigned long long _group_multiplier
    cdef int _newest
    cdef public long long set_count
    cdef long long _older_count
    cdef long long[::1] _keys
    cdef long long[::1] _values
    cdef int[::1] _before
    cdef signed char[::1] _is_old
    cdef int[::1] _heads
    cdef long long _slot_count
    cdef int _shift
    cdef public long long unfilled
    cdef long long _gap_first
    cdef long long _gap_count
    cdef long long _gap_filled
    cdef long long _gap_value
    cdef Numbers _gap_keys

    @cython.locals(slot=int)
    cpdef long long get(self, long long key)

    cpdef bint put(self, long long key, long long value)

    @cython.locals(slot=int, bucket=cython.ulonglong, evicted=bint)
    cdef bint put_over(self, long long key, long long value, int before)

    @cython.locals(slot=int)
    cpdef bint replace(self, long long key, long long value)

    @cython.locals(known=cython.longlong, reach=cython.longlong, most=cython.longlong, middle=cython.longlong)
    cpdef long long recent(self, long long since) noexcept

    cdef bint _begins_at(self, long long latest, long long since) noexcept

    @cython.locals(slot=int)
    cdef long long _value_at(self, long long age) noexcept

    @cython.locals(
        count=cython.longlong, evicted_count=cython.longlong, forgotten=cython.longlong,
        place=cython.longlong, slot=int,
    )
    cdef Py_ssize_t reserve(self, Numbers keys, long long value) except -1

    @cython.locals(
        keys=Numbers, end=cython.longlong, place=cython.longlong, slot=int, key=cython.longlong,
        bucket=cython.ulonglong, newer=int, first=int,
    )
    cdef bint fill(self, long long most) except -1

    @cython.locals(own_age=cython.longlong, newer=int, age=cython.longlong, age_here=cython.longlong)
    cdef int _newer_than(self, int slot, int first) noexcept

    @cython.locals(
        keys=Numbers, newest=cython.longlong, slot=int, age=cython.longlong,
        age_here=cython.longlong, place=cython.longlong, found=int,
    )
    cdef int find_beside(self, long long key, long long latest) noexcept

    @cython.locals(slot=int)
    cdef long long get_beside(self, long long key) noexcept

    cdef int marked_beside(self, int before) noexcept

    @cython.locals(room=cython.longlong)
    cdef long long room_beside(self) noexcept

    cdef long long key_at(self, long long age) noexcept

    @cython.locals(slot=int)
    cdef void mark(self, long long key, long long latest) noexcept

    @cython.locals(slot=cython.longlong)
    cdef int _gap_slot(self, long long place) noexcept

    @cython.locals(place=cython.longlong)
    cdef bint _is_unfilled(self, long long slot) noexcept

    @cython.locals(slot=int, age=cython.longlong, age_here=cython.longlong)
    cpdef int find(self, long long key, long long latest) noexcept

    @cython.locals(age=cython.longlong)
    cdef long long age(self, long long slot) noexcept

    @cython.locals(slot=cython.longlong)
    cdef int _slot(self, long long age) noexcept

    @cython.locals(spread=cython.ulonglong)
    cdef unsigned long long _bucket(self, long long key) noexcept

    @cython.locals(slot=int, bucket=cython.ulonglong)
    cdef void _rebuild_chains(self)


@cython.final
cdef class Engine:
    cdef public long long last_issued
    cdef public long long low_watermark
    cdef public long long clock_ts
    cdef public long long newest_fence
    cdef LatestMap _commits
    cdef LatestMap _owners
    cdef long long _forgotten_start
    cdef long long _forgotten_owned
    cdef object _keep
    cdef bytearray _leaving_bytes
    cdef long long[::1] _leaving
    cdef public Py_ssize_t leaving_count
    cdef long long _leaving_owner
    cdef long long[::1] _run_owners
    cdef long long[::1] _run_firsts
    cdef Py_ssize_t _run_count
    cdef unsigned long long _seed
    cdef public object memory
    cdef long long _max_fence_count
    cdef dict _fences

    cpdef long long issue(self)

    cpdef long long begin(self, long long client)

    cpdef void give(self, long long start_ts, long long client) except *

    cdef void _let_go(self, long long start_ts, long long owner) except *

    @cython.locals(
        begun=dict, run=Py_ssize_t, first=Py_ssize_t, end=Py_ssize_t, stamps=bytearray, owner=object,
    )
    cpdef settle(self)

    @cython.locals(owner=cython.longlong)
    cpdef long long owner(self, long long start_ts)

    cpdef long long commit(self, long long start_ts, cell_ids, table_ids)

    @cython.locals(
        commits=LatestMap, is_filling=bint, at_hand=cython.longlong,
        place=Py_ssize_t, commit_ts=cython.longlong, forgotten_ts=cython.longlong,
        cell=cython.longlong, recent=cython.longlong, noted=cython.longlong, before=int,
    )
    cdef long long decide(
        self,
        long long start_ts,
        long long[::1] cells,
        Py_ssize_t cell_count,
        long long[::1] tables,
        Py_ssize_t table_count,
    )

    @cython.locals(
        commits=LatestMap, cells=Numbers, end=cython.longlong, recent=cython.longlong,
        place=cython.longlong, cell=cython.longlong, left=cython.longlong, count=cython.longlong,
        age=cython.longlong,
    )
    cpdef bint examine(self, LongCommit commit, long long most) except -1

    cpdef bint fill(self, long long most) except -1

    @cython.locals(cells=Numbers, commit_ts=cython.longlong, forgotten_ts=cython.longlong, place=cython.longlong)
    cdef long long _decide_long(self, long long start_ts, LongCommit commit)

    @cython.locals(place=cython.longlong, table=object)
    cdef bint _is_fenced(self, long long start_ts, Numbers tables) except -1

    cpdef _forget_up_to(self, long long low_watermark)

    @cython.locals(cell=cython.longlong)
    cpdef list conflicts(self, long long start_ts, cell_ids)


@cython.final
cdef class _Fields:
    cdef unsigned long long number
    cdef Py_ssize_t first
    cdef Py_ssize_t last
    cdef const unsigned char[::1] _data
    cdef Py_ssize_t _end
    cdef Py_ssize_t _position

    @cython.locals(key=cython.ulonglong, length=cython.ulonglong, left=cython.ulonglong, wire_type=int)
    cdef unsigned long long next(self) except? 0

    cdef void enter(self) noexcept

    cdef bint has_more(self) noexcept

    cdef unsigned long long take(self) except? 0

    @cython.locals(value=cython.ulonglong, bits=cython.ulonglong, byte=cython.uchar, shift=int)
    cdef unsigned long long _varint(self, Py_ssize_t end) except? 0


@cython.final
cdef class LongCommit:
    cdef public long long start_ts
    cdef public bint is_retry
    cdef public bint is_commit
    cdef public Numbers cells
    cdef public Numbers tables
    cdef public long long examined_count
    cdef public long long set_count
    cdef public list conflicts
    cdef long long _room
    cdef object _data
    cdef Py_ssize_t _first
    cdef Py_ssize_t _end
    cdef _Fields _envelope
    cdef _Fields _body
    cdef unsigned long long _packed_key
    cdef bint _is_scanned
    cdef bint _has_others
    cdef bint _has_start

    cdef void name(self, long long cell) except *

    cpdef bint sort(self, long long most) except -1

    @cython.locals(envelope=_Fields, body=_Fields, left=cython.longlong, field=cython.ulonglong)
    cpdef bint read(self, long long most) except -1

    @cython.locals(field=cython.ulonglong)
    cdef void _take_field(self, _Fields body) except *

    @cython.locals(numbers=Numbers, value=cython.ulonglong)
    cdef Py_ssize_t _unpack(self, _Fields body, Py_ssize_t left) except -1

    cdef void _end_reading(self) except *

@cython.locals(commit=LongCommit)
cpdef tuple read_commit(bytes payload, Py_ssize_t most)

@cython.locals(body=bytearray)
cpdef bytes timestamp_frame(long long start_ts, low_watermark, newest_fence=*)

@cython.locals(body=bytearray)
cpdef bytes commit_frame(long long start_ts, long long commit_ts)

@cython.final
cdef class Decisions:
    cdef public long long forgotten_start
    cdef LatestMap _decided

    cpdef long long get(self, long long start_ts)

    cpdef note(self, long long start_ts, long long decision)


@cython.final
cdef class Tally:
    cdef public long long share
    cdef public long long cells_count
    cdef public long long request_count


@cython.final
cdef class Run:
    cdef public Py_ssize_t request_count
    cdef public Py_ssize_t commit_count
    cdef public Py_ssize_t refused_count
    cdef public Py_ssize_t written_count
    cdef public Py_ssize_t early_count
    cdef public long long early_ts
    cdef public bint is_tallied
    cdef Tally _tally
    cdef Engine _engine
    cdef Decisions _decisions
    cdef Py_ssize_t _max_numbers
    cdef set _invalidated
    cdef long long[::1] _cells
    cdef Py_ssize_t _cell_count
    cdef long long[::1] _tables
    cdef Py_ssize_t _table_count
    cdef bytearray _entry_bytes
    cdef long long[::1] _entries
    cdef bytearray _answer_bytes
    cdef unsigned char[::1] _answers
    cdef Py_ssize_t _length
    cdef Py_ssize_t _early_length
    cdef long long _client
    cdef bint _shows_watermark
    cdef bint _tells_why
    cdef const unsigned char[::1] _nothing
    cdef const unsigned char[::1] _data
    cdef unsigned long long _value

    cpdef bytearray entries(self)

    @cython.locals(
        position=Py_ssize_t, first=Py_ssize_t, length=Py_ssize_t, place=Py_ssize_t,
        byte=cython.uchar,
    )
    cdef Py_ssize_t _take(self, Py_ssize_t size, Py_ssize_t most) except -1

    cdef void _end_early(self) noexcept

    @cython.locals(start_ts=cython.longlong, body=Py_ssize_t, end=Py_ssize_t)
    cdef int _begin(self) except -1

    @cython.locals(
        position=Py_ssize_t, left=cython.ulonglong, last=Py_ssize_t, start_ts=cython.longlong,
        key=cython.uchar,
    )
    cdef bint _commit(self, Py_ssize_t first, Py_ssize_t end) except -1

    cdef bint _keep_cell(self) noexcept

    cdef bint _keep_table(self) noexcept

    @cython.locals(owner=cython.longlong)
    cdef bint _is_fresh(self, long long start_ts) except -1

    @cython.locals(decision=cython.longlong, body=Py_ssize_t, end=Py_ssize_t)
    cdef bint _decide(self, long long start_ts) except -1

    @cython.locals(rest=cython.ulonglong)
    cdef Py_ssize_t _write(self, Py_ssize_t place, long long value) noexcept

    @cython.locals(head=Py_ssize_t, size=Py_ssize_t, place=Py_ssize_t)
    cdef void _enclose(self, Py_ssize_t end, unsigned char kind) noexcept

    @cython.locals(value=cython.ulonglong, bits=cython.ulonglong, byte=cython.uchar, shift=int)
    cdef Py_ssize_t _read(self, Py_ssize_t position, Py_ssize_t end) noexcept


cdef long long _signed(unsigned long long value)

@cython.locals(rest=cython.ulonglong)
cdef void _put(bytearray out, long long value) except *

@cython.locals(size=Py_ssize_t)
cdef bytes _framed(unsigned long long kind, bytearray body)
