// Kernels for array/cuda.py. W is symmetric and row-major, with `stride` entries between rows.

// Each lane adds to separate bins, bins[cluster][lane], so that there are no conflicts and no atomics. The lanes are
// then summed in a fixed order, which starts at a different lane for each cluster to avoid bank conflicts.
__device__ double over_lanes(const double* bins, int c) {
  double sum = 0;
  for (int l = 0; l < 32; l++) sum += bins[c * 32 + ((l + c) & 31)];
  return sum;
}

__device__ void clear(double* bins, int n_bins, int lane) {
  for (int c = 0; c < n_bins; c++) bins[c * 32 + lane] = 0;
}

// The bin of an object in run r, -1 if it is not among the `width` bins from `first` on.
__device__ int bin_of(int label, int r, int k, int first, int width) {
  const int c = r * k + label - first;
  return label >= 0 && c >= 0 && c < width ? c : -1;
}

// (WZ)_ic = sum of w_ij over the objects j of cluster c. One warp per row i.
template <typename T>
__global__ void products(const T* w, long long stride, const short* labels, long long n, int runs, int k, int first,
                         int width, double* out) {
  extern __shared__ double shared[];
  const int lane = threadIdx.x;
  const long long i = (long long)blockIdx.x * blockDim.y + threadIdx.y;
  double* bins = shared + threadIdx.y * width * 32;
  clear(bins, width, lane);
  if (i < n)
    for (long long j = lane; j < n; j += 32) {
      const double x = w[i * stride + j];
      for (int r = 0; r < runs; r++) {
        const int c = bin_of(labels[j * runs + r], r, k, first, width);
        if (c >= 0) bins[c * 32 + lane] += x;
      }
    }
  __syncwarp();
  if (i < n)
    for (int c = lane; c < width; c += 32) out[i * runs * k + first + c] = over_lanes(bins, c);
}

// Sums over the objects j of cluster d, j != i, of (g - w_ij) and (g - w_ij)^2, with g = guess[c_i][d].
template <typename T>
__global__ void residuals(const T* w, long long stride, const short* labels, const double* guess, long long n, int k,
                          int first, int width, double* out) {
  extern __shared__ double shared[];
  const int lane = threadIdx.x;
  const long long i = (long long)blockIdx.x * blockDim.y + threadIdx.y;
  double* sums = shared + threadIdx.y * 2 * width * 32;
  double* squares = sums + width * 32;
  clear(sums, 2 * width, lane);
  const int own = i < n ? labels[i] : -1;
  if (own >= 0)
    for (long long j = lane; j < n; j += 32) {
      const int c = bin_of(labels[j], 0, k, first, width);
      if (c < 0 || j == i) continue;
      const double d = guess[own * k + first + c] - (double)w[i * stride + j];
      sums[c * 32 + lane] += d;
      squares[c * 32 + lane] += d * d;
    }
  __syncwarp();
  if (i < n)
    for (int c = lane; c < width; c += 32) {
      out[i * 2 * k + first + c] = over_lanes(sums, c);
      out[i * 2 * k + k + first + c] = over_lanes(squares, c);
    }
}

// WZ' = WZ + W (Z' - Z), where Z' differs from Z for some objects: their positions in the labels, and their places in W
// if these differ, -1 for none. By symmetry a lane reads one column of W along these rows; the warps of a block share
// the rows.
template <typename T>
__global__ void regroup(const T* w, long long stride, const long long* objects, const long long* places, int n_objects,
                        const long long* before, const long long* after, long long n, int runs, int k, int first,
                        int width, const double* wz, double* out) {
  extern __shared__ double shared[];
  const int lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y;
  const long long j = (long long)blockIdx.x * 32 + lane;
  double* bins = shared + warp * width * 32;
  clear(bins, width, lane);
  for (int m = warp; m < n_objects; m += warps) {
    const long long object = objects[m], i = places ? places[m] : object;
    if (i < 0) continue;
    const double x = j < n ? (double)w[i * stride + j] : 0.0;
    for (int r = 0; r < runs; r++) {
      const int old = before[object * runs + r], now = after[object * runs + r];
      if (old == now) continue;
      const int from = bin_of(old, r, k, first, width), to = bin_of(now, r, k, first, width);
      if (from >= 0) bins[from * 32 + lane] -= x;
      if (to >= 0) bins[to * 32 + lane] += x;
    }
  }
  __syncthreads();
  if (j < n)
    for (int c = warp; c < width; c += warps) {
      double sum = wz[j * runs * k + first + c];
      for (int v = 0; v < warps; v++) sum += shared[(v * width + c) * 32 + lane];
      out[j * runs * k + first + c] = sum;
    }
}

