// Streams and events. An operation's begin and end are known as soon as it is submitted, unless it waits for a
// collective that other ranks have not reached: then it is pending, and a thread checks again until all ranks are
// there.
#include "sim.h"

#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

std::recursive_mutex& lock_ = *new std::recursive_mutex;
static const u64 LAUNCH_LATENCY = 1500;  // ns from a launch to its begin on an idle stream
static const size_t QUEUE = 1024;        // operations that may wait on a stream; then a launch blocks
static const u64 LOOK_AGAIN = 100;       // us

static Stream* defaults = new Stream[MOST_GPUS];
static std::set<Stream*>& streams = *new std::set<Stream*>;
static std::unordered_set<Event*>& events = *new std::unordered_set<Event*>;
static unsigned next_stream = 13;

double speed() {
    static double set = getenv("FAKECUDA_SPEED") ? atof(getenv("FAKECUDA_SPEED")) : 1.0;
    return set;
}

Stream* stream_of(cudaStream_t handle) {
    if ((uintptr_t)handle <= 2) {  // the legacy and the per-thread default stream
        use();
        defaults[current].device = current;
        return &defaults[current];
    }
    LOCK;
    return streams.count((Stream*)handle) ? (Stream*)handle : nullptr;
}
#define STREAM(name, handle)          \
    Stream* name = stream_of(handle); \
    if (!name) return fail(cudaErrorInvalidResourceHandle)
#define EVENT(name, handle)                                                     \
    Event* name = (Event*)handle;                                               \
    {                                                                           \
        LOCK;                                                                   \
        if (!events.count(name)) return fail(cudaErrorInvalidResourceHandle);   \
    }

static void ran(Stream* s, const Op& op, u64 start, u64 end) {
    s->ready = end;
    s->queue.push_back(end);
    Slot* m = slot();
    int board = visible()[s->device].board;
    if (op.type == Op::KERNEL || op.type == Op::COLLECTIVE) m->busy[board] += end - start;  // as NVML counts
    m->ready[board] = std::max(m->ready[board], end);
    trace_op(op, *s, start, end);
    log_op(op, *s, start, end);
}

static void advance(Stream* s);

static bool finish(Stream* s, Op& op) {  // set its times; false if they are not known yet
    switch (op.type) {
        case Op::RECORD:
            op.mark->at = std::max(op.host, s->ready);
            op.mark->known = true;
            return true;
        case Op::WAIT:
            if (!op.mark->known && op.mark->stream != s) advance(op.mark->stream);
            if (!op.mark->known) return false;
            s->ready = std::max(s->ready, op.mark->at);
            return true;
        default: {
            u64 start = std::max(op.host + LAUNCH_LATENCY, s->ready), all = start;
            if (op.type == Op::COLLECTIVE && !meet(op.comm, op.sequence, start, &all)) return false;
            ran(s, op, start, all + op.duration);
            return true;
        }
    }
}

static void advance(Stream* s) {
    if (s->advancing) return;  // a cycle of waiting streams: do not finish the first operation twice
    s->advancing = true;
    while (!s->pending.empty() && finish(s, s->pending.front())) s->pending.pop_front();
    s->advancing = false;
}

static bool advance_all() {  // whether anything is still pending
    LOCK;
    bool more = false;
    auto one = [&](Stream* s) {
        advance(s);
        more |= !s->pending.empty();
    };
    for (auto* s : streams) one(s);
    for (int i = 0; i < MOST_GPUS; i++) one(&defaults[i]);
    return more;
}

static void look_again() {  // another rank waits for our arrival even while our program does something else
    static int running_in = 0;
    LOCK;
    if (running_in == getpid()) return;
    running_in = getpid();
    std::thread([] {
        for (;;) usleep(advance_all() ? LOOK_AGAIN : 10 * LOOK_AGAIN);
    }).detach();
}

static void wait_for_room(Stream* s) {
    for (;;) {
        u64 until = 0;
        {
            LOCK;
            advance(s);
            u64 n = now();
            while (!s->queue.empty() && s->queue.front() <= n) s->queue.pop_front();
            if (s->queue.size() + s->pending.size() < QUEUE) return;
            until = s->queue.empty() ? n + 1000 * LOOK_AGAIN : s->queue.front();
        }
        sleep_until(until);
    }
}

