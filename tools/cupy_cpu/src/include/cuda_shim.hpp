// Included before every kernel source: the part of CUDA C++ that kernels use, on the CPU.
//
// A kernel without barriers runs as plain loops over blocks and threads. A kernel with barriers or warp shuffles
// runs each block as fibers (ucontext), one per thread, which take turns at every barrier. Threads run in order and
// one at a time, so atomics need no locking; races between threads do not show here.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "vector_types.h"

static dim3 blockIdx, blockDim, gridDim, threadIdx;
static const int warpSize = 32;

#undef __global__
#undef __device__
#undef __host__
#undef __constant__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __align__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

namespace emu {

constexpr size_t STACK_BYTES = 64 * 1024;

enum Wait { RUNNING, AT_BLOCK_BARRIER, AT_WARP_BARRIER };

struct Fiber {
  ucontext_t context;
  dim3 thread;
  Wait wait = RUNNING;
  bool done = false;
};

static std::vector<Fiber>* fibers;
static int current;                     // index of the running fiber = linear thread index in the block
static ucontext_t scheduler;
static char* shared;                    // dynamic shared memory of the running block
static uint64_t warp_slots[64][32][2];  // values in flight in a shuffle, by warp and lane
static void (*kernel_call)(void**);
static void** kernel_arguments;

inline void wait(Wait kind) {
  Fiber& fiber = (*fibers)[current];
  fiber.wait = kind;
  swapcontext(&fiber.context, &scheduler);
  threadIdx = (*fibers)[current].thread;
}

static void fiber_main() {
  kernel_call(kernel_arguments);
  (*fibers)[current].done = true;
  swapcontext(&(*fibers)[current].context, &scheduler);
}

// Call a kernel with arguments given as an array of pointers, as cuLaunchKernel receives them.
template <class... A, size_t... I>
void call_with(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*(typename std::remove_reference<A>::type*)arguments[I]...);
}
template <class... A>
void call(void (*kernel)(A...), void** arguments) {
  call_with(kernel, arguments, std::index_sequence_for<A...>());
}

// The memory that a launch touches: each array of CuPy once, repeated elements once, and of arrays that are only
// indexed (`raw` arguments) no more elements than the kernel's loop has. Plain pointers have no extent here.
template <class T>
auto elements(const T& array, int) -> decltype(array.strides(), size_t()) {
  size_t count = 1;
  for (int i = 0; i < T::ndim; i++)
    if (array.strides()[i] != 0) count *= array.shape()[i];
  return count;
}
template <class T>
size_t elements(const T&, long) {
  return 0;
}
template <class T>
auto loop(const T& indexer, int) -> decltype(indexer.size(), size_t()) {
  return elements(indexer, 0) ? 0 : indexer.size();
}
template <class T>
size_t loop(const T&, long) {
  return 0;
}
template <class T>
auto item(const T& array, int) -> decltype(array.strides(), size_t()) {
  return sizeof(array[ptrdiff_t(0)]);
}
template <class T>
size_t item(const T&, long) {
  return 0;
}
template <class... A, size_t... I>
size_t bytes_with(void (*)(A...), void** arguments, std::index_sequence<I...>) {
  size_t longest = 0, bytes = 0;
  for (size_t n : {size_t(0), loop(*(typename std::remove_reference<A>::type*)arguments[I], 0)...})
    longest = std::max(longest, n);
  const size_t limit = longest ? longest : ~size_t(0);
  for (size_t part : {size_t(0), std::min(limit, elements(*(typename std::remove_reference<A>::type*)arguments[I], 0)) *
                                     item(*(typename std::remove_reference<A>::type*)arguments[I], 0)...})
    bytes += part;
  return bytes;
}
template <class... A>
size_t bytes(void (*kernel)(A...), void** arguments) {
  return bytes_with(kernel, arguments, std::index_sequence_for<A...>());
}

// Let every fiber run to its next barrier, release the barrier, repeat until all are done.
inline void run_block(std::vector<Fiber>& block) {
  const int n = block.size();
  for (;;) {
    for (current = 0; current < n; current++) {
      Fiber& fiber = block[current];
      if (fiber.done || fiber.wait != RUNNING) continue;
      threadIdx = fiber.thread;
      swapcontext(&scheduler, &fiber.context);
    }
    // No fiber can run now. Warp barriers go first: each has all its participants.
    int alive = 0, at_block_barrier = 0;
    bool released = false;
    for (Fiber& fiber : block) {
      if (fiber.done) continue;
      alive++;
      if (fiber.wait == AT_BLOCK_BARRIER) at_block_barrier++;
      if (fiber.wait == AT_WARP_BARRIER) {
        fiber.wait = RUNNING;
        released = true;
      }
    }
    if (!alive) return;
    if (released) continue;
    if (at_block_barrier != alive) {
      std::fprintf(stderr, "cupy_cpu: threads of a block wait at different barriers\n");
      std::abort();
    }
    for (Fiber& fiber : block) fiber.wait = RUNNING;
  }
}

