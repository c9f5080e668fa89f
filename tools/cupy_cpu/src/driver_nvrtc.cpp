// CUDA driver and NVRTC on the CPU: a kernel's source is compiled with the host's C++ compiler against
// cuda_shim.hpp into a shared object; its path plays the part of the cubin. Compiled kernels are kept.
#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "counters.hpp"

using namespace cupy_cpu;

namespace {

using Launcher = void (*)(const unsigned* grid, const unsigned* block, size_t shared_bytes, void** arguments);

struct Module {
  void* handle;
};

using Sizer = size_t (*)(void** arguments);

struct Function {
  Launcher launch;
  Sizer bytes;
  std::string name;
};

struct Program {
  std::string source, log, shared_object;
  std::vector<std::string> name_expressions;
};

enum NvrtcResult { NVRTC_SUCCESS = 0, NVRTC_ERROR_COMPILATION = 6 };

// The rig's folder: this library is <home>/lib/libcupy_cpu.so.
std::string home() {
  Dl_info info;
  dladdr(reinterpret_cast<void*>(&home), &info);
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind("/lib/"));
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

std::string hex(size_t number) {
  char text[32];
  snprintf(text, sizeof text, "%016zx", number);
  return text;
}

// "foo<float>" is not a C identifier: the kernel is looked up by this name instead.
std::string lowered_name(const std::string& expression) {
  return "expression_" + hex(std::hash<std::string>()(expression));
}

// The only textual changes to a kernel: shared memory becomes memory that all fibers of a block see.
std::string on_host(std::string source) {
  source = std::regex_replace(
      source,
      std::regex("extern\\s+__shared__\\s+(?:(?:__align__|alignas)\\s*\\([^)]*\\)\\s*)?(\\w[\\w ]*?)\\s+(\\w+)"
                 "\\s*\\[\\s*\\]\\s*;"),
      "$1* $2 = reinterpret_cast<$1*>(emu::shared);");
  return std::regex_replace(source, std::regex("(?:static\\s+)?__shared__"), "static");
}

// A C function that starts `kernel` with an array of pointers to its arguments.
std::string launcher(const std::string& symbol, const std::string& kernel, bool fibers, bool grid_stride) {
  return "static void __emu_call_" + symbol + "(void** arguments) { emu::call(&" + kernel + ", arguments); }\n" +
         "extern \"C\" void __emu_launch_" + symbol +
         "(const unsigned* grid, const unsigned* block, size_t shared_bytes, void** arguments) {\n" +
         "  emu::run(&__emu_call_" + symbol + ", grid, block, shared_bytes, arguments, " + (fibers ? "true" : "false") +
         ", " + (grid_stride ? "true" : "false") + ");\n}\n" + "extern \"C\" size_t __emu_bytes_" + symbol +
         "(void** arguments) { return emu::bytes(&" + kernel + ", arguments); }\n";
}

std::string translate(const Program& program) {
  const std::string source = on_host(program.source);
  const bool fibers =
      contains(source, "__syncthreads") || contains(source, "__syncwarp") || contains(source, "__shfl");
  // One thread may do the work of all in CuPy's loops over elements, unless a body leaves the loop early.
  const bool grid_stride = !fibers && contains(source, "CUPY_FOR") && !contains(source, "return");

  std::string launchers;
  const std::regex kernel(
      "(template\\s*<[^>]*>\\s*)?(?:extern\\s*\"C\"\\s*)?__global__\\s+void\\s+"
      "(?:__launch_bounds__\\s*\\([^)]*\\)\\s*)?(\\w+)\\s*\\(");
  for (std::sregex_iterator match(source.begin(), source.end(), kernel), end; match != end; ++match)
    if (!(*match)[1].matched) launchers += launcher((*match)[2], (*match)[2], fibers, grid_stride);
  for (const std::string& expression : program.name_expressions)
    launchers += launcher(lowered_name(expression), expression, fibers, grid_stride);

  if (contains(source, "float16.cuh"))
    launchers += "half __ushort_as_half(unsigned short x) { return half(__half_raw{x}); }\n";
  return "#include \"" + home() + "/include/cuda_shim.hpp\"\n" + source + "\n" + launchers;
}

int compile(Program& program, const std::string& options) {
  const std::string text = translate(program);
  const std::string base = home() + "/kernels/" + hex(std::hash<std::string>()(text + options));
  program.shared_object = base + ".so";
  struct stat status;
  if (stat(program.shared_object.c_str(), &status) == 0) return NVRTC_SUCCESS;

  // Own names per process, and one thread at a time: several may compile the same kernel at once.
  static std::mutex one_at_a_time;
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  if (stat(program.shared_object.c_str(), &status) == 0) return NVRTC_SUCCESS;
  const std::string mine = base + "." + std::to_string(getpid());
  std::ofstream(mine + ".cpp") << text;
  const char* compiler = getenv("CXX");
  const std::string command = std::string(compiler ? compiler : "g++") +
                              " -std=c++17 -O1 -w -fpermissive -shared -fPIC" + options + " '" + mine + ".cpp' -o '" +
                              mine + ".so' 2> '" + mine + ".log'";
  const bool ok = system(command.c_str()) == 0 && rename((mine + ".so").c_str(), program.shared_object.c_str()) == 0;
  if (!ok) {
    std::stringstream log;
    log << std::ifstream(mine + ".log").rdbuf();
    program.log = log.str();
  }
  rename((mine + ".cpp").c_str(), (base + ".cpp").c_str());
  unlink((mine + ".log").c_str());
  return ok ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

std::map<std::string, std::string> expression_of;  // lowered name -> what the user wrote

}  // namespace

extern "C" {

int cudaGetDevice(int* device);

// ---- driver

int cuGetErrorName(int error, const char** name) { return *name = error ? "CUDA_ERROR" : "CUDA_SUCCESS", 0; }
int cuGetErrorString(int error, const char** text) { return *text = error ? "error of the CPU rig" : "no error", 0; }
int cuCtxGetCurrent(void** context) {
  int device = 0;
  cudaGetDevice(&device);
  return *context = reinterpret_cast<void*>(1L + device), 0;
}
int cuCtxSetCurrent(void*) { return 0; }
int cuCtxGetDevice(int* device) { return cudaGetDevice(device); }
int cuDevicePrimaryCtxRelease(int) { return 0; }

int cuModuleLoadData(Module** module, const char* image) {
  void* const handle = dlopen(image, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    fprintf(stderr, "cupy_cpu: cannot load a compiled kernel: %s\n", dlerror());
    return 300;
  }
  *module = new Module{handle};
  return 0;
}

int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  const auto launch = reinterpret_cast<Launcher>(dlsym(module->handle, (std::string("__emu_launch_") + name).c_str()));
  if (!launch) {
    fprintf(stderr, "cupy_cpu: no kernel named %s\n", name);
    return 500;  // CUDA_ERROR_NOT_FOUND
  }
  const auto expression = expression_of.find(name);
  const auto bytes = reinterpret_cast<Sizer>(dlsym(module->handle, (std::string("__emu_bytes_") + name).c_str()));
  *function = new Function{launch, bytes, expression == expression_of.end() ? name : expression->second};
  return 0;
}

// Address and size of a __constant__ or __device__ variable.
int cuModuleGetGlobal(void** address, size_t* bytes, Module* module, const char* name) {
  *address = dlsym(module->handle, name);
  if (!*address) return 500;
  Dl_info info;
  ElfW(Sym)* symbol = nullptr;
  dladdr1(*address, &info, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT);
  if (bytes) *bytes = symbol ? symbol->st_size : 0;
  return 0;
}

int cuModuleUnload(Module*) { return 0; }

int cuLaunchKernel(Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void*, void** arguments, void**) {
  static std::mutex one_at_a_time;  // a kernel's blockIdx, threadIdx, ... are globals of its module
  const unsigned grid[3] = {grid_x, grid_y, grid_z};
  const unsigned block[3] = {block_x, block_y, block_z};
  count_kernel(function->name.c_str());
  bump(MOVED_BYTES, function->bytes(arguments));
  std::lock_guard<std::mutex> guard(one_at_a_time);
  function->launch(grid, block, shared_bytes, arguments);
  return 0;
}

int cuFuncGetAttribute(int* value, int attribute, void*) {
  *value = attribute == 0 ? 1024 : attribute == 1 ? 0 : 32;  // threads per block, static shared bytes, the rest
  return 0;
}
int cuFuncSetAttribute(void*, int, int) { return 0; }
int cuOccupancyMaxPotentialBlockSize(int* grid, int* block, void*, void*, size_t, int) {
  return *grid = 216, *block = 128, 0;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) { return *blocks = 16, 0; }

// ---- NVRTC

const char* nvrtcGetErrorString(int error) { return error ? "NVRTC_ERROR_COMPILATION" : "NVRTC_SUCCESS"; }
int nvrtcVersion(int* major, int* minor) { return *major = 12, *minor = 9, 0; }

int nvrtcCreateProgram(Program** program, const char* source, const char*, int, const char**, const char**) {
  *program = new Program;
  (*program)->source = source;
  return 0;
}

int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return 0;
}