// A weight on the device, or else a number from the host.
__device__ double weight(const double* alpha, double value) { return alpha ? *alpha : value; }

// target = alpha past + (1 - alpha) w if both objects have a past, at source[i] and source[j] (without a source, at i
// and j), otherwise w; and the product of the result with Z if width > 0.
template <typename T>
__global__ void blend(const T* w, long long stride, const T* past, long long past_stride, T* target,
                      long long target_stride, const long long* source, const double* alpha, double value,
                      const short* labels, long long n, int k, int width, double* out) {
  extern __shared__ double shared[];
  const int lane = threadIdx.x;
  const long long i = (long long)blockIdx.x * blockDim.y + threadIdx.y;
  double* bins = shared + threadIdx.y * width * 32;
  clear(bins, width, lane);
  const T a = (T)weight(alpha, value), b = 1 - a;
  const long long from = i < n && source ? source[i] : i;
  if (i < n)
    for (long long j = lane; j < n; j += 32) {
      const long long column = source ? source[j] : j;
      T x = w[i * stride + j];
      if (from >= 0 && column >= 0) x = a * past[from * past_stride + column] + b * x;
      target[i * target_stride + j] = x;
      const int c = width > 0 ? bin_of(labels[j], 0, k, 0, width) : -1;
      if (c >= 0) bins[c * 32 + lane] += (double)x;
    }
  __syncwarp();
  if (i < n)
    for (int c = lane; c < width; c += 32) out[i * k + c] = over_lanes(bins, c);
}

// max |w_ij| and max |w_ij - w_ji| over some tiles of a row of tiles; NaN if an entry is not finite.
template <typename T>
__global__ void extremes(const T* w, long long stride, long long n, double* out) {
  __shared__ T tile[32][33];
  __shared__ double found[2][256];
  const int x = threadIdx.x, y = threadIdx.y, thread = y * 32 + x;
  const long long n_tiles = (n + 31) / 32, at = blockIdx.x;
  double largest = 0, asymmetry = 0;
  bool finite = true;
  for (long long other = at + blockIdx.y; other < n_tiles; other += gridDim.y) {
    for (int r = y; r < 32; r += 8) {
      const long long i = other * 32 + r, j = at * 32 + x;
      tile[r][x] = i < n && j < n ? w[i * stride + j] : (T)0;
    }
    __syncthreads();
    for (int r = y; r < 32; r += 8) {
      const long long i = at * 32 + r, j = other * 32 + x;
      if (i < n && j < n) {
        const T entry = w[i * stride + j], mirror = tile[x][r];
        const double a = fabs((double)entry), b = fabs((double)mirror), gap = fabs((double)(entry - mirror));
        finite = finite && isfinite(a) && isfinite(b);
        largest = fmax(largest, fmax(a, b));
        asymmetry = fmax(asymmetry, gap);
      }
    }
    __syncthreads();
  }
  found[0][thread] = finite ? largest : nan("");
  found[1][thread] = asymmetry;
  __syncthreads();
  if (thread < 2) {
    double most = 0;
    for (int t = 0; t < 256 && most == most; t++) most = found[thread][t] <= most ? most : found[thread][t];
    out[2 * (at * gridDim.y + blockIdx.y) + thread] = most;
  }
}

// An entry of the product of a blend: w + alpha (past - w), or w without a past.
__device__ double blended(const double* wz, const double* past, double alpha, long long at) {
  return past ? wz[at] + alpha * (past[at] - wz[at]) : wz[at];
}