cudaError_t submit(Stream* s, Op op) {
    {
        LOCK;
        s->submitted++;
        if (s->capture) return capture_op(s, op);
    }
    wait_for_room(s);
    LOCK;
    op.host = now();
    if (s->pending.empty() && finish(s, op)) return cudaSuccess;
    s->pending.push_back(op);
    look_again();
    return cudaSuccess;
}

std::shared_ptr<Mark> end_of(Stream* s) {
    Op op;
    op.type = Op::RECORD;
    op.host = 0;
    op.mark = std::make_shared<Mark>();
    op.mark->stream = s;
    LOCK;
    if (!s->pending.empty() || !finish(s, op)) s->pending.push_back(op);
    return op.mark;
}

void wait_for(const std::shared_ptr<Mark>& mark) {
    for (;;) {
        {
            LOCK;
            if (!mark->known) advance(mark->stream);
            if (mark->known) break;
        }
        usleep(LOOK_AGAIN);
    }
    sleep_until(mark->at);
}

void wait_for_device(int device) {
    std::vector<std::shared_ptr<Mark>> ends;
    {
        LOCK;
        ends.push_back(end_of(&defaults[device]));
        for (auto* s : streams)
            if (s->device == device && !s->capture) ends.push_back(end_of(s));
    }
    for (auto& end : ends) wait_for(end);
}

// Kernel times set by FAKECUDA_KERNELS="pattern=seconds;...": a part of the name, or a shell pattern for the name or
// the shape.
double time_of(const char* name, const std::string& shape, double seconds) {
    struct Rule {
        std::string pattern;
        double seconds;
    };
    static auto* rules = [] {
        auto* read = new std::vector<Rule>;
        std::string text = getenv("FAKECUDA_KERNELS") ? getenv("FAKECUDA_KERNELS") : "";
        for (size_t begin = 0; begin < text.size();) {
            size_t end = std::min(text.find(';', begin), text.size());
            std::string one = text.substr(begin, end - begin);
            size_t equals = one.rfind('=');
            if (equals != std::string::npos)
                read->push_back({"*" + one.substr(0, equals) + "*", atof(one.c_str() + equals + 1)});
            begin = end + 1;
        }
        return read;
    }();
    for (auto& rule : *rules)
        if (!fnmatch(rule.pattern.c_str(), name, 0) || !fnmatch(rule.pattern.c_str(), shape.c_str(), 0))
            return rule.seconds;
    return seconds / speed();
}

cudaError_t run_kernel(const char* name, const std::string& shape, cudaStream_t handle, double seconds,
                       uint32_t correlation, dim3 grid, dim3 block, size_t shared_memory) {
    STREAM(s, handle);
    COUNT(launch);
    Op op;
    op.name = name;
    op.duration = (u64)(time_of(name, shape, seconds) * 1e9);
    op.correlation = correlation;
    op.grid = grid;
    op.block = block;
    op.shared_memory = shared_memory;
    return fail(submit(s, op));
}

// ---- streams
API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned, int) {
    STICKY
    LOCK;
    use();
    auto* s = new Stream;
    s->device = current;
    s->id = next_stream++;
    streams.insert(s);
    live(STREAMS, current, 1);
    *handle = (cudaStream_t)s;
    return cudaSuccess;
}
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
    return cudaStreamCreateWithPriority(s, flags, 0);
}
API cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithPriority(s, 0, 0); }
API cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    LOCK;
    STREAM(s, handle);
    if ((uintptr_t)handle <= 2) return fail(cudaErrorInvalidResourceHandle);
    live(STREAMS, s->device, -1);
    streams.erase(s);  // not deleted: marks point to it
    return cudaSuccess;
}
API cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    STICKY
    Call call(131);
    COUNT(stream_sync);
    STREAM(s, handle);
    if (auto e = conflicts(s, "cudaStreamSynchronize")) return fail(e);
    if (auto e = unsafe("cudaStreamSynchronize")) return fail(e);
    wait_for(end_of(s));
    return cudaSuccess;
}
API cudaError_t cudaStreamQuery(cudaStream_t handle) {
    STICKY
    Call call(132);
    COUNT(stream_query);
    STREAM(s, handle);
    if (auto e = conflicts(s, "cudaStreamQuery")) return fail(e);
    if (auto e = unsafe("cudaStreamQuery")) return fail(e);
    LOCK;
    advance(s);
    return s->pending.empty() && s->ready <= now() ? cudaSuccess : cudaErrorNotReady;
}
API cudaError_t cudaDeviceSynchronize() {
    STICKY
    Call call(165);
    COUNT(device_sync);
    use();
    if (auto e = unsafe("cudaDeviceSynchronize")) return fail(e);
    wait_for_device(current);
    return cudaSuccess;
}
API cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
    *priority = 0;
    return cudaSuccess;
}
API cudaError_t cudaStreamGetFlags(cudaStream_t, unsigned* flags) {
    *flags = cudaStreamNonBlocking;
    return cudaSuccess;
}
API cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
    STREAM(s, handle);
    *id = s->id;
    return cudaSuccess;
}
API cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
    function(data);
    return cudaSuccess;
}
API cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t function, void* data, unsigned) {
    function(s, cudaSuccess, data);
    return cudaSuccess;
}

