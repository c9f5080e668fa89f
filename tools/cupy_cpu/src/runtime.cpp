// CUDA runtime on the CPU: "device" memory is ordinary memory, streams run in order, everything is counted.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "counters.hpp"

namespace cupy_cpu {

static const char* const NAMES[N_COUNTERS] = {
    "launch", "gemm",   "blas",    "solver",    "sparse",    "sort",      "h2d",        "d2h",        "d2d",
    "sync",   "memset", "malloc",  "compile",   "h2d_bytes", "d2h_bytes", "d2d_bytes",  "moved_bytes",
    "live_bytes", "peak_bytes",
};

static long long counters[N_COUNTERS];
static std::map<std::string, long long> kernel_counts;
struct Allocation {
  size_t bytes;
  int device;
};

static std::map<char*, Allocation> allocations;
static thread_local int current_device = 0;
static std::recursive_mutex lock;
static void (*event_callback)(const char*) = nullptr;
static void (*missing_callback)(const char*) = nullptr;

using Guard = std::lock_guard<std::recursive_mutex>;

void bump(Counter counter, long long by) {
  Guard guard(lock);
  counters[counter] += by;
}

static void report(Counter counter) {
  if (event_callback) event_callback(NAMES[counter]);
}

void count_sync() {
  bump(SYNC);
  report(SYNC);
}

void count_d2h(size_t bytes) {
  bump(D2H);
  bump(D2H_BYTES, bytes);
  report(D2H);
}

void count_read_back(size_t bytes) {
  count_d2h(bytes);
  count_sync();
}

void count_kernel(const char* name) {
  Guard guard(lock);
  counters[LAUNCH]++;
  kernel_counts[name]++;
}

static int allocate(void** pointer, size_t bytes) {
  const size_t padded = (bytes + 511) / 256 * 256;
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, padded)) return 2;  // cudaErrorMemoryAllocation
  memset(memory, 0xAB, padded);                        // poison: reading uninitialised memory must show
  *pointer = memory;
  Guard guard(lock);
  allocations[static_cast<char*>(memory)] = {bytes, current_device};
  counters[MALLOC]++;
  counters[LIVE_BYTES] += bytes;
  if (counters[LIVE_BYTES] > counters[PEAK_BYTES]) counters[PEAK_BYTES] = counters[LIVE_BYTES];
  return 0;
}

static int release(void* pointer) {
  Guard guard(lock);
  const auto found = allocations.find(static_cast<char*>(pointer));
  if (found == allocations.end()) return 0;
  counters[LIVE_BYTES] -= found->second.bytes;
  allocations.erase(found);
  free(pointer);
  return 0;
}

// The device in whose memory the address is; -1: in none.
int device_of(const void* pointer) {
  Guard guard(lock);
  char* const address = static_cast<char*>(const_cast<void*>(pointer));
  auto next = allocations.upper_bound(address);
  if (next == allocations.begin()) return -1;
  --next;
  return address < next->first + next->second.bytes ? next->second.device : -1;
}

static bool on_device(const void* pointer) { return device_of(pointer) >= 0; }

void check_device(const void* pointer, const char* function) {
  const int device = device_of(pointer);
  if (device < 0 || device == current_device) return;
  fprintf(stderr, "\ncupy_cpu: %s on device %d was given memory of device %d. Aborting.\n", function, current_device, device);
  abort();
}

enum CopyKind { HostToHost, HostToDevice, DeviceToHost, DeviceToDevice, Default };

static int copy(void* to, const void* from, size_t bytes, int kind) {
  if (kind == Default)
    kind = on_device(to) ? (on_device(from) ? DeviceToDevice : HostToDevice)
                         : (on_device(from) ? DeviceToHost : HostToHost);
  if (kind == HostToDevice) {
    bump(H2D);
    bump(H2D_BYTES, bytes);
  } else if (kind == DeviceToHost) {
    count_d2h(bytes);
  } else if (kind == DeviceToDevice) {
    bump(D2D);
    bump(D2D_BYTES, bytes);
  }
  memmove(to, from, bytes);
  return 0;
}

