// The part of cuDNN that torch's v7 interface uses: convolutions and batch norm, each of a fixed time.
// TORCH_CUDNN_V8_API_DISABLED=1 makes torch use it.
#include "sim.h"

static const double SECONDS = 300e-6;
static const int EXECUTION_FAILED = 8;  // CUDNN_STATUS_EXECUTION_FAILED

struct Dnn {
    cudaStream_t stream;
};
struct Performance {
    int algorithm, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
};
API size_t cudnnGetVersion() { return 91002; }
API size_t cudnnGetCudartVersion() { return 12080; }
API const char* cudnnGetErrorString(int) { return "an error of the stand-in's cuDNN"; }
API int cudnnCreate(Dnn** h) {
    *h = new Dnn{0};
    return 0;
}
API int cudnnSetStream(Dnn* h, cudaStream_t s) {
    h->stream = s;
    return 0;
}

static int made(void** descriptor) {
    *descriptor = calloc(1, 64);
    return 0;
}
API int cudnnCreateTensorDescriptor(void** d) { return made(d); }
API int cudnnCreateFilterDescriptor(void** d) { return made(d); }
API int cudnnCreateConvolutionDescriptor(void** d) { return made(d); }

static int best(int* n, Performance* p) {
    memset(p, 0, sizeof *p);
    p->algorithm = 1;
    p->time = 0.1f;
    p->math = 1;
    *n = 1;
    return 0;
}
#define ALGORITHMS(direction)                                                                                          \
    API int cudnnGetConvolution##direction##Algorithm_v7(Dnn*, void*, void*, void*, void*, int, int* n,                \
                                                         Performance* p) {                                            \
        return best(n, p);                                                                                            \
    }                                                                                                                  \
    API int cudnnFindConvolution##direction##AlgorithmEx(Dnn*, void*, void*, void*, void*, void*, void*, void*, int,   \
                                                         int* n, Performance* p, void*, size_t) {                     \
        return best(n, p);                                                                                            \
    }                                                                                                                  \
    API int cudnnGetConvolution##direction##WorkspaceSize(Dnn*, void*, void*, void*, void*, int, size_t* n) {          \
        return nothing(n);                                                                                            \
    }
static int nothing(size_t* n) {
    *n = 0;
    return 0;
}
ALGORITHMS(Forward)
ALGORITHMS(BackwardData)
ALGORITHMS(BackwardFilter)
API int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(Dnn*, int, int, void*, void*, void*, void*, void*,
                                                                 size_t* n) {
    return nothing(n);
}
API int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(Dnn*, int, int, void*, void*, size_t* n) {
    return nothing(n);
}
API int cudnnGetBatchNormalizationBackwardExWorkspaceSize(Dnn*, int, int, void*, void*, void*, void*, void*, void*,
                                                          void*, size_t* n) {
    return nothing(n);
}

static int run(Dnn* h, const char* name) {
    Call call(211);
    return run_kernel(name, "", h->stream, SECONDS, call.id, dim3(132), dim3(256), 0) ? EXECUTION_FAILED : 0;
}
#define TILE "_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8_kernel_cudnn"
API int cudnnConvolutionForward(Dnn* h, ...) { return run(h, "sm80_xmma_fprop" TILE); }
API int cudnnConvolutionBackwardData(Dnn* h, ...) { return run(h, "sm80_xmma_dgrad" TILE); }
API int cudnnConvolutionBackwardFilter(Dnn* h, ...) { return run(h, "sm80_xmma_wgrad" TILE); }
API int cudnnBatchNormalizationForwardTrainingEx(Dnn* h, ...) {
    return run(h, "void cudnn::batchnorm_fwtr_nhwc_semiPersist<float, float, float, 512, true, 1, 0, 1>(cudnn::BnFwTrParams)");
}
API int cudnnBatchNormalizationBackwardEx(Dnn* h, ...) {
    return run(h, "void cudnn::batchnorm_bwtr_nhwc_semiPersist<float, float, float, 512, true, 1, 0, 1>(cudnn::BnBwTrParams)");
}
