// NCCL: a collective ends on every rank some time after the last rank has reached it. Ranks meet in shared memory by
// the communicator's id. A rank cannot be more than one collective ahead of another, so a ring with few places is
// enough.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "sim.h"

static const int MOST_RANKS = 64, RING = 4;
static const double LATENCY = 12e-6, RATE = 100e9;  // seconds; bytes/s
static const double PATIENCE = 120;                 // seconds for all ranks to make the communicator
enum Result { SUCCESS = 0, UNHANDLED_CUDA_ERROR = 1, SYSTEM_ERROR = 2, INVALID_USAGE = 5 };

struct Arrival {
    std::atomic<u64> sequence;  // of the collective, from 1
    u64 time;
};
struct Meeting {
    std::atomic<int> joined;
    Arrival arrivals[MOST_RANKS][RING];
};
struct Comm {
    int ranks, rank, device;
    Meeting* meeting;
    u64 next = 0;
    bool aborted = false;
};
struct Id {
    char internal[128];
};
static thread_local int group_depth = 0;

bool meet(Comm* comm, u64 sequence, u64 arrival, u64* all) {
    auto& mine = comm->meeting->arrivals[comm->rank][sequence % RING];
    if (mine.sequence.load(std::memory_order_relaxed) != sequence) {
        mine.time = arrival;
        mine.sequence.store(sequence, std::memory_order_release);
    }
    *all = mine.time;
    if (comm->aborted) return true;
    for (int rank = 0; rank < comm->ranks; rank++) {
        auto& other = comm->meeting->arrivals[rank][sequence % RING];
        if (other.sequence.load(std::memory_order_acquire) != sequence) return false;
        *all = std::max(*all, other.time);
    }
    return true;
}

