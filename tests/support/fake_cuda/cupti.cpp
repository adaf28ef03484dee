// CUPTI's activity interface: records of kernels, copies and calls, as torch.profiler reads them.
#include <cupti.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>

#include "sim.h"

static bool kinds[256];
static std::atomic<bool> on;
static CUpti_BuffersCallbackRequestFunc request_buffer;
static CUpti_BuffersCallbackCompleteFunc complete_buffer;
static CUpti_TimestampCallbackFunc timestamp;
static u64 calibrated_ns, calibrated_stamp;
static std::atomic<uint32_t> correlation{1};
static thread_local std::vector<u64> external[8];
static std::atomic<CUpti_CallbackFunc> subscriber;
static void* subscribed;
static std::atomic<bool> domains[CUPTI_CB_DOMAIN_SIZE];

struct Record {
    union {
        CUpti_ActivityKernel9 kernel;
        CUpti_ActivityMemcpy6 copy;
        CUpti_ActivityMemset4 set;
        CUpti_ActivityAPI api;
        CUpti_ActivityExternalCorrelation external;
        CUpti_ActivitySynchronization2 synchronization;
    };
    size_t size;
    u64 end;
};
static std::vector<Record>& records = *new std::vector<Record>;
static uint8_t* open_buffer;
static size_t open_size;

template <class T>
static void put(const T& activity, u64 end) {
    Record r;
    memset(&r, 0, sizeof r);
    memcpy(&r, &activity, sizeof activity);
    r.size = sizeof activity;
    r.end = end;
    LOCK;
    if (!open_buffer && request_buffer) {
        size_t most = 0;
        request_buffer(&open_buffer, &open_size, &most);
    }
    records.push_back(r);
}

template <class T>
static T activity(CUpti_ActivityKind kind) {
    T made;
    memset(&made, 0, sizeof made);
    made.kind = kind;
    return made;
}

static size_t size_of(CUpti_ActivityKind kind) {
    switch (kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        case CUPTI_ACTIVITY_KIND_KERNEL: return sizeof(CUpti_ActivityKernel9);
        case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(CUpti_ActivityMemcpy6);
        case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(CUpti_ActivityMemset4);
        case CUPTI_ACTIVITY_KIND_RUNTIME:
        case CUPTI_ACTIVITY_KIND_DRIVER: return sizeof(CUpti_ActivityAPI);
        case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return sizeof(CUpti_ActivityExternalCorrelation);
        case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: return sizeof(CUpti_ActivitySynchronization2);
        default: return 0;
    }
}

static void call_back(const Call& call, CUpti_ApiCallbackSite site) {
    auto domain = call.driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
    CUpti_CallbackFunc function = subscriber;
    if (!function || !domains[domain]) return;
    CUpti_CallbackData data;
    memset(&data, 0, sizeof data);
    data.callbackSite = site;
    data.correlationId = call.id;
    function(subscribed, domain, call.callback, &data);
}

