// Devices, their contexts and properties, and the runtime's error state.
#include "sim.h"

static const u64 CONTEXT_MEMORY = 500ull << 20;  // GPU memory that a context takes

thread_local int current = 0;
static thread_local cudaError_t last_error = cudaSuccess;
static bool contexts[MOST_GPUS];

cudaError_t fail(cudaError_t error) {
    if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
    return error;
}

cudaError_t sticky() {  // the error after N launches, like a device-side assert
    static long after = getenv("FAKECUDA_BREAK") ? atol(getenv("FAKECUDA_BREAK")) : -1;
    return after >= 0 && (long)counts[N_launch] > after ? fail(cudaErrorAssert) : cudaSuccess;
}

int device_count() { return (int)visible().size(); }
const Model& model() { return *boards()[visible()[current].board].model; }
bool has_context(int device) { return contexts[device]; }

void use() {
    LOCK;
    if (contexts[current]) return;
    contexts[current] = true;
    int board = visible()[current].board;
    __sync_fetch_and_add(&shared_state()->used[board], CONTEXT_MEMORY);
    slot()->used[board] += CONTEXT_MEMORY;
    live(CONTEXTS, current, 1);
}

API cudaError_t cudaGetDeviceCount(int* n) {
    *n = device_count();
    return *n ? cudaSuccess : fail(cudaErrorNoDevice);
}
API cudaError_t cudaGetDevice(int* device) {
    if (!device_count()) return fail(cudaErrorNoDevice);
    *device = current;
    return cudaSuccess;
}
API cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
    current = device;
    use();
    return cudaSuccess;
}
API cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
API cudaError_t cudaGetDeviceFlags(unsigned* flags) {
    *flags = 0;
    return cudaSuccess;
}
API cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
API cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}
API cudaError_t cudaDeviceReset() { return cudaSuccess; }

API cudaError_t cudaGetLastError() {
    if (cudaError_t broken = sticky(); broken) return broken;
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
API cudaError_t cudaPeekAtLastError() {
    if (cudaError_t broken = sticky(); broken) return broken;
    return last_error;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} ERRORS[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not initiated in this stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
};
API const char* cudaGetErrorString(cudaError_t error) {
    for (auto& one : ERRORS)
        if (one.error == error) return one.text;
    return "unrecognized error code";
}
API const char* cudaGetErrorName(cudaError_t error) {
    for (auto& one : ERRORS)
        if (one.error == error) return one.name;
    return "unrecognized error code";
}

static void raw_uuid(const Visible& gpu, char* out) {  // the 16 bytes that the text encodes
    std::string text = uuid_of(gpu).substr(4);
    for (size_t i = 0, k = 0; k < 16; i += text[i + 2] == '-' ? 3 : 2, k++)
        out[k] = (char)strtol(text.substr(i, 2).c_str(), nullptr, 16);
}

API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    const Visible& gpu = visible()[device];
    const Model& m = *boards()[gpu.board].model;
    snprintf(p->name, sizeof p->name, "%s", name_of(gpu).c_str());
    raw_uuid(gpu, p->uuid.bytes);
    p->totalGlobalMem = memory_of(gpu);
    p->sharedMemPerBlock = 49152;
    p->regsPerBlock = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 65536;
    p->major = m.major;
    p->minor = m.minor;
    p->multiProcessorCount = m.multiprocessors;
    p->unifiedAddressing = 1;
    p->memoryBusWidth = 5120;
    p->l2CacheSize = 50 << 20;
    p->maxThreadsPerMultiProcessor = m.major == 7 && m.minor == 5 ? 1024 : 2048;
    p->sharedMemPerMultiprocessor = 233472;
    p->regsPerMultiprocessor = 65536;
    p->managedMemory = 1;
    p->concurrentKernels = 1;
    p->asyncEngineCount = 3;
    p->pciBusID = gpu.board + 1;
    p->sharedMemPerBlockOptin = 232448;
    p->maxBlocksPerMultiProcessor = 32;
    p->reservedSharedMemPerBlock = 1024;
    p->cooperativeLaunch = 1;
    p->textureAlignment = 512;
    p->streamPrioritiesSupported = 1;
    p->memoryPoolsSupported = 1;
    return cudaSuccess;
}

int device_attribute(int attribute, int device) {
    cudaDeviceProp p;
    cudaGetDeviceProperties(&p, device);
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:
        case cudaDevAttrMaxBlockDimX:
        case cudaDevAttrMaxBlockDimY: return 1024;
        case cudaDevAttrMaxBlockDimZ: return 64;
        case cudaDevAttrMaxGridDimX: return p.maxGridSize[0];
        case cudaDevAttrMaxGridDimY:
        case cudaDevAttrMaxGridDimZ: return 65535;
        case cudaDevAttrMaxSharedMemoryPerBlock: return 49152;
        case cudaDevAttrTotalConstantMemory: return 65536;
        case cudaDevAttrWarpSize: return 32;
        case cudaDevAttrMaxRegistersPerBlock: return 65536;
        case cudaDevAttrClockRate: return 1980000;  // kHz
        case cudaDevAttrMultiProcessorCount: return p.multiProcessorCount;
        case cudaDevAttrPciBusId: return p.pciBusID;
        case cudaDevAttrPciDeviceId:
        case cudaDevAttrPciDomainId: return 0;
        case cudaDevAttrMemoryClockRate: return 2619000;
        case cudaDevAttrGlobalMemoryBusWidth: return p.memoryBusWidth;
        case cudaDevAttrL2CacheSize: return p.l2CacheSize;
        case cudaDevAttrMaxThreadsPerMultiProcessor: return p.maxThreadsPerMultiProcessor;
        case cudaDevAttrAsyncEngineCount: return 3;
        case cudaDevAttrComputeCapabilityMajor: return p.major;
        case cudaDevAttrComputeCapabilityMinor: return p.minor;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return 233472;
        case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: return 232448;
        case cudaDevAttrMaxBlocksPerMultiprocessor: return 32;
        case cudaDevAttrReservedSharedMemoryPerBlock: return 1024;
        case cudaDevAttrIntegrated:
        case 132: return 0;  // multicast
        default: return 1;
    }
}

API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
    *value = device_attribute(attribute, device);
    return cudaSuccess;
}
API cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
    if (device < 0 || device >= device_count()) return fail(cudaErrorInvalidDevice);
    snprintf(text, size, "0000:%02X:00.0", visible()[device].board + 1);
    return cudaSuccess;
}
API cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
    *can = 1;
    return cudaSuccess;
}
API cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
API cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit) {
    *value = 1 << 20;
    return cudaSuccess;
}
API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
    *pool = (cudaMemPool_t)1;
    return cudaSuccess;
}
