// Shared by the parts of the stand-in: the simulated machine, its streams, the clock and the counters.
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))
typedef uint64_t u64;

// ---- clock (machine.cpp): nanoseconds of CLOCK_REALTIME, as CUPTI gives them
u64 now();
void sleep_until(u64 when);
bool tracing_calls();                             // FAKECUDA_TRACE is set
const char* interned(const std::string& text);    // a copy that lives as long as the process

// ---- machine (machine.cpp)
struct Model {
    const char *key, *name;
    int major, minor, multiprocessors;
    double fp32, tf32, bf16, bandwidth;  // FLOP/s and bytes/s
};
struct Board {
    const Model* model;
    u64 memory;
    int mig;  // MIG devices it is cut into; 0: MIG is off
    unsigned char raw[16];
    std::string uuid;  // as NVML writes it
};
struct Visible {  // a GPU as CUDA counts them
    int board;
    int mig;  // which MIG device of the board; -1: all of it
};
const int MOST_GPUS = 16, MOST_PROCESSES = 64;
// The layout of /dev/shm/fakecuda-TAG.
enum Live { EVENTS, STREAMS, CONTEXTS, GRAPHS, PINNED, LIVE_KINDS };
struct Slot {
    int pid, pad;
    u64 used[MOST_GPUS], busy[MOST_GPUS], ready[MOST_GPUS];
    u64 live[LIVE_KINDS][MOST_GPUS];
};
struct SharedState {
    u64 used[MOST_GPUS];
    Slot slots[MOST_PROCESSES];
};
std::vector<Board>& boards();     // in NVML's order
std::vector<Visible>& visible();  // in CUDA's order
SharedState* shared_state();
Slot* slot();                     // of this process
u64 memory_of(const Visible& gpu);
std::string uuid_of(const Visible& gpu);
std::string name_of(const Visible& gpu);
void live(Live kind, int device, int change);

// ---- counters (machine.cpp)
#define COUNTED(X)                                                                                              \
    X(launch) X(memcpy_sync) X(memcpy_async) X(memset) X(malloc) X(free) X(host_alloc) X(stream_sync)           \
    X(device_sync) X(event_sync) X(event_record) X(event_query) X(event_create) X(event_elapsed) X(stream_query) \
    X(stream_wait) X(graph_launch) X(mem_get_info) X(gemm) X(nccl) X(is_capturing) X(cupti_finalize)
enum Counted {
#define X(name) N_##name,
    COUNTED(X)
#undef X
        COUNTED_KINDS
};
extern std::atomic<u64> counts[COUNTED_KINDS];
#define COUNT(name) counts[N_##name]++

// ---- errors and devices (devices.cpp)
extern thread_local int current;  // the current device
cudaError_t fail(cudaError_t error);
cudaError_t sticky();             // the error that FAKECUDA_BREAK left behind, or success
#define STICKY                                        \
    if (cudaError_t broken_ = sticky(); broken_) return broken_;
int device_count();
const Model& model();
void use();                       // make the current device's context, if it has none
bool has_context(int device);
int device_attribute(int attribute, int device);

// ---- streams (streams.cpp)
extern std::recursive_mutex& lock_;
#define LOCK std::lock_guard<std::recursive_mutex> guard_(lock_)
struct Stream;
struct Capture;
struct Mark {  // one recording of an event: known once everything before it on the stream has its time
    Stream* stream = nullptr;
    u64 at = 0;
    bool known = false;
};
struct Comm;
struct Op {
    enum Type { KERNEL, COPY, SET, COLLECTIVE, RECORD, WAIT } type = KERNEL;
    const char* name = "";
    u64 duration = 0, host = 0;  // host: when it was submitted
    size_t bytes = 0, shared_memory = 0;
    int copy = 0, from = 0, to = 0, value = 0;
    bool async = true;
    dim3 grid, block;
    uint32_t correlation = 0;
    std::shared_ptr<Mark> mark;
    Comm* comm = nullptr;
    u64 sequence = 0;
};
struct Stream {
    int device = 0;
    unsigned id = 7;
    u64 ready = 0;            // when everything that has its time is done
    std::deque<u64> queue;    // ends of running operations
    std::deque<Op> pending;   // operations without a time yet: behind a collective that other ranks have not reached
    bool advancing = false;
    std::shared_ptr<Capture> capture;
    u64 submitted = 0;
};
struct Event {
    int device;
    bool timing;
    std::shared_ptr<Mark> mark;
    std::shared_ptr<Capture> capture;  // the capture it was recorded in
    Stream* captured_on = nullptr;
    u64 position = 0;                  // how much had been submitted to captured_on
};
Stream* stream_of(cudaStream_t handle);       // nullptr if destroyed
cudaError_t submit(Stream* stream, Op op);    // run it, or put it into the graph that is captured
cudaError_t run_kernel(const char* name, const std::string& shape, cudaStream_t handle, double seconds,
                       uint32_t correlation, dim3 grid, dim3 block, size_t shared_memory);
void wait_for(const std::shared_ptr<Mark>& mark);
std::shared_ptr<Mark> end_of(Stream* stream);  // a mark behind everything that was submitted
void wait_for_device(int device);
double speed();
double time_of(const char* name, const std::string& shape, double seconds);  // as FAKECUDA_KERNELS and _SPEED set it

// ---- capture (graphs.cpp)
struct Graph {
    std::vector<Op> ops;
};
struct Capture {
    Graph* graph;
    Stream* origin;
    int mode;
    u64 id;
    unsigned long thread;
    bool broken = false, over = false;
    std::map<Stream*, u64> joined;  // member -> how much of it the origin waits for
};
cudaError_t unsafe(const char* what);               // an error while a capture forbids such calls
cudaError_t conflicts(Stream* stream, const char* what);  // an error if the stream itself is captured
cudaError_t capture_wait(Stream* stream, Event* event, bool* handled);
cudaError_t capture_op(Stream* stream, const Op& op);

// ---- collectives (nccl.cpp)
bool meet(Comm* comm, u64 sequence, u64 arrival, u64* all);  // whether all ranks are there, and when the last arrived

// ---- CUPTI (cupti.cpp)
struct Call {  // a runtime or driver call, from begin to end
    u64 begin = 0;
    int callback;
    uint32_t id = 0;
    bool on, driver;
    explicit Call(int callback_id, bool driver_call = false);
    ~Call();
};
void trace_op(const Op& op, const Stream& stream, u64 start, u64 end);

// ---- log of the truth (machine.cpp)
void log_op(const Op& op, const Stream& stream, u64 start, u64 end);
