// The driver functions that torch and Triton call.
#include <cuda.h>
#include <dlfcn.h>

#include "sim.h"

static const double BYTES_A_THREAD = 96;  // of a Triton kernel, approximately

API CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
API CUresult cuDriverGetVersion(int* v) {
    *v = CUDA_VERSION;
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetCount(int* n) {
    *n = device_count();
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGet(CUdevice* device, int i) {
    *device = i;
    return CUDA_SUCCESS;
}
API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    *value = device_attribute(attribute, device);
    return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
    *flags = 0;
    *active = has_context(device);
    return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    *context = (CUcontext)(uintptr_t)(device + 1);
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetCurrent(CUcontext* context) {
    *context = (CUcontext)(uintptr_t)(current + 1);
    return CUDA_SUCCESS;
}
API CUresult cuCtxGetDevice(CUdevice* device) {
    *device = current;
    return CUDA_SUCCESS;
}
API CUresult cuGetErrorString(CUresult, const char** text) {
    *text = "an error of the stand-in's driver";
    return CUDA_SUCCESS;
}

API CUresult cuModuleLoadData(CUmodule* m, const void*) {
    *m = (CUmodule)1;
    return CUDA_SUCCESS;
}
API CUresult cuModuleLoadDataEx(CUmodule* m, const void*, unsigned, CUjit_option*, void**) {
    return cuModuleLoadData(m, nullptr);
}
API CUresult cuModuleLoad(CUmodule* m, const char*) { return cuModuleLoadData(m, nullptr); }
API CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
    *function = (CUfunction)interned(name);
    return CUDA_SUCCESS;
}
API CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
    *value = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS                ? 32
             : attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
                                                                    : 0;
    return CUDA_SUCCESS;
}
API CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                            unsigned bz, unsigned shared_memory, CUstream stream, void**, void**) {
    Call call(307, true);
    dim3 grid(gx, gy, gz), block(bx, by, bz);
    double seconds = 1.5e-6 + (double)gx * gy * gz * bx * by * bz * BYTES_A_THREAD / model().bandwidth;
    auto e = run_kernel((const char*)function, "", (cudaStream_t)stream, seconds, call.id, grid, block, shared_memory);
    return (CUresult)e;
}
API CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** arguments, void** extra) {
    return cuLaunchKernel(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
                          c->sharedMemBytes, c->hStream, arguments, extra);
}
API CUresult cuOccupancyMaxActiveClusters(int* n, CUfunction, const CUlaunchConfig*) {
    *n = 8;
    return CUDA_SUCCESS;
}

static int nothing() { return 0; }
static void* entry(const char* name) {
    static void* self = [] {
        Dl_info info;
        dladdr((void*)&nothing, &info);
        return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }();
    void* found = self ? dlsym(self, name) : nullptr;
    if (!found && tracing_calls()) fprintf(stderr, "fakecuda: entry point %s does nothing\n", name);
    return found ? found : (void*)&nothing;
}
API cudaError_t cudaGetDriverEntryPoint(const char* name, void** f, unsigned long long, cudaDriverEntryPointQueryResult* r) {
    *f = entry(name);
    if (r) *r = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}
API cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** f, unsigned, unsigned long long flags,
                                                 cudaDriverEntryPointQueryResult* r) {
    return cudaGetDriverEntryPoint(name, f, flags, r);
}
