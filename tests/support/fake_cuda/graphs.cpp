// CUDA graphs: the calls that a capture permits, and the replay of captured operations, one after another.
#include "sim.h"

#include <pthread.h>

#include <algorithm>

static std::vector<std::shared_ptr<Capture>>& captures = *new std::vector<std::shared_ptr<Capture>>;
static std::unordered_set<Graph*>& graphs = *new std::unordered_set<Graph*>;
static u64 next_capture = 0;
static thread_local int thread_mode = cudaStreamCaptureModeGlobal;

// Whether this capture forbids potentially unsafe calls on this thread (documentation of
// cudaThreadExchangeStreamCaptureMode).
static bool forbids(const Capture& capture) {
    if (thread_mode == cudaStreamCaptureModeRelaxed) return false;
    if (capture.thread == pthread_self()) return capture.mode != cudaStreamCaptureModeRelaxed;
    return thread_mode == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
}

cudaError_t unsafe(const char* what) {
    LOCK;
    bool any = false;
    for (auto& one : captures)
        if (forbids(*one)) any = one->broken = true;
    if (any && tracing_calls()) fprintf(stderr, "fakecuda: %s during capture\n", what);
    return any ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t conflicts(Stream* s, const char* what) {
    LOCK;
    if (!s->capture) return cudaSuccess;
    s->capture->broken = true;
    if (tracing_calls()) fprintf(stderr, "fakecuda: %s on the captured stream\n", what);
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t capture_op(Stream* s, const Op& op) {
    if (s->capture->broken) return cudaErrorStreamCaptureInvalidated;
    s->capture->graph->ops.push_back(op);
    return cudaSuccess;
}

// A wait that involves a capture: it adds the stream to the capture, or joins another stream of the capture.
cudaError_t capture_wait(Stream* s, Event* event, bool* handled) {
    auto of_event = event->capture && !event->capture->over ? event->capture : nullptr;
    if (!s->capture && !of_event) return cudaSuccess;
    *handled = true;
    if (s->capture && s->capture->broken) return cudaErrorStreamCaptureInvalidated;
    if (!of_event) {
        if (!event->mark) return cudaSuccess;
        s->capture->broken = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (s->capture && s->capture != of_event) {
        s->capture->broken = of_event->broken = true;
        return cudaErrorStreamCaptureIsolation;
    }
    if (!s->capture) {
        s->capture = of_event;
        of_event->joined[s] = s->submitted;
    }
    u64& position = of_event->joined[event->captured_on];
    position = std::max(position, event->position);
    return cudaSuccess;
}

API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(thread_mode, *(int*)mode);
    return cudaSuccess;
}
API cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
    COUNT(is_capturing);
    Stream* s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    LOCK;
    *status = !s->capture ? cudaStreamCaptureStatusNone
              : s->capture->broken ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}
static cudaError_t capture_info(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                cudaGraph_t* graph, const cudaGraphNode_t** nodes, size_t* n) {
    cudaError_t e = cudaStreamIsCapturing(handle, status);
    if (e) return e;
    Stream* s = stream_of(handle);
    if (id) *id = s->capture ? s->capture->id : 0;
    if (graph) *graph = s->capture ? (cudaGraph_t)s->capture->graph : nullptr;
    if (nodes) *nodes = nullptr;
    if (n) *n = 0;
    return cudaSuccess;
}
#if CUDART_VERSION >= 13000
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus* status, unsigned long long* id,
                                         cudaGraph_t* graph, const cudaGraphNode_t** nodes,
                                         const cudaGraphEdgeData** edges, size_t* n) {
    if (edges) *edges = nullptr;
    return capture_info(s, status, id, graph, nodes, n);
}
#else
API cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t s, cudaStreamCaptureStatus* status, unsigned long long* id,
                                            cudaGraph_t* graph, const cudaGraphNode_t** nodes, size_t* n) {
    return capture_info(s, status, id, graph, nodes, n);
}
#endif
API cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    STICKY
    if ((uintptr_t)handle <= 1) return fail(cudaErrorStreamCaptureUnsupported);  // the legacy stream
    Stream* s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    LOCK;
    if (s->capture) return fail(cudaErrorIllegalState);
    auto capture = std::make_shared<Capture>();
    capture->graph = new Graph;
    capture->origin = s;
    capture->mode = mode;
    capture->id = ++next_capture;
    capture->thread = pthread_self();
    s->capture = capture;
    captures.push_back(capture);
    return cudaSuccess;
}
API cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
    LOCK;
    Stream* s = stream_of(handle);
    *graph = nullptr;
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    auto capture = s->capture;
    if (!capture) return fail(cudaErrorIllegalState);
    if (capture->origin != s) return fail(cudaErrorStreamCaptureUnmatched);
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != pthread_self())
        return fail(cudaErrorStreamCaptureWrongThread);
    bool unjoined = false;
    for (auto& [member, position] : capture->joined)
        if (member != s) {
            unjoined |= position < member->submitted;
            member->capture = nullptr;
        }
    s->capture = nullptr;
    capture->over = true;
    captures.erase(std::find(captures.begin(), captures.end(), capture));
    if (capture->broken || unjoined) {
        delete capture->graph;
        return fail(capture->broken ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined);
    }
    graphs.insert(capture->graph);
    live(GRAPHS, s->device, 1);
    *graph = (cudaGraph_t)capture->graph;
    return cudaSuccess;
}
API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
    LOCK;
    if (!graphs.count((Graph*)graph)) return fail(cudaErrorInvalidValue);
    auto* copy = new Graph(*(Graph*)graph);
    graphs.insert(copy);
    live(GRAPHS, current, 1);
    *made = (cudaGraphExec_t)copy;
    return cudaSuccess;
}
API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(made, graph, flags);
}
API cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t handle) {
    STICKY
    Call call(311);
    COUNT(graph_launch);
    Stream* s = stream_of(handle);
    std::vector<Op> ops;
    {
        LOCK;
        if (!s || !graphs.count((Graph*)graph)) return fail(cudaErrorInvalidResourceHandle);
        ops = ((Graph*)graph)->ops;
    }
    for (auto& op : ops) {
        op.correlation = call.id;
        if (auto e = submit(s, op)) return fail(e);
    }
    return cudaSuccess;
}
API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* n) {
    *n = ((Graph*)graph)->ops.size();
    return cudaSuccess;
}
API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    LOCK;
    if (!graphs.erase((Graph*)graph)) return fail(cudaErrorInvalidValue);
    live(GRAPHS, current, -1);
    delete (Graph*)graph;
    return cudaSuccess;
}
API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return cudaGraphDestroy((cudaGraph_t)graph); }