inline void run(void (*call)(void**), const unsigned* grid, const unsigned* block, size_t shared_bytes,
                void** arguments, bool with_fibers, bool grid_stride) {
  kernel_call = call;
  kernel_arguments = arguments;
  if (grid_stride) {  // a loop over all elements: one thread does it all
    gridDim = blockDim = dim3(1, 1, 1);
    blockIdx = threadIdx = dim3(0, 0, 0);
    call(arguments);
    return;
  }
  gridDim = dim3(grid[0], grid[1], grid[2]);
  blockDim = dim3(block[0], block[1], block[2]);
  const int n = block[0] * block[1] * block[2];
  std::vector<char> shared_memory(shared_bytes + 256);
  shared = shared_memory.data();
  std::unique_ptr<char[]> stacks(with_fibers ? new char[n * STACK_BYTES] : nullptr);

  for (unsigned z = 0; z < grid[2]; z++)
    for (unsigned y = 0; y < grid[1]; y++)
      for (unsigned x = 0; x < grid[0]; x++) {
        blockIdx = dim3(x, y, z);
        std::memset(shared, 0xAB, shared_memory.size());  // poison: shared memory starts undefined
        std::vector<Fiber> block_fibers(with_fibers ? n : 0);
        for (int i = 0; i < n; i++) {
          const dim3 thread(i % block[0], (i / block[0]) % block[1], i / (block[0] * block[1]));
          if (!with_fibers) {
            threadIdx = thread;
            call(arguments);
            continue;
          }
          Fiber& fiber = block_fibers[i];
          fiber.thread = thread;
          getcontext(&fiber.context);
          fiber.context.uc_stack.ss_sp = &stacks[i * STACK_BYTES];
          fiber.context.uc_stack.ss_size = STACK_BYTES;
          fiber.context.uc_link = &scheduler;
          makecontext(&fiber.context, fiber_main, 0);
        }
        if (with_fibers) {
          fibers = &block_fibers;
          run_block(block_fibers);
        }
      }
}

// Every lane publishes its value, then reads the value of the source lane.
template <class T>
T shuffle(T value, int source_lane) {
  static_assert(sizeof(T) <= 16, "a shuffle moves at most 16 bytes");
  const int warp = current / 32, lane = current % 32;
  std::memcpy(&warp_slots[warp][lane], &value, sizeof(T));
  wait(AT_WARP_BARRIER);
  T result = value;
  std::memcpy((void*)&result, &warp_slots[warp][source_lane & 31], sizeof(T));
  wait(AT_WARP_BARRIER);
  return result;
}

}  // namespace emu

// ---- barriers, fences, shuffles

#define __syncthreads() emu::wait(emu::AT_BLOCK_BARRIER)
#define __syncwarp(...) emu::wait(emu::AT_WARP_BARRIER)
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)

template <class T>
T __shfl_down_sync(unsigned, T value, int delta, int width = 32) {
  const int lane = emu::current % 32;
  return emu::shuffle(value, lane % width + delta < width ? lane + delta : lane);
}
template <class T>
T __shfl_up_sync(unsigned, T value, int delta, int width = 32) {
  const int lane = emu::current % 32;
  return emu::shuffle(value, lane % width - delta >= 0 ? lane - delta : lane);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask, int = 32) {
  return emu::shuffle(value, (emu::current % 32) ^ mask);
}
template <class T>
T __shfl_sync(unsigned, T value, int source, int width = 32) {
  const int lane = emu::current % 32;
  return emu::shuffle(value, lane - lane % width + source % width);
}

// ---- atomics (threads run one at a time)

