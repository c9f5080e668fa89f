// Counters shared by all parts of libcupy_cpu. Everything a real GPU would charge for is counted here.
#pragma once

#include <cstddef>

namespace cupy_cpu {

enum Counter {
  LAUNCH,      // kernels started with cuLaunchKernel
  GEMM,        // matrix-matrix products (cuBLAS)
  BLAS,        // other cuBLAS calls (dot, gemv, trsm, ...)
  SOLVER,      // cuSOLVER calls and cuBLAS factorisations
  SPARSE,      // cuSPARSE calls that do work
  SORT,        // Thrust sorts
  H2D,         // copies host -> device
  D2H,         // copies device -> host
  D2D,         // copies device -> device
  SYNC,        // points where the host waits for the device
  MEMSET,      // fills
  MALLOC,      // cudaMalloc calls (after CuPy's memory pool)
  COMPILE,     // NVRTC compilations
  H2D_BYTES,
  D2H_BYTES,
  D2D_BYTES,
  MOVED_BYTES,  // that kernels and products read and write: each array once, no cache
  LIVE_BYTES,  // bytes held with cudaMalloc now
  PEAK_BYTES,  // largest LIVE_BYTES since the last reset of the peak
  N_COUNTERS
};

void bump(Counter counter, long long by = 1);

// The host waits for the device.
void count_sync();

// A device -> host copy of `bytes` bytes.
void count_d2h(size_t bytes);

// A library call that hands a number to the host: it copies and it waits.
void count_read_back(size_t bytes);

void count_kernel(const char* name);

// The device in whose memory an address is; -1: in none.
int device_of(const void* pointer);

// Stop if a library call is given memory of a device that is not current.
void check_device(const void* pointer, const char* function);

}  // namespace cupy_cpu

// Stop: CuPy called a function that the rig does not implement.
extern "C" [[noreturn]] void cupy_cpu_missing(const char* name);