// For each cluster c of each run: the sum of (WZ)_ic over its objects, their number, and the sum of w_ii.
// One block per cluster.
extern "C" __global__ void cluster_sums(const double* wz, const double* past, const double* alpha, double value,
                                        const double* w_ii, const long long* labels, long long n, int runs, int k,
                                        double* out) {
  __shared__ double parts[3][256];
  const int thread = threadIdx.x, bins = runs * k, r = blockIdx.x / k, c = blockIdx.x % k;
  const double a = weight(alpha, value);
  double own = 0, size = 0, diagonal = 0;
  for (long long i = thread; i < n; i += 256)
    if (labels[i * runs + r] == c) {
      own += blended(wz, past, a, i * bins + blockIdx.x);
      size += 1;
      diagonal += w_ii[i];
    }
  parts[0][thread] = own, parts[1][thread] = size, parts[2][thread] = diagonal;
  for (int half = 128; half; half /= 2) {
    __syncthreads();
    if (thread < half)
      for (int p = 0; p < 3; p++) parts[p][thread] += parts[p][thread + half];
  }
  __syncthreads();
  if (thread < 3) out[thread * bins + blockIdx.x] = parts[thread][0];
}

// The nearest centroid of each object in each run; ties go to the first. Counts: objects in each cluster, objects that
// move in each run. The sums are of integers, so their order does not matter.
extern "C" __global__ void nearest(const double* wz, const double* past, const double* alpha, double value,
                                   const double* sums, const long long* labels, long long n, int runs, int k,
                                   long long* found, unsigned char* moves, int* counts) {
  extern __shared__ int tally[];
  const double a = weight(alpha, value);
  const int bins = runs * k;
  for (int c = threadIdx.x; c < bins + runs; c += blockDim.x) tally[c] = 0;
  __syncthreads();
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    bool any = false;
    for (int r = 0; r < runs; r++) {
      int best = -1;
      double least = 0;
      for (int c = 0; c < k; c++) {
        const double m = sums[bins + r * k + c];
        if (!(m > 0)) continue;
        const double d = blended(wz, past, a, i * bins + r * k + c) * (-2 / m) + sums[r * k + c] / (m * m);
        if (best < 0 || d < least) least = d, best = c;
      }
      if (best < 0) best = 0;  // all clusters are empty
      const bool moved = labels[i * runs + r] != best;
      found[i * runs + r] = best;
      any = any || moved;
      atomicAdd(&tally[r * k + best], 1);
      if (moved) atomicAdd(&tally[bins + r], 1);
    }
    moves[i] = any;
  }
  __syncthreads();
  for (int c = threadIdx.x; c < bins + runs; c += blockDim.x)
    if (tally[c]) atomicAdd(&counts[c], tally[c]);
}

// The moved objects, in order, and for the host: moves in each run, their number, empty clusters, and the sum of
// squares of each run before the moves. One block.
extern "C" __global__ void conclude(const double* sums, const int* counts, const unsigned char* moves, long long n,
                                    int runs, int k, long long* rows, double* report) {
  __shared__ long long starts[1024];
  const int thread = threadIdx.x, bins = runs * k;
  const long long share = (n + 1023) / 1024, begin = thread * share, end = begin + share < n ? begin + share : n;
  long long count = 0;
  for (long long i = begin; i < end; i++) count += moves[i];
  starts[thread] = count;
  __syncthreads();
  if (thread == 0) {
    long long total = 0;
    for (int t = 0; t < 1024; t++) {
      const long long own = starts[t];
      starts[t] = total;
      total += own;
    }
    int empty = 0;
    for (int c = 0; c < bins; c++) empty += counts[c] == 0;
    report[runs] = total;
    report[runs + 1] = empty;
  }
  if (thread < runs) {
    double inertia = 0;
    for (int c = thread * k; c < (thread + 1) * k; c++)
      if (sums[bins + c] > 0) inertia += sums[2 * bins + c] - sums[c] / sums[bins + c];
    report[thread] = counts[bins + thread];
    report[runs + 2 + thread] = inertia;
  }
  __syncthreads();
  long long place = starts[thread];
  for (long long i = begin; i < end; i++)
    if (moves[i]) rows[place++] = i;
}
