// cuBLAS and cuBLASLt: matmuls take the time of a roofline at 70 % of the peak of their data type. A matmul's shape,
// for FAKECUDA_KERNELS, reads "gemm MxNxK".
#include <library_types.h>

#include <algorithm>

#include "sim.h"

static const double OF_PEAK = 0.7;
static const int EXECUTION_FAILED = 13;  // CUBLAS_STATUS_EXECUTION_FAILED
static const int FAST_TF32 = 77;         // CUBLAS_COMPUTE_32F_FAST_TF32

struct Blas {
    cudaStream_t stream;
    int math, pointer_mode;
};
API int cublasCreate_v2(Blas** h) {
    *h = new Blas{};
    return 0;
}
API int cublasDestroy_v2(Blas* h) {
    delete h;
    return 0;
}
API int cublasSetStream_v2(Blas* h, cudaStream_t s) {
    h->stream = s;
    return 0;
}
API int cublasGetStream_v2(Blas* h, cudaStream_t* s) {
    *s = h->stream;
    return 0;
}
API int cublasSetMathMode(Blas* h, int m) {
    h->math = m;
    return 0;
}
API int cublasGetMathMode(Blas* h, int* m) {
    *m = h->math;
    return 0;
}
API int cublasGetPointerMode_v2(Blas* h, int* m) {
    *m = h->pointer_mode;
    return 0;
}
API int cublasSetPointerMode_v2(Blas* h, int m) {
    h->pointer_mode = m;
    return 0;
}
API int cublasGetVersion_v2(Blas*, int* v) {
    *v = 120800;
    return 0;
}

static const char* kernel_name(const Model& gpu, int type, bool tf32) {
    bool half = type == CUDA_R_16BF || type == CUDA_R_16F, fp8 = type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
    if (type == CUDA_R_64F) return "cutlass_80_tensorop_d884gemm_64x64_16x4_tn_align1";
    if (gpu.major >= 9 && (half || fp8))
        return type == CUDA_R_16F ? "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT"
                                  : "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT";
    if (half)
        return type == CUDA_R_16F ? "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
                                  : "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn";
    if (tf32)
        return gpu.major >= 9 ? "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_"
                                "segment_k_off_kernel__5x_cublas"
                              : "ampere_sgemm_tf32_128x64_tn";
    return gpu.major >= 8 ? "ampere_sgemm_128x64_tn" : "volta_sgemm_128x64_tn";
}

static int gemm(cudaStream_t stream, double m, double n, double k, double batch, int type, bool tf32) {
    Call call(211);
    COUNT(gemm);
    const Model& gpu = model();
    bool half = type == CUDA_R_16BF || type == CUDA_R_16F, fp8 = type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
    tf32 = tf32 && gpu.major >= 8 && type == CUDA_R_32F;
    double peak = type == CUDA_R_64F ? gpu.fp32 / 2
                  : half             ? gpu.bf16
                  : fp8              ? 2 * gpu.bf16
                  : tf32             ? gpu.tf32
                                     : gpu.fp32;
    double bytes = (m * n + m * k + n * k) * batch * (half ? 2 : fp8 ? 1 : type == CUDA_R_64F ? 8 : 4);
    double seconds = 2e-6 + std::max(2 * m * n * k * batch / (OF_PEAK * peak), bytes / gpu.bandwidth);
    char shape[96];
    snprintf(shape, sizeof shape, "gemm %.0fx%.0fx%.0f", m, n, k);
    dim3 grid(std::max(1.0, m / 128), std::max(1.0, n / 128), batch);
    auto e = run_kernel(kernel_name(gpu, type, tf32), shape, stream, seconds, call.id, grid, dim3(256), 49152);
    return e ? EXECUTION_FAILED : 0;
}
static bool tf32(Blas* h) { return h->math & 3; }

