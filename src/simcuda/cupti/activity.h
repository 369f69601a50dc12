// The activity records of one process: what was asked for, what happened since, and the client's
// buffers that it is written to.
//
// Calls append to a queue of ours; the queue is written to the client's buffers when it is flushed
// and whenever it has grown, by the thread whose call made it grow. The client's functions are
// called without any lock that a CUDA call takes. A record that finds no room (no callbacks, no
// buffer, a buffer smaller than the record, a queue that nobody empties) is counted as dropped.
// All functions may be called by any thread at any time and throw nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "simcuda/activity.h"

namespace fragscope::simcuda::cupti {

using BufferRequested = void (*)(uint8_t** buffer, size_t* bytes, size_t* most_records);
using BufferCompleted = void (*)(void* context, uint32_t stream, uint8_t* buffer, size_t bytes,
                                 size_t valid_bytes);
using TimestampFunction = uint64_t (*)();

// Of a kind; of one function of an API. False: there is no such number.
bool select_kind(uint32_t kind, bool on);
bool select_api(ApiDomain domain, uint32_t id, bool on);
void select_nothing();

// These two are false when called by a function of the client that we are calling.
bool set_buffer_functions(BufferRequested requested, BufferCompleted completed);
// The clock of all times in records; null: nanoseconds of CLOCK_REALTIME.
bool set_clock(TimestampFunction clock);
uint64_t clock_now();
// Threads by the low half of pthread_self(), or by the kernel's number.
void number_threads_by_system(bool by_system);
bool threads_are_numbered_by_system();

// Ids of the client's, per thread and kind. False: no such kind; nothing to take.
bool push_external(uint32_t kind, uint64_t id);
bool pop_external(uint32_t kind, uint64_t* last);

// Everything that was recorded reaches the client before it returns, also a buffer in part.
// False: called by a function of the client that we are calling.
bool flush();
uint64_t take_dropped();

// The record after `record` (null: the first). Null: none is left, or the bytes are no records.
const void* next_record(const uint8_t* buffer, size_t valid_bytes, const void* record);

}  // namespace fragscope::simcuda::cupti