static int fill(void* pointer, int value, size_t bytes) {
  bump(MEMSET);
  memset(pointer, value, bytes);
  return 0;
}

}  // namespace cupy_cpu

using namespace cupy_cpu;

extern "C" {

// ---- interface to cupy_cpu.py

long long cupy_cpu_get(const char* name) {
  for (int i = 0; i < N_COUNTERS; i++)
    if (!strcmp(name, NAMES[i])) return counters[i];
  return -1;
}

// "name<TAB>launches" lines
const char* cupy_cpu_kernels() {
  static std::string text;
  Guard guard(lock);
  text.clear();
  for (const auto& entry : kernel_counts) text += entry.first + "\t" + std::to_string(entry.second) + "\n";
  return text.c_str();
}

// Called with "d2h" or "sync" at each such event, so that the Python side can note where it came from.
void cupy_cpu_on_event(void (*callback)(const char*)) { event_callback = callback; }

// Called with the name of a function that is not emulated, just before the process aborts.
void cupy_cpu_on_missing(void (*callback)(const char*)) { missing_callback = callback; }

void cupy_cpu_missing(const char* name) {
  fprintf(stderr, "\ncupy_cpu: NOT EMULATED: %s (see README.md of the rig, section Limits). Aborting.\n", name);
  fflush(stderr);
  if (missing_callback) missing_callback(name);
  abort();
}

// ---- errors and versions

const char* cudaGetErrorName(int error) { return error == 0 ? "cudaSuccess" : "cudaError"; }
const char* cudaGetErrorString(int error) {
  return error == 0 ? "no error" : error == 2 ? "out of memory" : "error of the CPU rig";
}
int cudaGetLastError() { return 0; }
int cudaDriverGetVersion(int* version) { return *version = 12090, 0; }
int cudaRuntimeGetVersion(int* version) { return *version = 12090, 0; }
int cufftGetVersion(int* version) { return *version = 11400, 0; }
int ncclGetVersion(int* version) { return *version = 0, 0; }
size_t cutensorGetVersion() { return 0; }

// ---- devices with the numbers of an A100, which cannot read the memory of each other

static int n_devices() {
  const char* text = getenv("CUPY_CPU_DEVICES");
  return text ? atoi(text) : 2;
}

int cudaGetDevice(int* device) { return *device = current_device, 0; }
int cudaGetDeviceCount(int* count) { return *count = n_devices(), 0; }
int cudaSetDevice(int device) {
  if (device < 0 || device >= n_devices()) return 101;  // cudaErrorInvalidDevice
  return current_device = device, 0;
}
int cudaGetDeviceProperties(void*, int) { return 0; }  // filled on CuPy's side
int cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, 0; }
int cudaDeviceGetPCIBusId(char* id, int length, int device) { return snprintf(id, length, "0000:0%d:00.0", device), 0; }

int cudaDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 1: *value = 1024; break;    // threads per block
    case 8: *value = 49152; break;   // shared memory per block
    case 10: *value = 32; break;     // warp size
    case 12: *value = 65536; break;  // registers per block
    case 16: *value = 108; break;    // multiprocessors
    case 75: *value = 8; break;      // compute capability, major
    case 76: *value = 0; break;      // compute capability, minor
    case 115: *value = 0; break;     // no memory pools: CuPy uses its own
    default: *value = 1;
  }
  return 0;
}

int cudaDeviceSynchronize() { return count_sync(), 0; }

// ---- memory