Call::Call(int callback_id, bool driver_call) : callback(callback_id), driver(driver_call) {
    call_back(*this, CUPTI_API_ENTER);
    on = ::on.load(std::memory_order_relaxed);
    if (!on) return;
    begin = now();
    id = correlation++;
    if (!kinds[CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION]) return;
    for (int k = 0; k < 8; k++) {
        if (external[k].empty()) continue;
        auto e = activity<CUpti_ActivityExternalCorrelation>(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
        e.externalKind = (CUpti_ExternalCorrelationKind)k;
        e.externalId = external[k].back();
        e.correlationId = id;
        put(e, begin);
    }
}

Call::~Call() {
    auto kind = driver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
    if (on && kinds[kind]) {
        auto a = activity<CUpti_ActivityAPI>(kind);
        a.cbid = callback;
        a.start = begin;
        a.end = now();
        a.processId = getpid();
        a.threadId = (uint32_t)(uintptr_t)pthread_self();
        a.correlationId = id;
        put(a, a.end);
    }
    call_back(*this, CUPTI_API_EXIT);
}

static void trace_kernel(const Op& op, const Stream& s, u64 start, u64 end) {
    auto k = activity<CUpti_ActivityKernel9>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    k.start = start;
    k.end = k.completed = end;
    k.deviceId = s.device;
    k.contextId = s.device + 1;
    k.streamId = s.id;
    k.gridX = op.grid.x;
    k.gridY = op.grid.y;
    k.gridZ = op.grid.z;
    k.blockX = op.block.x;
    k.blockY = op.block.y;
    k.blockZ = op.block.z;
    k.registersPerThread = 32;
    k.dynamicSharedMemory = op.shared_memory;
    k.sharedMemoryExecuted = 16384;
    k.correlationId = op.correlation;
    k.gridId = op.correlation;
    k.name = op.name;
    put(k, end);
}

static void trace_copy(const Op& op, const Stream& s, u64 start, u64 end) {
    auto memory = [](int type) {
        return type == cudaMemoryTypeDevice ? CUPTI_ACTIVITY_MEMORY_KIND_DEVICE
               : type == cudaMemoryTypeHost ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED
                                            : CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
    };
    auto c = activity<CUpti_ActivityMemcpy6>(CUPTI_ACTIVITY_KIND_MEMCPY);
    c.start = start;
    c.end = end;
    c.bytes = op.bytes;
    c.copyKind = op.copy == cudaMemcpyHostToDevice   ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                 : op.copy == cudaMemcpyDeviceToHost ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                                                     : CUPTI_ACTIVITY_MEMCPY_KIND_DTOD;
    c.srcKind = memory(op.from);
    c.dstKind = memory(op.to);
    c.flags = op.async;
    c.deviceId = s.device;
    c.contextId = s.device + 1;
    c.streamId = s.id;
    c.correlationId = op.correlation;
    put(c, end);
}

static void trace_set(const Op& op, const Stream& s, u64 start, u64 end) {
    auto m = activity<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET);
    m.value = op.value;
    m.bytes = op.bytes;
    m.start = start;
    m.end = end;
    m.deviceId = s.device;
    m.contextId = s.device + 1;
    m.streamId = s.id;
    m.correlationId = op.correlation;
    m.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    put(m, end);
}

void trace_op(const Op& op, const Stream& s, u64 start, u64 end) {
    if (!on) return;
    if (op.type == Op::COPY) {
        if (kinds[CUPTI_ACTIVITY_KIND_MEMCPY] && op.copy != cudaMemcpyHostToHost) trace_copy(op, s, start, end);
    } else if (op.type == Op::SET) {
        if (kinds[CUPTI_ACTIVITY_KIND_MEMSET]) trace_set(op, s, start, end);
    } else if (kinds[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL]) {
        trace_kernel(op, s, start, end);
    }
}

