// Kernels that torch's libraries register and launch. They compute nothing, and their time depends on their number of
// threads; torch.cuda._sleep(n) takes n nanoseconds.
#include <unordered_map>

#include "sim.h"

static const double BYTES_A_THREAD = 48;  // what a thread reads and writes, approximately

static std::unordered_map<const void*, const char*>& names() {
    static auto* known = new std::unordered_map<const void*, const char*>;
    return *known;
}

API void** __cudaRegisterFatBinary(void*) {
    static void* handle[4];
    return handle;
}
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
API void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {}
API void __cudaRegisterFunction(void**, const char* host, char*, const char* device, int, void*, void*, void*, void*,
                                int*) {
    LOCK;
    names()[host] = device;
}
API char __cudaInitModule(void**) { return 1; }

struct Configuration {
    dim3 grid, block;
    size_t shared_memory;
    cudaStream_t stream;
};
static thread_local std::vector<Configuration> configurations;
API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_memory, cudaStream_t stream) {
    configurations.push_back({grid, block, shared_memory, stream});
    return 0;
}
API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_memory, void* stream) {
    Configuration c = configurations.back();
    configurations.pop_back();
    *grid = c.grid;
    *block = c.block;
    *shared_memory = c.shared_memory;
    *(cudaStream_t*)stream = c.stream;
    return cudaSuccess;
}

static cudaError_t launch(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared_memory,
                          cudaStream_t stream, int callback) {
    STICKY
    Call call(callback);
    const char* name = "unknown_kernel";
    {
        LOCK;
        auto it = names().find(function);
        if (it != names().end()) name = it->second;
    }
    double threads = (double)grid.x * grid.y * grid.z * block.x * block.y * block.z;
    double seconds = 1.5e-6 + threads * BYTES_A_THREAD / model().bandwidth;
    if (arguments && strstr(name, "spin_kernel")) seconds = *(int64_t*)arguments[0] * 1e-9 * speed();
    return run_kernel(name, "", stream, seconds, call.id, grid, block, shared_memory);
}
API cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t s) {
    return launch(f, grid, block, arguments, shared, s, 211);
}
// The launch calls of programs compiled with CUDA 13; a kernel's handle is its function.
API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* f) {
    *kernel = (cudaKernel_t)f;
    return cudaSuccess;
}
API cudaError_t __cudaLaunchKernel(void* f, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t s) {
    return launch(f, grid, block, arguments, shared, s, 211);
}
API cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* f) { return __cudaGetKernel(kernel, f); }
API cudaError_t cudaLaunchCooperativeKernel(const void* f, dim3 grid, dim3 block, void**, size_t shared, cudaStream_t s) {
    return launch(f, grid, block, nullptr, shared, s, 269);
}
API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void**) {
    return launch(f, c->gridDim, c->blockDim, nullptr, c->dynamicSmemBytes, c->stream, 430);
}
API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void*) {
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    a->numRegs = 32;
    a->binaryVersion = a->ptxVersion = model().major * 10 + model().minor;
    a->maxDynamicSharedSizeBytes = 232448;
    return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void*, int block, size_t, unsigned) {
    *n = std::max(1, 2048 / std::max(block, 64));
    return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void* f, int block, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, f, block, shared, 0);
}
