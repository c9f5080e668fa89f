// cuBLAS on the CPU, float32 and float64. Matrices are column-major, as in cuBLAS and in BLAS.
#include <algorithm>
#include <cmath>
#include <vector>

#include "blas.hpp"
#include "counters.hpp"

using namespace cupy_cpu;

namespace {

constexpr int NOT_SUPPORTED = 15;  // CUBLAS_STATUS_NOT_SUPPORTED

struct Handle {
  int scalars_on_device = 0;  // pointer mode
  int math_mode = 0;
  void* stream = nullptr;
};

Handle& handle_of(void* handle) { return *static_cast<Handle*>(handle); }

// C = alpha op(A) op(B) + beta C
template <class T>
void gemm(int trans_a, int trans_b, Int m, Int n, Int k, const T* alpha, const T* a, Int lda, const T* b, Int ldb,
          const T* beta, T* c, Int ldc) {
  using Routine = void (*)(const char*, const char*, const Int*, const Int*, const Int*, const T*, const T*,
                           const Int*, const T*, const Int*, const T*, T*, const Int*, size_t, size_t);
  static const Routine routine = lapack<T, Routine>("gemm");
  for (const T* operand : {a, b, static_cast<const T*>(c)}) check_device(operand, "gemm");
  bump(MOVED_BYTES, sizeof(T) * (m * k + k * n + m * n * (*beta == 0 ? 1 : 2)));
  routine(operation(trans_a), operation(trans_b), &m, &n, &k, alpha, a, &lda, b, &ldb, beta, c, &ldc, 1, 1);
}

// The same for type-erased operands, repeated over a batch with fixed strides.
template <class T>
void gemm_batch(int trans_a, int trans_b, Int m, Int n, Int k, void* alpha, void* a, Int lda, Int stride_a, void* b,
                Int ldb, Int stride_b, void* beta, void* c, Int ldc, Int stride_c, int batch) {
  for (Int i = 0; i < batch; i++)
    gemm<T>(trans_a, trans_b, m, n, k, static_cast<T*>(alpha), static_cast<T*>(a) + i * stride_a, lda,
            static_cast<T*>(b) + i * stride_b, ldb, static_cast<T*>(beta), static_cast<T*>(c) + i * stride_c, ldc);
}

int gemm_ex(int trans_a, int trans_b, int m, int n, int k, void* alpha, void* a, int type_a, int lda, Int stride_a,
            void* b, int type_b, int ldb, Int stride_b, void* beta, void* c, int type_c, int ldc, Int stride_c,
            int batch) {
  if (type_a != type_b || type_a != type_c) return NOT_SUPPORTED;
  bump(GEMM);
  if (type_a == REAL_64)
    gemm_batch<double>(trans_a, trans_b, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c,
                       batch);
  else if (type_a == REAL_32)
    gemm_batch<float>(trans_a, trans_b, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c,
                      batch);
  else
    return NOT_SUPPORTED;
  return 0;
}

// A scalar result: with the pointer mode "host" the call copies it back and waits.
template <class T, class V>
int give(void* handle, T* result, V value) {
  *result = static_cast<T>(value);
  bump(BLAS);
  if (!handle_of(handle).scalars_on_device) count_read_back(sizeof(T));
  return 0;
}

template <class T>
int gemv(int trans, Int m, Int n, const T* alpha, const T* a, Int lda, const T* x, Int incx, const T* beta, T* y,
         Int incy) {
  bump(BLAS);
  for (const T* operand : {a, x, static_cast<const T*>(y)}) check_device(operand, "gemv");
  bump(MOVED_BYTES, sizeof(T) * (m * n + m + n));
  const Int length = trans ? n : m;
  std::vector<T> product(length, 0);
  for (Int j = 0; j < n; j++)
    for (Int i = 0; i < m; i++)
      if (trans)
        product[j] += a[i + j * lda] * x[i * incx];
      else
        product[i] += a[i + j * lda] * x[j * incx];
  for (Int i = 0; i < length; i++) y[i * incy] = *alpha * product[i] + (*beta == 0 ? 0 : *beta * y[i * incy]);
  return 0;
}

template <class T>
void trsm(int side, int uplo, int trans, int diag, Int m, Int n, const T* alpha, const T* a, Int lda, T* b, Int ldb) {
  using Routine = void (*)(const char*, const char*, const char*, const char*, const Int*, const Int*, const T*,
                           const T*, const Int*, T*, const Int*, size_t, size_t, size_t, size_t);
  lapack<T, Routine>("trsm")(side_mode(side), fill_mode(uplo), operation(trans), diag_type(diag), &m, &n, alpha, a,
                             &lda, b, &ldb, 1, 1, 1, 1);
}

template <class T>
int syrk(int uplo, int trans, Int n, Int k, const T* alpha, const T* a, Int lda, const T* beta, T* c, Int ldc) {
  using Routine = void (*)(const char*, const char*, const Int*, const Int*, const T*, const T*, const Int*, const T*,
                           T*, const Int*, size_t, size_t);
  lapack<T, Routine>("syrk")(fill_mode(uplo), operation(trans), &n, &k, alpha, a, &lda, beta, c, &ldc, 1, 1);
  return bump(GEMM), 0;
}

// C = alpha op(A) + beta op(B)
template <class T>
int geam(int trans_a, int trans_b, Int m, Int n, const T* alpha, const T* a, Int lda, const T* beta, const T* b,
         Int ldb, T* c, Int ldc) {
  bump(BLAS);
  for (Int j = 0; j < n; j++)
    for (Int i = 0; i < m; i++) {
      T sum = 0;
      if (*alpha != 0) sum += *alpha * (trans_a ? a[j + i * lda] : a[i + j * lda]);
      if (*beta != 0) sum += *beta * (trans_b ? b[j + i * ldb] : b[i + j * ldb]);
      c[i + j * ldc] = sum;
    }
  return 0;
}

// C = A diag(x) (side right) or diag(x) A (side left)
template <class T>
int dgmm(int side, Int m, Int n, const T* a, Int lda, const T* x, Int incx, T* c, Int ldc) {
  bump(BLAS);
  for (Int j = 0; j < n; j++)
    for (Int i = 0; i < m; i++) c[i + j * ldc] = a[i + j * lda] * x[(side ? j : i) * incx];
  return 0;
}

}  // namespace