API int cublasSgemm_v2(Blas* h, int, int, int m, int n, int k, const void*, const void*, int, const void*, int,
                       const void*, void*, int) {
    return gemm(h->stream, m, n, k, 1, CUDA_R_32F, tf32(h));
}
API int cublasDgemm_v2(Blas* h, int, int, int m, int n, int k, const void*, const void*, int, const void*, int,
                       const void*, void*, int) {
    return gemm(h->stream, m, n, k, 1, CUDA_R_64F, false);
}
API int cublasGemmEx(Blas* h, int, int, int m, int n, int k, const void*, const void*, int type, int, const void*, int,
                     int, const void*, void*, int, int, int, int) {
    return gemm(h->stream, m, n, k, 1, type, tf32(h));
}
API int cublasSgemmStridedBatched(Blas* h, int, int, int m, int n, int k, const void*, const void*, int, long long,
                                  const void*, int, long long, const void*, void*, int, long long, int batch) {
    return gemm(h->stream, m, n, k, batch, CUDA_R_32F, tf32(h));
}
API int cublasDgemmStridedBatched(Blas* h, int, int, int m, int n, int k, const void*, const void*, int, long long,
                                  const void*, int, long long, const void*, void*, int, long long, int batch) {
    return gemm(h->stream, m, n, k, batch, CUDA_R_64F, false);
}
API int cublasGemmStridedBatchedEx(Blas* h, int, int, int m, int n, int k, const void*, const void*, int type, int,
                                   long long, const void*, int, int, long long, const void*, void*, int, int, long long,
                                   int batch, int, int) {
    return gemm(h->stream, m, n, k, batch, type, tf32(h));
}
API int cublasSgemv_v2(Blas* h, int, int m, int n, const void*, const void*, int, const void*, int, const void*, void*,
                       int) {
    return gemm(h->stream, m, 1, n, 1, CUDA_R_32F, false);
}
API int cublasSdot_v2(Blas* h, int n, const void*, int, const void*, int, void*) {
    return gemm(h->stream, 1, 1, n, 1, CUDA_R_32F, false);
}

// ---- cuBLASLt: layouts and descriptors are ours
static const int BATCH_COUNT = 5, TRANSPOSE_A = 3;  // attributes
struct Layout {
    int type;
    u64 rows, columns;
    int batch;
};
struct Description {
    int compute, transpose_a;
};
API int cublasLtCreate(void** h) {
    *h = new int;
    return 0;
}
API int cublasLtDestroy(void*) { return 0; }
API int cublasLtMatrixLayoutCreate(Layout** l, int type, u64 rows, u64 columns, int64_t) {
    *l = new Layout{type, rows, columns, 1};
    return 0;
}
API int cublasLtMatrixLayoutDestroy(Layout* l) {
    delete l;
    return 0;
}
API int cublasLtMatrixLayoutSetAttribute(Layout* l, int attribute, const void* value, size_t n) {
    if (attribute == BATCH_COUNT && n >= 4) l->batch = *(const int*)value;
    return 0;
}
API int cublasLtMatmulDescCreate(Description** d, int compute, int) {
    *d = new Description{compute, 0};
    return 0;
}
API int cublasLtMatmulDescDestroy(Description* d) {
    delete d;
    return 0;
}
API int cublasLtMatmulDescSetAttribute(Description* d, int attribute, const void* value, size_t) {
    if (attribute == TRANSPOSE_A) d->transpose_a = *(const int*)value;
    return 0;
}
API int cublasLtMatmulPreferenceCreate(void** p) {
    *p = new int;
    return 0;
}
API int cublasLtMatmulAlgoGetHeuristic(void*, Description*, Layout*, Layout*, Layout*, Layout*, void*, int,
                                       void* results, int* n) {
    memset(results, 0, 96);
    *n = 1;
    return 0;
}
API int cublasLtMatmul(void*, Description* d, const void*, const void*, Layout* a, const void*, Layout*, const void*,
                       const void*, Layout*, void*, Layout* out, const void*, void*, size_t, cudaStream_t s) {
    double k = d->transpose_a ? a->rows : a->columns;
    return gemm(s, out->rows, out->columns, k, out->batch, a->type, d->compute == FAST_TF32);
}