// ---- events
API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
    STICKY
    COUNT(event_create);
    use();
    LOCK;
    auto* event = new Event{current, !(flags & cudaEventDisableTiming), nullptr, nullptr};
    events.insert(event);
    live(EVENTS, current, 1);
    *handle = (cudaEvent_t)event;
    return cudaSuccess;
}
API cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
API cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    LOCK;
    EVENT(event, handle);
    live(EVENTS, event->device, -1);
    events.erase(event);
    delete event;
    return cudaSuccess;
}
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream, unsigned) {
    STICKY
    Call call(135);
    COUNT(event_record);
    STREAM(s, stream);
    EVENT(event, handle);
    if (event->device != s->device) return fail(cudaErrorInvalidResourceHandle);
    LOCK;
    event->capture = s->capture;
    if (s->capture) {
        if (s->capture->broken) return fail(cudaErrorStreamCaptureInvalidated);
        event->captured_on = s;
        event->position = s->submitted;
        return cudaSuccess;
    }
    event->mark = std::make_shared<Mark>();
    event->mark->stream = s;
    Op op;
    op.type = Op::RECORD;
    op.host = now();
    op.mark = event->mark;
    if (!s->pending.empty() || !finish(s, op)) s->pending.push_back(op);
    return cudaSuccess;
}
API cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return cudaEventRecordWithFlags(e, s, 0); }
API cudaError_t cudaEventQuery(cudaEvent_t handle) {
    STICKY
    Call call(138);
    COUNT(event_query);
    EVENT(event, handle);
    if (event->capture) return fail(cudaErrorCapturedEvent);
    if (auto e = unsafe("cudaEventQuery")) return fail(e);
    LOCK;
    if (!event->mark) return cudaSuccess;
    if (!event->mark->known) advance(event->mark->stream);
    return event->mark->known && event->mark->at <= now() ? cudaSuccess : cudaErrorNotReady;
}
API cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    STICKY
    Call call(137);
    COUNT(event_sync);
    EVENT(event, handle);
    if (event->capture) return fail(cudaErrorCapturedEvent);
    if (auto e = unsafe("cudaEventSynchronize")) return fail(e);
    if (event->mark) wait_for(std::shared_ptr<Mark>(event->mark));
    return cudaSuccess;
}
API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t first, cudaEvent_t second) {
    STICKY
    COUNT(event_elapsed);
    EVENT(a, first);
    EVENT(b, second);
    LOCK;
    if (a->capture || b->capture) return fail(cudaErrorCapturedEvent);
    if (!a->timing || !b->timing || !a->mark || !b->mark || a->device != b->device)
        return fail(cudaErrorInvalidResourceHandle);
    for (auto* event : {a, b}) {
        if (!event->mark->known) advance(event->mark->stream);
        if (!event->mark->known || event->mark->at > now()) return cudaErrorNotReady;
    }
    *ms = (float)((double)((int64_t)b->mark->at - (int64_t)a->mark->at) * 1e-6);
    return cudaSuccess;
}
API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t handle, unsigned) {
    STICKY
    Call call(147);
    COUNT(stream_wait);
    STREAM(s, stream);
    EVENT(event, handle);
    LOCK;
    bool handled = false;
    if (auto e = capture_wait(s, event, &handled); e || handled) return fail(e);
    if (!event->mark) return cudaSuccess;
    Op op;
    op.type = Op::WAIT;
    op.mark = event->mark;
    if (!s->pending.empty() || !finish(s, op)) {
        s->pending.push_back(op);
        look_again();
    }
    return cudaSuccess;
}