API CUptiResult cuptiGetTimestamp(uint64_t* t) {
    *t = now();
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiGetVersion(uint32_t* v) {
    *v = CUPTI_API_VERSION;
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiGetResultString(CUptiResult r, const char** s) {
    *s = r ? "an error of the stand-in's CUPTI" : "ok";
    return CUPTI_SUCCESS;
}
extern "C" const char* fakecuda_callback_name(int driver, uint32_t id);  // build.py makes it from CUPTI's headers
API CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id, const char** name) {
    *name = fakecuda_callback_name(domain == CUPTI_CB_DOMAIN_DRIVER_API, id);
    return *name ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
API CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                               CUpti_BuffersCallbackCompleteFunc complete) {
    request_buffer = request;
    complete_buffer = complete;
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc f) {
    timestamp = f;
    if (f) {
        calibrated_ns = now();
        calibrated_stamp = f();
    }
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    kinds[kind] = true;
    on = true;
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
    kinds[kind] = false;
    on = std::any_of(std::begin(kinds), std::end(kinds), [](bool one) { return one; });
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* n) {
    *n = 0;
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
    external[kind].push_back(id);
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t* id) {
    if (external[kind].empty()) return CUPTI_ERROR_QUEUE_EMPTY;
    if (id) *id = external[kind].back();
    external[kind].pop_back();
    return CUPTI_SUCCESS;
}

// Convert our nanoseconds to the clock that torch requested: a line through two calibrations.
class Clock {
    double slope = 1;
    u64 ns = 0, stamp = 0;

   public:
    Clock() {
        if (!timestamp) return;
        if (now() - calibrated_ns < 5000000) usleep(5000);
        ns = now();
        stamp = timestamp();
        slope = (double)(int64_t)(stamp - calibrated_stamp) / (double)(int64_t)(ns - calibrated_ns);
    }
    uint64_t operator()(uint64_t t) const {
        return timestamp && t ? stamp + (int64_t)((double)((int64_t)t - (int64_t)ns) * slope) : t;
    }
    void convert(Record& r) const {
        switch (r.api.kind) {
            case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
                r.kernel.start = (*this)(r.kernel.start);
                r.kernel.end = r.kernel.completed = (*this)(r.kernel.end);
                break;
            case CUPTI_ACTIVITY_KIND_MEMCPY:
                r.copy.start = (*this)(r.copy.start);
                r.copy.end = (*this)(r.copy.end);
                break;
            case CUPTI_ACTIVITY_KIND_MEMSET:
                r.set.start = (*this)(r.set.start);
                r.set.end = (*this)(r.set.end);
                break;
            case CUPTI_ACTIVITY_KIND_DRIVER:
            case CUPTI_ACTIVITY_KIND_RUNTIME:
                r.api.start = (*this)(r.api.start);
                r.api.end = (*this)(r.api.end);
                break;
            default: break;
        }
    }
};

API CUptiResult cuptiActivityFlushAll(uint32_t) {
    std::vector<Record> out, rest;
    uint8_t* buffer;
    size_t size;
    {
        LOCK;
        u64 n = now();
        for (auto& r : records) (r.end <= n ? out : rest).push_back(r);
        records.swap(rest);
        buffer = open_buffer;
        size = open_size;
        open_buffer = nullptr;
    }
    if (tracing_calls()) fprintf(stderr, "fakecuda: %zu records of CUPTI\n", out.size());
    if (!complete_buffer) return CUPTI_SUCCESS;
    Clock clock;
    for (size_t i = 0; buffer || i < out.size(); buffer = nullptr) {
        size_t used = 0, most = 0;
        if (!buffer) request_buffer(&buffer, &size, &most);
        if (!buffer) break;
        for (; i < out.size() && used + out[i].size <= size; used += out[i++].size) {
            clock.convert(out[i]);
            memcpy(buffer + used, &out[i], out[i].size);
        }
        complete_buffer(0, 0, buffer, size, used);
    }
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiActivityGetNextRecord(uint8_t* buffer, size_t valid, CUpti_Activity** r) {
    uint8_t* next = *r ? (uint8_t*)*r + size_of((*r)->kind) : buffer;
    if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *r = (CUpti_Activity*)next;
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* s, CUpti_CallbackFunc function, void* data) {
    if (subscriber) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    subscribed = data;
    subscriber = function;
    *s = (CUpti_SubscriberHandle)1;
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
    if (!subscriber) return CUPTI_ERROR_INVALID_PARAMETER;
    for (auto& domain : domains) domain = false;
    subscriber = nullptr;
    return CUPTI_SUCCESS;
}
API CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle, CUpti_CallbackDomain domain) {
    if (!subscriber) return CUPTI_ERROR_INVALID_PARAMETER;
    domains[domain] = enable;
    return CUPTI_SUCCESS;
}
// The next call to CUPTI starts it again.
API CUptiResult cuptiFinalize() {
    cuptiUnsubscribe(nullptr);
    LOCK;
    on = false;
    std::fill(std::begin(kinds), std::end(kinds), false);
    records.clear();
    open_buffer = nullptr;
    request_buffer = nullptr;
    complete_buffer = nullptr;
    timestamp = nullptr;
    COUNT(cupti_finalize);
    return CUPTI_SUCCESS;
}