extern "C" {

int cublasCreate(void** handle) { return *handle = new Handle, 0; }
int cublasDestroy(void* handle) { return delete &handle_of(handle), 0; }
int cublasGetVersion(void*, int* version) { return *version = 120900, 0; }
int cublasGetPointerMode(void* handle, int* mode) { return *mode = handle_of(handle).scalars_on_device, 0; }
int cublasSetPointerMode(void* handle, int mode) { return handle_of(handle).scalars_on_device = mode, 0; }
int cublasGetMathMode(void* handle, int* mode) { return *mode = handle_of(handle).math_mode, 0; }
int cublasSetMathMode(void* handle, int mode) { return handle_of(handle).math_mode = mode, 0; }
int cublasGetStream(void* handle, void** stream) { return *stream = handle_of(handle).stream, 0; }
int cublasSetStream(void* handle, void* stream) { return handle_of(handle).stream = stream, 0; }

int cublasGemmEx(void*, int ta, int tb, int m, int n, int k, void* alpha, void* a, int type_a, int lda, void* b,
                 int type_b, int ldb, void* beta, void* c, int type_c, int ldc, int, int) {
  return gemm_ex(ta, tb, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb, 0, beta, c, type_c, ldc, 0, 1);
}
int cublasGemmEx_v11(void*, int ta, int tb, int m, int n, int k, void* alpha, void* a, int type_a, int lda, void* b,
                     int type_b, int ldb, void* beta, void* c, int type_c, int ldc, int, int) {
  return gemm_ex(ta, tb, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb, 0, beta, c, type_c, ldc, 0, 1);
}
int cublasGemmStridedBatchedEx(void*, int ta, int tb, int m, int n, int k, void* alpha, void* a, int type_a, int lda,
                               long long sa, void* b, int type_b, int ldb, long long sb, void* beta, void* c,
                               int type_c, int ldc, long long sc, int batch, int, int) {
  return gemm_ex(ta, tb, m, n, k, alpha, a, type_a, lda, sa, b, type_b, ldb, sb, beta, c, type_c, ldc, sc, batch);
}
int cublasGemmStridedBatchedEx_v11(void*, int ta, int tb, int m, int n, int k, void* alpha, void* a, int type_a,
                                   int lda, long long sa, void* b, int type_b, int ldb, long long sb, void* beta,
                                   void* c, int type_c, int ldc, long long sc, int batch, int, int) {
  return gemm_ex(ta, tb, m, n, k, alpha, a, type_a, lda, sa, b, type_b, ldb, sb, beta, c, type_c, ldc, sc, batch);
}

// One set of functions for each of S (float) and D (double).
#define REAL_BLAS(P, T)                                                                                               \
  int cublas##P##gemm(void*, int ta, int tb, int m, int n, int k, T* alpha, T* a, int lda, T* b, int ldb, T* beta,    \
                      T* c, int ldc) {                                                                                \
    bump(GEMM);                                                                                                       \
    return gemm<T>(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc), 0;                                          \
  }                                                                                                                   \
  int cublas##P##gemmBatched(void*, int ta, int tb, int m, int n, int k, T* alpha, T** a, int lda, T** b, int ldb,    \
                             T* beta, T** c, int ldc, int batch) {                                                    \
    bump(GEMM);                                                                                                       \
    for (int i = 0; i < batch; i++) gemm<T>(ta, tb, m, n, k, alpha, a[i], lda, b[i], ldb, beta, c[i], ldc);           \
    return 0;                                                                                                         \
  }                                                                                                                   \
  int cublas##P##gemmStridedBatched(void*, int ta, int tb, int m, int n, int k, T* alpha, T* a, int lda,              \
                                    long long sa, T* b, int ldb, long long sb, T* beta, T* c, int ldc, long long sc,  \
                                    int batch) {                                                                      \
    bump(GEMM);                                                                                                       \
    return gemm_batch<T>(ta, tb, m, n, k, alpha, a, lda, sa, b, ldb, sb, beta, c, ldc, sc, batch), 0;                 \
  }                                                                                                                   \
  int cublas##P##dot(void* handle, int n, T* x, int incx, T* y, int incy, T* result) {                                \
    T sum = 0;                                                                                                        \
    for (Int i = 0; i < n; i++) sum += x[i * incx] * y[i * incy];                                                     \
    return give(handle, result, sum);                                                                                 \
  }                                                                                                                   \
  int cublas##P##nrm2(void* handle, int n, T* x, int incx, T* result) {                                               \
    double sum = 0;                                                                                                   \
    for (Int i = 0; i < n; i++) sum += (double)x[i * incx] * x[i * incx];                                             \
    return give(handle, result, std::sqrt(sum));                                                                      \
  }                                                                                                                   \
  int cublas##P##asum(void* handle, int n, T* x, int incx, T* result) {                                               \
    T sum = 0;                                                                                                        \
    for (Int i = 0; i < n; i++) sum += std::fabs(x[i * incx]);                                                        \
    return give(handle, result, sum);                                                                                 \
  }                                                                                                                   \
  int cublas##P##axpy(void*, int n, T* alpha, T* x, int incx, T* y, int incy) {                                       \
    for (Int i = 0; i < n; i++) y[i * incy] += *alpha * x[i * incx];                                                  \
    return bump(BLAS), 0;                                                                                             \
  }                                                                                                                   \
  int cublas##P##scal(void*, int n, T* alpha, T* x, int incx) {                                                       \
    for (Int i = 0; i < n; i++) x[i * incx] *= *alpha;                                                                \
    return bump(BLAS), 0;                                                                                             \
  }                                                                                                                   \
  int cublas##P##ger(void*, int m, int n, T* alpha, T* x, int incx, T* y, int incy, T* a, int lda) {                  \
    for (Int j = 0; j < n; j++)                                                                                       \
      for (Int i = 0; i < m; i++) a[i + j * lda] += *alpha * x[i * incx] * y[j * incy];                               \
    return bump(BLAS), 0;                                                                                             \
  }                                                                                                                   \
  int cublas##P##gemv(void*, int trans, int m, int n, T* alpha, T* a, int lda, T* x, int incx, T* beta, T* y,         \
                      int incy) {                                                                                     \
    return gemv<T>(trans, m, n, alpha, a, lda, x, incx, beta, y, incy);                                               \
  }                                                                                                                   \
  int cublas##P##trsm(void*, int side, int uplo, int trans, int diag, int m, int n, T* alpha, T* a, int lda, T* b,    \
                      int ldb) {                                                                                      \
    bump(BLAS);                                                                                                       \
    return trsm<T>(side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb), 0;                                          \
  }                                                                                                                   \
  int cublas##P##trsmBatched(void*, int side, int uplo, int trans, int diag, int m, int n, T* alpha, T** a, int lda,  \
                             T** b, int ldb, int batch) {                                                             \
    bump(BLAS);                                                                                                       \
    for (int i = 0; i < batch; i++) trsm<T>(side, uplo, trans, diag, m, n, alpha, a[i], lda, b[i], ldb);              \
    return 0;                                                                                                         \
  }                                                                                                                   \
  int cublas##P##syrk(void*, int uplo, int trans, int n, int k, T* alpha, T* a, int lda, T* beta, T* c, int ldc) {    \
    return syrk<T>(uplo, trans, n, k, alpha, a, lda, beta, c, ldc);                                                   \
  }                                                                                                                   \
  int cublas##P##geam(void*, int ta, int tb, int m, int n, T* alpha, T* a, int lda, T* beta, T* b, int ldb, T* c,     \
                      int ldc) {                                                                                      \
    return geam<T>(ta, tb, m, n, alpha, a, lda, beta, b, ldb, c, ldc);                                                \
  }                                                                                                                   \
  int cublas##P##dgmm(void*, int side, int m, int n, T* a, int lda, T* x, int incx, T* c, int ldc) {                  \
    return dgmm<T>(side, m, n, a, lda, x, incx, c, ldc);                                                              \
  }

REAL_BLAS(S, float)
REAL_BLAS(D, double)

}  // extern "C"
