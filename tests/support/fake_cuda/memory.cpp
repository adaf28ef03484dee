// Device memory, pinned host memory, and copies. Device memory is zeroed host memory that is never written.
#include <cuda.h>
#include <sys/mman.h>

#include <algorithm>

#include "sim.h"

struct Range {
    size_t size;
    int type;  // cudaMemoryType
    int device;
};
static std::map<uintptr_t, Range>& ranges = *new std::map<uintptr_t, Range>;

static Range* range_of(const void* p) {
    auto it = ranges.upper_bound((uintptr_t)p);
    if (it == ranges.begin()) return nullptr;
    --it;
    return (uintptr_t)p < it->first + it->second.size ? &it->second : nullptr;
}

static bool take(int device, u64 size) {
    const Visible& gpu = visible()[device];
    u64& used = shared_state()->used[gpu.board];
    if (used + size > memory_of(gpu)) return false;
    __sync_fetch_and_add(&used, size);
    slot()->used[gpu.board] += size;
    return true;
}
static void give(int device, u64 size) {
    int board = visible()[device].board;
    __sync_fetch_and_sub(&shared_state()->used[board], size);
    slot()->used[board] -= size;
}

static void* map(size_t size, int flags = 0, int protection = PROT_READ | PROT_WRITE) {
    void* m = mmap(0, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return m == MAP_FAILED ? nullptr : m;
}

API cudaError_t cudaMalloc(void** p, size_t size) {
    STICKY
    Call call(20);
    COUNT(malloc);
    *p = nullptr;
    if (auto e = unsafe("cudaMalloc")) return fail(e);
    LOCK;
    use();
    size = (size + 0x1fffff) & ~0x1fffffull;
    if (!take(current, size)) return fail(cudaErrorMemoryAllocation);
    if (!(*p = map(size, MAP_NORESERVE))) {
        give(current, size);
        return fail(cudaErrorMemoryAllocation);
    }
    ranges[(uintptr_t)*p] = {size, cudaMemoryTypeDevice, current};
    return cudaSuccess;
}
API cudaError_t cudaMallocAsync(void** p, size_t size, cudaStream_t) { return cudaMalloc(p, size); }
API cudaError_t cudaMallocFromPoolAsync(void** p, size_t size, cudaMemPool_t, cudaStream_t) { return cudaMalloc(p, size); }
API cudaError_t cudaMallocManaged(void** p, size_t size, unsigned) { return cudaMalloc(p, size); }

API cudaError_t cudaFree(void* p) {
    STICKY
    Call call(22);
    COUNT(free);
    use();
    if (!p) return cudaSuccess;
    if (auto e = unsafe("cudaFree")) return fail(e);
    int device;
    {
        LOCK;
        auto it = ranges.find((uintptr_t)p);
        if (it == ranges.end()) return fail(cudaErrorInvalidValue);
        device = it->second.device;
    }
    wait_for_device(device);
    LOCK;
    auto it = ranges.find((uintptr_t)p);
    give(device, it->second.size);
    munmap(p, it->second.size);
    ranges.erase(it);
    return cudaSuccess;
}
API cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return cudaFree(p); }

API cudaError_t cudaHostAlloc(void** p, size_t size, unsigned) {
    STICKY
    Call call(27);
    COUNT(host_alloc);
    if (auto e = unsafe("cudaHostAlloc")) return fail(e);
    LOCK;
    use();
    size = std::max<size_t>((size + 4095) & ~4095ull, 4096);
    if (!(*p = map(size))) return fail(cudaErrorMemoryAllocation);
    ranges[(uintptr_t)*p] = {size, cudaMemoryTypeHost, current};
    live(PINNED, current, 1);
    return cudaSuccess;
}
API cudaError_t cudaMallocHost(void** p, size_t size) { return cudaHostAlloc(p, size, 0); }
API cudaError_t cudaFreeHost(void* p) {
    if (auto e = unsafe("cudaFreeHost")) return fail(e);
    LOCK;
    auto it = ranges.find((uintptr_t)p);
    if (it == ranges.end()) return fail(cudaErrorInvalidValue);
    live(PINNED, it->second.device, -1);
    munmap(p, it->second.size);
    ranges.erase(it);
    return cudaSuccess;
}
API cudaError_t cudaHostRegister(void* p, size_t size, unsigned) {
    LOCK;
    if (ranges.count((uintptr_t)p)) return fail(cudaErrorHostMemoryAlreadyRegistered);
    ranges[(uintptr_t)p] = {size, cudaMemoryTypeHost, current};
    live(PINNED, current, 1);
    return cudaSuccess;
}
API cudaError_t cudaHostUnregister(void* p) {
    LOCK;
    auto it = ranges.find((uintptr_t)p);
    if (it == ranges.end()) return fail(cudaErrorHostMemoryNotRegistered);
    live(PINNED, it->second.device, -1);
    ranges.erase(it);
    return cudaSuccess;
}
API cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
    *device = host;
    return cudaSuccess;
}
API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
    LOCK;
    memset(a, 0, sizeof *a);
    Range* range = range_of(p);
    a->device = range ? range->device : -2;
    a->type = range ? (cudaMemoryType)range->type : cudaMemoryTypeUnregistered;
    a->hostPointer = (void*)(range && range->type == cudaMemoryTypeHost ? p : nullptr);
    a->devicePointer = (void*)(range ? p : nullptr);
    return cudaSuccess;
}
API cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    STICKY
    COUNT(mem_get_info);
    use();
    const Visible& gpu = visible()[current];
    u64 used = shared_state()->used[gpu.board];
    *total = memory_of(gpu);
    *free = used > *total ? 0 : *total - used;
    return cudaSuccess;
}