int nvrtcGetNumSupportedArchs(int* count) { return *count = 5, 0; }
int nvrtcGetSupportedArchs(int* archs) {
  const int supported[5] = {70, 75, 80, 86, 90};
  memcpy(archs, supported, sizeof supported);
  return 0;
}

int nvrtcAddNameExpression(Program* program, const char* expression) {
  program->name_expressions.push_back(expression);
  expression_of[lowered_name(expression)] = expression;
  return 0;
}

int nvrtcGetLoweredName(Program*, const char* expression, const char** lowered) {
  *lowered = strdup(lowered_name(expression).c_str());
  return 0;
}

int nvrtcCompileProgram(Program* program, int n_options, const char** options) {
  bump(COMPILE);
  std::string kept;  // include paths and macros; the rest (architecture, ...) means nothing here
  for (int i = 0; i < n_options; i++)
    if (!strncmp(options[i], "-I", 2) || !strncmp(options[i], "-D", 2)) kept += std::string(" '") + options[i] + "'";
  if (!contains(program->source, "__global__")) {  // CuPy probes the compiler with an empty program
    program->shared_object = "empty";
    return NVRTC_SUCCESS;
  }
  return compile(*program, kept);
}

int nvrtcGetProgramLogSize(Program* program, size_t* size) { return *size = program->log.size() + 1, 0; }
int nvrtcGetProgramLog(Program* program, char* log) { return strcpy(log, program->log.c_str()), 0; }
int nvrtcGetCUBINSize(Program* program, size_t* size) { return *size = program->shared_object.size() + 1, 0; }
int nvrtcGetCUBIN(Program* program, char* cubin) { return strcpy(cubin, program->shared_object.c_str()), 0; }
int nvrtcGetPTXSize(Program* program, size_t* size) { return nvrtcGetCUBINSize(program, size); }
int nvrtcGetPTX(Program* program, char* ptx) { return nvrtcGetCUBIN(program, ptx); }

}  // extern "C"