template <class T, class U>
T atomicAdd(T* p, U v) {
  const T old = *p;
  *p = old + (T)v;
  return old;
}
template <class T, class U>
T atomicSub(T* p, U v) {
  const T old = *p;
  *p = old - (T)v;
  return old;
}
template <class T, class U>
T atomicMax(T* p, U v) {
  const T old = *p;
  if ((T)v > old) *p = v;
  return old;
}
template <class T, class U>
T atomicMin(T* p, U v) {
  const T old = *p;
  if ((T)v < old) *p = v;
  return old;
}
template <class T, class U>
T atomicExch(T* p, U v) {
  const T old = *p;
  *p = v;
  return old;
}
template <class T, class U>
T atomicOr(T* p, U v) {
  const T old = *p;
  *p = old | v;
  return old;
}
template <class T, class U>
T atomicAnd(T* p, U v) {
  const T old = *p;
  *p = old & v;
  return old;
}
template <class T, class U>
T atomicXor(T* p, U v) {
  const T old = *p;
  *p = old ^ v;
  return old;
}
template <class T, class U, class V>
T atomicCAS(T* p, U compare, V v) {
  const T old = *p;
  if (old == (T)compare) *p = v;
  return old;
}

// ---- bits

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return ((unsigned long long)a * b) >> 32; }

template <class T>
T __ldg(const T* p) {
  return *p;
}

namespace emu {
template <class To, class From>
To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
}  // namespace emu

inline unsigned __float_as_uint(float x) { return emu::bits<unsigned>(x); }
inline int __float_as_int(float x) { return emu::bits<int>(x); }
inline float __uint_as_float(unsigned x) { return emu::bits<float>(x); }
inline float __int_as_float(int x) { return emu::bits<float>(x); }
inline long long __double_as_longlong(double x) { return emu::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emu::bits<double>(x); }

// ---- half precision, as bits

// Nearest half, ties to even. The scaling by powers of two makes the float unit do the rounding.
inline unsigned short __float2half_rn(float x) {
  const unsigned sign = __float_as_uint(x) >> 16 & 0x8000u;
  const float magnitude = std::fabs(x);
  if (std::isnan(x)) return sign | 0x7e00u;
  if (magnitude >= 65520.0f) return sign | 0x7c00u;                                   // rounds to infinity
  if (magnitude < 6.103515625e-05f)                                                   // subnormal: units of 2⁻²⁴
    return sign | (unsigned)std::nearbyint(magnitude * 16777216.0f);
  const unsigned bits = __float_as_uint(magnitude);
  const unsigned rounded = bits + 0xfffu + (bits >> 13 & 1u);                         // 13 bits are dropped
  return sign | ((rounded >> 13) - (112u << 10));
}

inline float __half2float(unsigned short h) {
  const float sign = h & 0x8000u ? -1.0f : 1.0f;
  const unsigned exponent = h >> 10 & 0x1fu, fraction = h & 0x3ffu;
  if (exponent == 0) return sign * fraction / 16777216.0f;
  if (exponent == 31) return fraction ? std::numeric_limits<float>::quiet_NaN() : sign * INFINITY;
  return sign * __uint_as_float((exponent + 112u) << 23 | fraction << 13);
}

template <class Half>
unsigned short __half_as_ushort(const Half& h) {
  unsigned short x;
  static_assert(sizeof x == sizeof h, "");
  std::memcpy(&x, &h, sizeof x);
  return x;
}
struct half;                             // CuPy's float16.cuh defines it; the body that follows
half __ushort_as_half(unsigned short);  // is added after a kernel that includes that header

// ---- mathematics that the C++ library does not put in the global namespace

using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

#define EMU_MIN_MAX(A, B, R)                                      \
  inline R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; }    \
  inline R max(A a, B b) { return (R)a > (R)b ? (R)a : (R)b; }
EMU_MIN_MAX(bool, bool, bool)
EMU_MIN_MAX(int, int, int)
EMU_MIN_MAX(unsigned, unsigned, unsigned)
EMU_MIN_MAX(unsigned, int, unsigned)
EMU_MIN_MAX(int, unsigned, unsigned)
EMU_MIN_MAX(long, long, long)
EMU_MIN_MAX(long, int, long)
EMU_MIN_MAX(int, long, long)
EMU_MIN_MAX(unsigned long, unsigned long, unsigned long)
EMU_MIN_MAX(long long, long long, long long)
EMU_MIN_MAX(long long, int, long long)
EMU_MIN_MAX(int, long long, long long)
EMU_MIN_MAX(long, long long, long long)
EMU_MIN_MAX(long long, long, long long)
EMU_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
EMU_MIN_MAX(float, float, float)
EMU_MIN_MAX(double, double, double)
EMU_MIN_MAX(float, double, double)
EMU_MIN_MAX(double, float, double)

inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float rsqrt(float x) { return 1 / std::sqrt(x); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double sinpi(double x) { return std::sin(M_PI * x); }
inline double cospi(double x) { return std::cos(M_PI * x); }
inline float sinpi(float x) { return std::sin((float)M_PI * x); }
inline float sinpif(float x) { return std::sin((float)M_PI * x); }