int cudaMalloc(void** pointer, size_t bytes) { return allocate(pointer, bytes); }
int cudaMallocAsync(void** pointer, size_t bytes, void*) { return allocate(pointer, bytes); }
int cudaMallocManaged(void** pointer, size_t bytes, unsigned) { return allocate(pointer, bytes); }
int cudaFree(void* pointer) { return release(pointer); }
int cudaFreeAsync(void* pointer, void*) { return release(pointer); }
int cudaHostAlloc(void** pointer, size_t bytes, unsigned) { return posix_memalign(pointer, 256, bytes ? bytes : 1); }
int cudaFreeHost(void* pointer) { return free(pointer), 0; }
int cudaHostRegister(void*, size_t, unsigned) { return 0; }
int cudaHostUnregister(void*) { return 0; }
int cudaMemAdvise(const void*, size_t, int, int) { return 0; }
int cudaMemPrefetchAsync(const void*, size_t, int, void*) { return 0; }

int cudaMemGetInfo(size_t* available, size_t* total) {
  *total = 80ull << 30;
  *available = *total - counters[LIVE_BYTES];
  return 0;
}

// The stub's own struct: device, device pointer, host pointer.
struct PointerAttributes {
  int device;
  void* device_pointer;
  void* host_pointer;
};

int cudaPointerGetAttributes(PointerAttributes* attributes, void* pointer) {
  const int device = device_of(pointer);
  *attributes = {device < 0 ? 0 : device, device < 0 ? nullptr : pointer, device < 0 ? pointer : nullptr};
  return 0;
}

int cudaMemcpy(void* to, const void* from, size_t bytes, int kind) {
  copy(to, from, bytes, kind);
  return count_sync(), 0;
}
int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, void*) { return copy(to, from, bytes, kind); }

int cudaMemcpy2DAsync(char* to, size_t to_pitch, const char* from, size_t from_pitch, size_t width, size_t height,
                      int kind, void*) {
  bump(kind == HostToDevice ? H2D : D2D);
  if (kind == DeviceToHost) count_d2h(width * height);
  for (size_t row = 0; row < height; row++) memmove(to + row * to_pitch, from + row * from_pitch, width);
  return 0;
}

int cudaMemset(void* pointer, int value, size_t bytes) { return fill(pointer, value, bytes); }
int cudaMemsetAsync(void* pointer, int value, size_t bytes, void*) { return fill(pointer, value, bytes); }

// ---- streams and events: everything is already finished when a call returns

int cudaStreamCreate(void** stream) { return *stream = malloc(8), 0; }
int cudaStreamCreateWithFlags(void** stream, unsigned) { return *stream = malloc(8), 0; }
int cudaStreamCreateWithPriority(void** stream, unsigned, int) { return *stream = malloc(8), 0; }
int cudaStreamDestroy(void* stream) { return free(stream), 0; }
int cudaStreamSynchronize(void*) { return count_sync(), 0; }
int cudaStreamQuery(void*) { return 0; }
int cudaStreamWaitEvent(void*, void*, unsigned) { return 0; }
int cudaStreamIsCapturing(void*, int* status) { return *status = 0, 0; }
int cudaStreamGetFlags(void*, unsigned* flags) { return *flags = 0, 0; }
int cudaStreamGetPriority(void*, int* priority) { return *priority = 0, 0; }

int cudaStreamAddCallback(void* stream, void (*callback)(void*, int, void*), void* data, unsigned) {
  return callback(stream, 0, data), 0;
}
int cudaLaunchHostFunc(void*, void (*function)(void*), void* data) { return function(data), 0; }

int cudaEventCreate(void** event) { return *event = malloc(8), 0; }
int cudaEventCreateWithFlags(void** event, unsigned) { return *event = malloc(8), 0; }
int cudaEventDestroy(void* event) { return free(event), 0; }
int cudaEventRecord(void*, void*) { return 0; }
int cudaEventQuery(void*) { return 0; }
int cudaEventSynchronize(void*) { return count_sync(), 0; }
int cudaEventElapsedTime(float* milliseconds, void*, void*) { return *milliseconds = 0, 0; }  // no speed here

}  // extern "C"