// ---- copies
static const double PINNED_RATE = 25e9, PAGEABLE_RATE = 6e9;  // bytes/s over PCIe
static const size_t STAGED = 65536;  // a pageable copy to the device up to this size does not block its caller

static double rate(int from, int to) {
    if (from == cudaMemoryTypeDevice && to == cudaMemoryTypeDevice) return model().bandwidth / 2;
    return from == cudaMemoryTypeUnregistered || to == cudaMemoryTypeUnregistered ? PAGEABLE_RATE : PINNED_RATE;
}

static int type_of(const void* p) {
    LOCK;
    Range* range = range_of(p);
    return range ? range->type : (int)cudaMemoryTypeUnregistered;
}

static cudaError_t copy(void* to, const void* from, size_t n, cudaStream_t handle, bool async, int callback) {
    STICKY
    Call call(callback);
    async ? COUNT(memcpy_async) : COUNT(memcpy_sync);
    if (!async)
        if (auto e = unsafe("cudaMemcpy")) return fail(e);
    Stream* s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    Op op;
    op.type = Op::COPY;
    op.from = type_of(from);
    op.to = type_of(to);
    bool from_device = op.from == cudaMemoryTypeDevice, to_device = op.to == cudaMemoryTypeDevice;
    op.copy = from_device ? (to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost)
                          : (to_device ? cudaMemcpyHostToDevice : cudaMemcpyHostToHost);
    op.bytes = n;
    op.async = async;
    op.correlation = call.id;
    op.duration = (u64)((1.2e-6 + n / rate(op.from, op.to)) * 1e9 / std::max(speed(), 0.05));
    if (auto e = submit(s, op)) return fail(e);
    // Contents of large tensors on the device are never read. Bytes for the host move early: nothing may read them
    // before.
    if (!to_device || n <= 512) memmove(to, from, n);
    if (s->capture) return cudaSuccess;
    bool pageable = op.from == cudaMemoryTypeUnregistered || op.to == cudaMemoryTypeUnregistered;
    bool blocks = !async ? op.copy != cudaMemcpyDeviceToDevice
                         : pageable && (op.copy == cudaMemcpyDeviceToHost ||
                                        (op.copy == cudaMemcpyHostToDevice && n > STAGED));
    if (blocks) wait_for(end_of(s));
    return cudaSuccess;
}
API cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind) {
    return copy(to, from, n, 0, false, 31);
}
API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind, cudaStream_t s) {
    return copy(to, from, n, s, true, 41);
}
API cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t n, cudaStream_t s) {
    return copy(to, from, n, s, true, 41);
}
API cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                  size_t height, cudaMemcpyKind, cudaStream_t s) {
    for (size_t i = 0; i < height; i++)
        if (auto e = copy((char*)to + i * to_pitch, (char*)from + i * from_pitch, width, s, true, 41)) return e;
    return cudaSuccess;
}
static cudaError_t set(void* p, int value, size_t n, cudaStream_t handle, int callback) {
    STICKY
    Call call(callback);
    COUNT(memset);
    Stream* s = stream_of(handle);
    if (!s) return fail(cudaErrorInvalidResourceHandle);
    Op op;
    op.type = Op::SET;
    op.bytes = n;
    op.value = value;
    op.correlation = call.id;
    op.duration = (u64)((1.0e-6 + n / model().bandwidth) * 1e9 / speed());
    if (auto e = submit(s, op)) return fail(e);
    if (n <= 1 << 20) memset(p, value, n);
    return cudaSuccess;
}
API cudaError_t cudaMemset(void* p, int value, size_t n) { return set(p, value, n, 0, 49); }
API cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t s) { return set(p, value, n, s, 51); }

// ---- virtual memory of the driver: expandable segments
struct Handle {
    size_t size;
    int device;
};
API CUresult cuMemGetAllocationGranularity(size_t* g, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
    *g = 2 << 20;
    return CUDA_SUCCESS;
}
API CUresult cuMemAddressReserve(CUdeviceptr* p, size_t n, size_t, CUdeviceptr, unsigned long long) {
    *p = (CUdeviceptr)map(n, MAP_NORESERVE, PROT_NONE);
    return *p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
API CUresult cuMemAddressFree(CUdeviceptr p, size_t n) {
    munmap((void*)p, n);
    return CUDA_SUCCESS;
}
API CUresult cuMemCreate(CUmemGenericAllocationHandle* h, size_t n, const CUmemAllocationProp* p, unsigned long long) {
    LOCK;
    if (!take(p->location.id, n)) return CUDA_ERROR_OUT_OF_MEMORY;
    *h = (CUmemGenericAllocationHandle) new Handle{n, p->location.id};
    return CUDA_SUCCESS;
}
API CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
    LOCK;
    auto* handle = (Handle*)h;
    give(handle->device, handle->size);
    delete handle;
    return CUDA_SUCCESS;
}
API CUresult cuMemMap(CUdeviceptr p, size_t n, size_t, CUmemGenericAllocationHandle h, unsigned long long) {
    LOCK;
    mprotect((void*)p, n, PROT_READ | PROT_WRITE);
    ranges[(uintptr_t)p] = {n, cudaMemoryTypeDevice, ((Handle*)h)->device};
    return CUDA_SUCCESS;
}
API CUresult cuMemUnmap(CUdeviceptr p, size_t n) {
    LOCK;
    for (auto it = ranges.lower_bound(p); it != ranges.end() && it->first < p + n;) it = ranges.erase(it);
    madvise((void*)p, n, MADV_DONTNEED);
    mprotect((void*)p, n, PROT_NONE);
    return CUDA_SUCCESS;
}