static int join(Comm** made, int ranks, const char* id, int rank, int device, bool wait) {
    if (ranks > MOST_RANKS || rank < 0 || rank >= ranks) return INVALID_USAGE;
    const char* tag = getenv("FAKECUDA_TAG");
    std::string name = std::string("/dev/shm/fakecuda-") + (tag ? tag : "0") + "-nccl-" + id;
    int file = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void* mapped = MAP_FAILED;
    if (file >= 0 && ftruncate(file, sizeof(Meeting)) == 0)
        mapped = mmap(0, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (mapped == MAP_FAILED) return SYSTEM_ERROR;
    auto* meeting = (Meeting*)mapped;
    if (++meeting->joined == ranks) unlink(name.c_str());
    u64 until = now() + (u64)(PATIENCE * 1e9);
    while (wait && meeting->joined < ranks) {
        if (now() > until) return SYSTEM_ERROR;
        usleep(500);
    }
    *made = new Comm{ranks, rank, device, meeting};
    return SUCCESS;
}

API int ncclGetVersion(int* v) {
    *v = 22703;
    return 0;
}
API int ncclGetUniqueId(Id* id) {
    unsigned char random[16];
    memset(id, 0, sizeof *id);
    if (getrandom(random, sizeof random, 0) != sizeof random) return SYSTEM_ERROR;
    for (int i = 0; i < 16; i++) snprintf(id->internal + 2 * i, 3, "%02x", random[i]);
    return SUCCESS;
}
API int ncclCommInitRank(Comm** c, int ranks, Id id, int rank) {
    return join(c, ranks, id.internal, rank, current, group_depth == 0);
}
API int ncclCommInitRankConfig(Comm** c, int ranks, Id id, int rank, void*) {
    return ncclCommInitRank(c, ranks, id, rank);
}
API int ncclCommInitAll(Comm** c, int n, const int* devices) {
    Id id;
    ncclGetUniqueId(&id);
    for (int i = 0; i < n; i++)
        if (int e = join(&c[i], n, id.internal, i, devices ? devices[i] : i, false)) return e;
    return SUCCESS;
}
API int ncclCommSplit(Comm*, int, int, Comm**, void*) { return INVALID_USAGE; }
// Wait until this rank has reached its last collective: if it left earlier, others would wait for it in vain.
static void come_to_the_last(Comm* c, double seconds) {
    auto& mine = c->meeting->arrivals[c->rank][c->next % RING];
    u64 until = now() + (u64)(seconds * 1e9);
    while (c->next && mine.sequence.load(std::memory_order_acquire) != c->next && now() < until) usleep(500);
}
API int ncclCommFinalize(Comm* c) {
    come_to_the_last(c, PATIENCE);
    return SUCCESS;
}
API int ncclCommDestroy(Comm* c) {
    ncclCommFinalize(c);
    c->aborted = true;  // not deleted: operations may still wait for it
    return SUCCESS;
}
API int ncclCommAbort(Comm* c) {
    come_to_the_last(c, 2);  // torch also aborts at a healthy program's end; the other ranks may be gone
    c->aborted = true;
    return SUCCESS;
}
API int ncclCommCount(Comm* c, int* n) {
    *n = c->ranks;
    return SUCCESS;
}
API int ncclCommUserRank(Comm* c, int* n) {
    *n = c->rank;
    return SUCCESS;
}
API int ncclCommCuDevice(Comm* c, int* n) {
    *n = c->device;
    return SUCCESS;
}
API int ncclCommGetAsyncError(Comm*, int* e) {
    *e = SUCCESS;
    return SUCCESS;
}
API int ncclGroupStart() {
    group_depth++;
    return SUCCESS;
}
API int ncclGroupEnd() {
    group_depth--;
    return SUCCESS;
}
API const char* ncclGetErrorString(int) { return "an error of the stand-in's NCCL"; }
API const char* ncclGetLastError(Comm*) { return ""; }

static size_t width(int type) {
    static const size_t WIDTHS[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};  // by ncclDataType_t
    return type >= 0 && type < 12 ? WIDTHS[type] : 4;
}

static int collective(Comm* comm, const char* name, size_t bytes, cudaStream_t handle) {
    Call call(430);
    COUNT(nccl);
    COUNT(launch);
    Stream* s = stream_of(handle);
    if (!s) return UNHANDLED_CUDA_ERROR;
    Op op;
    op.type = Op::COLLECTIVE;
    op.name = name;
    op.bytes = bytes;
    op.duration = (u64)(time_of(name, "", LATENCY + bytes / RATE) * 1e9);
    op.correlation = call.id;
    op.grid = dim3(24);
    op.block = dim3(544);
    op.comm = comm;
    op.sequence = ++comm->next;
    return submit(s, op) ? UNHANDLED_CUDA_ERROR : SUCCESS;
}
// A tensor's contents come only from the rank itself, and only if they are small.
static void keep(const void* from, void* to, size_t bytes) {
    if (from != to && bytes <= 512) memcpy(to, from, bytes);
}
#define KERNEL(what) "ncclDevKernel_" what "_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

API int ncclAllReduce(const void* from, void* to, size_t n, int type, int, Comm* c, cudaStream_t s) {
    keep(from, to, n * width(type));
    return collective(c, KERNEL("AllReduce_Sum_f32"), n * width(type), s);
}
API int ncclBroadcast(const void* from, void* to, size_t n, int type, int, Comm* c, cudaStream_t s) {
    keep(from, to, n * width(type));
    return collective(c, KERNEL("Broadcast"), n * width(type), s);
}
API int ncclBcast(void*, size_t n, int type, int, Comm* c, cudaStream_t s) {
    return collective(c, KERNEL("Broadcast"), n * width(type), s);
}
API int ncclReduce(const void*, void*, size_t n, int type, int, int, Comm* c, cudaStream_t s) {
    return collective(c, KERNEL("Reduce_Sum_f32"), n * width(type), s);
}
API int ncclAllGather(const void* from, void* to, size_t n, int type, Comm* c, cudaStream_t s) {
    size_t bytes = n * width(type);
    for (int i = 0; i < c->ranks; i++) keep(from, (char*)to + i * bytes, bytes);
    return collective(c, KERNEL("AllGather"), bytes * c->ranks, s);
}
API int ncclReduceScatter(const void*, void*, size_t n, int type, int, Comm* c, cudaStream_t s) {
    return collective(c, KERNEL("ReduceScatter_Sum_f32"), n * width(type) * c->ranks, s);
}
