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
// if these differ, -1 for none. They end at the first negative position. By symmetry a lane reads one column of W along
// these rows; the warps of a block share the rows.
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
    if (object < 0) break;
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

// An entry of the product of a blend, wz + alpha (past - base). Object i is at source[i] in the past, -1 for none.
// Without a source the positions are the same, without a base it is wz, and without a past there is only wz.
__device__ double blended(const double* wz, const double* base, const double* past, const long long* source,
                          double alpha, long long i, int column, int bins) {
  const long long at = i * bins + column, there = source ? source[i] : i;
  if (!past || there < 0) return wz[at];
  return wz[at] + alpha * (past[there * bins + column] - (base ? base : wz)[at]);
}

// The product of a blend, (n, bins).
extern "C" __global__ void blended_product(const double* wz, const double* base, const double* past,
                                           const long long* source, const double* alpha, double value, long long n,
                                           int bins, double* out) {
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n * bins) out[at] = blended(wz, base, past, source, weight(alpha, value), at / bins, at % bins, bins);
}

// For each cluster c of each run: the sum of (WZ)_ic over its objects, their number, and the sum of w_ii.
// One block per cluster.
extern "C" __global__ void cluster_sums(const double* wz, const double* base, const double* past,
                                        const long long* source, const double* alpha, double value, const double* w_ii,
                                        const long long* labels, long long n, int runs, int k, double* out) {
  __shared__ double parts[3][256];
  const int thread = threadIdx.x, bins = runs * k, r = blockIdx.x / k, c = blockIdx.x % k;
  const double a = weight(alpha, value);
  double own = 0, size = 0, diagonal = 0;
  for (long long i = thread; i < n; i += 256)
    if (labels[i * runs + r] == c) {
      own += blended(wz, base, past, source, a, i, blockIdx.x, bins);
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
extern "C" __global__ void nearest(const double* wz, const double* base, const double* past, const long long* source,
                                   const double* alpha, double value, const double* sums, const long long* labels,
                                   long long n, int runs, int k, long long* found, unsigned char* moves, int* counts) {
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
        const double wz_ic = blended(wz, base, past, source, a, i, r * k + c, bins);
        const double d = wz_ic * (-2 / m) + sums[r * k + c] / (m * m);
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

// The moved objects, in order, then -1, and for the host: moves in each run, their number, empty clusters, and the sum
// of squares of each run before the moves. One block.
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
  for (long long p = (long long)report[runs] + thread; p < n; p += 1024) rows[p] = -1;
}

// Sum over the threads of a block of 256, in a fixed order; all threads get it.
__device__ double over_block(double x) {
  __shared__ double parts[256];
  const int thread = threadIdx.x;
  __syncthreads();
  parts[thread] = x;
  for (int half = 128; half; half /= 2) {
    __syncthreads();
    if (thread < half) parts[thread] += parts[thread + half];
  }
  __syncthreads();
  return parts[0];
}

__device__ double quotient(double total, double count) { return count > 0 ? total / count : 0; }

// A guess of the mean of each block: that of the row of the first object of a cluster, without its diagonal entry.
// One block per cluster; `width` clusters at a time.
template <typename T>
__global__ void guess_means(const T* w, long long stride, const short* labels, long long n, int k, int width,
                            double* out) {
  extern __shared__ double shared[];
  __shared__ long long firsts[256];
  const int lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y, thread = warp * 32 + lane;
  firsts[thread] = n;
  for (long long i = thread; i < n && firsts[thread] == n; i += warps * 32)
    if (labels[i] == blockIdx.x) firsts[thread] = i;
  __syncthreads();
  long long row = n;
  for (int t = 0; t < warps * 32; t++) row = firsts[t] < row ? firsts[t] : row;
  double* sums = shared + warp * 2 * width * 32;
  double* counts = sums + width * 32;
  for (int first = 0; first < k; first += width) {
    __syncthreads();
    clear(sums, 2 * width, lane);
    if (row < n)
      for (long long j = thread; j < n; j += warps * 32) {
        const int c = bin_of(labels[j], 0, k, first, width);
        if (c < 0 || j == row) continue;
        sums[c * 32 + lane] += w[row * stride + j];
        counts[c * 32 + lane] += 1;
      }
    __syncthreads();
    for (int c = thread; c < width && first + c < k; c += warps * 32) {
      double sum = 0, count = 0;
      for (int v = 0; v < warps; v++) {
        sum += over_lanes(shared + v * 2 * width * 32, c);
        count += over_lanes(shared + (v * 2 + 1) * width * 32, c);
      }
      out[blockIdx.x * k + first + c] = quotient(sum, count);
    }
  }
}

// Sums by cluster of the rows of residuals, (k, 2k); then for each cluster its size, the mean of w_ii, and the sum of
// squares of w_ii about it, or about given means. A block for each cluster and 32 columns, and one for the diagonal.
template <typename T>
__global__ void sums_by_cluster(const T* w, long long stride, const short* labels, const double* rows,
                                const double* diagonal_means, long long n, int k, double* out) {
  __shared__ double parts[2][1024];
  const int lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y, thread = warp * 32 + lane, c = blockIdx.x;
  const int column = blockIdx.y * 32 + lane;
  if (blockIdx.y + 1 < gridDim.y) {
    double sum = 0;
    if (column < 2 * k)
      for (long long i = warp; i < n; i += warps)
        if (labels[i] == c) sum += rows[i * 2 * k + column];
    parts[0][thread] = sum;
    __syncthreads();
    if (warp || column >= 2 * k) return;
    for (int v = 1; v < warps; v++) sum += parts[0][v * 32 + lane];
    out[c * 2 * k + column] = sum;
    return;
  }
  double* of_cluster = out + 2 * k * k + c;
  for (int pass = 0; pass < 2; pass++) {
    const double centre = pass == 0 ? 0 : diagonal_means ? diagonal_means[c] : of_cluster[k];
    double sum = 0, size = 0;
    for (long long i = thread; i < n; i += 32 * warps)
      if (labels[i] == c) {
        const double d = (double)w[i * stride + i] - centre;
        sum += pass == 0 ? d : d * d;
        size += 1;
      }
    parts[0][thread] = sum, parts[1][thread] = size;
    for (int half = 16 * warps; half; half /= 2) {
      __syncthreads();
      if (thread < half)
        for (int p = 0; p < 2; p++) parts[p][thread] += parts[p][thread + half];
    }
    __syncthreads();
    if (thread == 0 && pass == 0) of_cluster[0] = parts[1][0], of_cluster[k] = quotient(parts[0][0], parts[1][0]);
    if (thread == 0 && pass == 1) of_cluster[2 * k] = parts[0][0];
    __syncthreads();
  }
}

// Block moments from such sums about a guess: means, squares about them, variances and counts, (k, k) each; sizes, means
// and variances of the diagonal, (k,) each; the variance of all entries and the squares of all. One block.
extern "C" __global__ void block_moments(const double* sums, const double* guess, int k, double* out) {
  const double *m = sums + 2 * k * k, *w_ii = m + k, *squares_ii = w_ii + k;
  const int kk = k * k;
  double noise = 0, total = 0;
  for (int at = threadIdx.x; at < kk; at += 256) {
    const int c = at / k, d = at % k;
    const double copies = c == d ? 2 : 1, count = m[c] * (m[d] - (c == d));
    const double shift = sums[c * 2 * k + d] / (count > 0 ? count : 1);
    const double left = fmax(sums[c * 2 * k + k + d] - count * shift * shift, 0.0);
    const double variance = quotient(left, count - copies);
    out[at] = guess[at] - shift;
    out[kk + at] = left;
    out[2 * kk + at] = variance;
    out[3 * kk + at] = count;
    noise += count * variance;
    total += (count - copies) * variance;
  }
  double* more = out + 4 * kk;
  for (int c = threadIdx.x; c < k; c += 256) {
    const double variance = quotient(squares_ii[c], m[c] - 1);
    more[c] = m[c];
    more[k + c] = w_ii[c];
    more[2 * k + c] = variance;
    noise += m[c] * variance;
    total += (m[c] - 1) * variance;
  }
  noise = over_block(noise);
  total = over_block(total);
  if (threadIdx.x == 0) more[3 * k] = noise, more[3 * k + 1] = total;
}

// The sum of all squares, off and on the diagonal, of sums by cluster. One block.
extern "C" __global__ void total_squares(const double* sums, int k, double* out) {
  double total = 0;
  for (int at = threadIdx.x; at < k * k; at += 256) total += sums[at / k * 2 * k + k + at % k];
  for (int c = threadIdx.x; c < k; c += 256) total += sums[2 * k * k + 2 * k + c];
  total = over_block(total);
  if (threadIdx.x == 0) *out = total;
}

// The mean of block `at` of the past, given sums of its differences from the block means of W, and whether it has any.
__device__ double past_mean(const double* moments, const double* sums, int k, int at) {
  const double count = moments[3 * k * k + at];
  return count > 0 ? moments[at] - sums[at / k * 2 * k + at % k] / count : 0;
}

// Products of the object effects of W and of the past, summed by cluster: of rows, (k, k), and of the diagonal, (k,).
// A block for each cluster and 32 columns, and one for the diagonal.
template <typename T>
__global__ void shared_effects(const T* w, long long stride, const T* past, long long past_stride, const double* wz,
                               const double* past_z, const long long* source, const short* labels,
                               const double* moments, const double* sums, long long n, int k, double* out) {
  __shared__ double parts[1024];
  const int lane = threadIdx.x, warp = threadIdx.y, warps = blockDim.y, kk = k * k;
  const int c = blockIdx.x, d = blockIdx.y * 32 + lane;
  const bool on_diagonal = blockIdx.y + 1 == gridDim.y;
  const double own = c == d, length = d < k ? moments[4 * kk + d] - own : 0;
  const double mu = on_diagonal ? moments[4 * kk + k + c] : d < k ? moments[c * k + d] : 0;
  const double nu = on_diagonal ? sums[2 * kk + k + c] : d < k ? past_mean(moments, sums, k, c * k + d) : 0;
  double sum = 0;
  for (long long i = on_diagonal ? warp * 32 + lane : warp; i < n; i += on_diagonal ? 32 * warps : warps) {
    if (labels[i] != c) continue;
    const long long there = source ? source[i] : i;
    const double w_ii = w[i * stride + i], psi_ii = past[there * past_stride + there];
    if (on_diagonal)
      sum += (w_ii - mu) * (psi_ii - nu);
    else if (d < k)
      sum += (quotient(wz[i * k + d] - own * w_ii, length) - mu) *
             (quotient(past_z[there * k + d] - own * psi_ii, length) - nu);
  }
  parts[warp * 32 + lane] = sum;
  __syncthreads();
  if (warp) return;
  for (int v = 1; v < warps; v++) sum += parts[v * 32 + lane];
  if (!on_diagonal && d < k) out[c * k + d] = sum;
  parts[lane] = sum;
  __syncwarp();
  if (on_diagonal && lane == 0) {
    for (int l = 1; l < 32; l++) sum += parts[l];
    out[kk + c] = sum;
  }
}

// The sum over all entries of a product of two values for each block and each diagonal, x and y minus their means.
struct Centred {
  const double *values, *diagonal, *moments, *sums;
  int k;
  double mean;
  __device__ double at(int at) const { return (sums ? past_mean(moments, sums, k, at) : values[at]) - mean; }
  __device__ double on(int c) const { return diagonal[c] - mean; }
};

__device__ double sum_of_products(const Centred& x, const Centred* y) {
  const double *counts = x.moments + 3 * x.k * x.k, *sizes = counts + x.k * x.k;
  double total = 0;
  for (int at = threadIdx.x; at < x.k * x.k; at += 256) total += counts[at] * (x.at(at) * (y ? y->at(at) : 1));
  for (int c = threadIdx.x; c < x.k; c += 256) total += sizes[c] * (x.on(c) * (y ? y->on(c) : 1));
  return over_block(total);
}

__device__ double number_of_entries(const double* moments, int k) {
  double n = 0;
  for (int c = threadIdx.x; c < k; c += 256) n += moments[4 * k * k + c];
  n = over_block(n);
  return n * n;
}

// V and D per entry: the noise that includes differences between blocks which the past does not confirm, by static
// labels, and the squared difference of W and its past, by previous labels. One block.
extern "C" __global__ void judge(const double* previous, const double* drift, const double* effects, int k,
                                 const double* fresh, const double* sums, int fresh_k, double* out) {
  double shared = 0;
  const double* m = previous + 4 * k * k;
  for (int at = threadIdx.x; at < k * k; at += 256) {
    const double size = m[at % k];
    shared += 2 * (at / k == at % k ? quotient((size - 1) * (size - 1), size - 2) : size) * effects[at];
  }
  for (int c = threadIdx.x; c < k; c += 256) shared += effects[k * k + c];
  shared = over_block(shared);
  const double difference = m[3 * k + 1] + *drift - 2 * shared, entries = number_of_entries(previous, k);
  k = fresh_k;
  const double n = number_of_entries(fresh, k), noise = fresh[4 * k * k + 3 * k];
  Centred mu = {fresh, fresh + 4 * k * k + k, fresh, nullptr, k, 0};
  Centred nu = {nullptr, sums + 2 * k * k + k, fresh, sums, k, 0};
  mu.mean = quotient(sum_of_products(mu, nullptr), n);
  nu.mean = quotient(sum_of_products(nu, nullptr), n);
  const double between = sum_of_products(mu, &mu), both = sum_of_products(mu, &nu), past = sum_of_products(nu, &nu);
  if (threadIdx.x == 0) {
    out[0] = quotient(noise + between - quotient(both * both, past), n);
    out[1] = quotient(difference, entries);
  }
}

// Rows of sums over clusters of W and of its past, without their diagonal entries. The sum over the others of one alone
// in its cluster is exactly 0, instead of what rounding leaves.
template <typename T>
struct Rows {
  const T* w;
  long long stride;
  const T* past;
  long long past_stride;
  const double *wz, *past_z;
  const long long* source;
  const short* labels;
  const double* sizes;
  int k;
  __device__ double now(long long i, int d) const {
    if (labels[i] != d) return wz[i * k + d];
    return sizes[d] == 1 ? 0.0 : wz[i * k + d] - (double)w[i * stride + i];
  }
  __device__ double before(long long i, int d) const {
    const long long j = source ? source[i] : i;
    if (labels[i] != d) return past_z[j * k + d];
    return sizes[d] == 1 ? 0.0 : past_z[j * k + d] - (double)past[j * past_stride + j];
  }
};

// Sums by cluster of both rows where they are positive, (k, k), and the smallest entry seen by each block. A block for
// each cluster and 32 columns.
template <typename T>
__global__ void profile_sums(const T* w, long long stride, const T* past, long long past_stride, const double* wz,
                             const double* past_z, const long long* source, const short* labels, long long n,
                             const double* moments, int k, double* out) {
  __shared__ double sums[1024], least[1024];
  const Rows<T> rows = {w, stride, past, past_stride, wz, past_z, source, labels, moments + 4 * k * k, k};
  const int lane = threadIdx.x, warps = blockDim.y, thread = threadIdx.y * 32 + lane;
  const int c = blockIdx.x, d = blockIdx.y * 32 + lane;
  double sum = 0, low = 0;
  if (d < k)
    for (long long i = threadIdx.y; i < n; i += warps) {
      if (labels[i] != c) continue;
      const double now = rows.now(i, d), before = rows.before(i, d);
      sum += fmax(now, 0.0) + fmax(before, 0.0);
      low = fmin(low, fmin(now, before));
    }
  sums[thread] = sum, least[thread] = low;
  __syncthreads();
  if (threadIdx.y == 0 && d < k) {
    for (int v = 1; v < warps; v++) sum += sums[v * 32 + lane];
    out[c * k + d] = sum;
  }
  if (thread == 0) {
    for (int t = 1; t < 32 * warps; t++) low = fmin(low, least[t]);
    out[k * k + c * gridDim.y + blockIdx.y] = low;
  }
}

// Profiles of clusters and the logarithms of their shares, (k, k) each; the dispersion of rows, and the smallest of
// some numbers. One block.
extern "C" __global__ void log_profiles(const double* sums, int n_low, const double* moments, int k, double prior,
                                        double uniform, double min_dispersion, double* out) {
  const int thread = threadIdx.x, kk = k * k;
  const double *means = moments, *squares = moments + kk, *counts = moments + 3 * kk;
  double total = 0, noise = 0, entries = 0;
  for (int at = thread; at < kk; at += 256) {
    total += sums[at];
    noise += counts[at] * quotient(squares[at], counts[at] - (at / k == at % k ? 2 : 1));
    entries += counts[at] * means[at];
  }
  total = over_block(total), noise = over_block(noise), entries = over_block(entries);
  for (int d = thread; d < k; d += 256) {
    double column = 0;
    for (int c = 0; c < k; c++) column += sums[c * k + d];
    const double mean = (1 - uniform) * quotient(column, total) + uniform / k;
    for (int c = 0; c < k; c++) out[c * k + d] = sums[c * k + d] + prior * mean;
  }
  __syncthreads();
  for (int c = thread; c < k; c += 256) {
    double row = 0;
    for (int d = 0; d < k; d++) row += out[c * k + d];
    for (int d = 0; d < k; d++) out[kk + c * k + d] = log(out[c * k + d]) - log(row);
  }
  if (thread == 0) {
    double low = 0;
    for (int b = 0; b < n_low; b++) low = fmin(low, sums[kk + b]);
    out[2 * kk] = fmax(quotient(noise, entries), min_dispersion);
    out[2 * kk + 1] = low;
  }
}

// The probability that each object has moved, given the profiles of clusters.
template <typename T>
__global__ void move_probability(const T* w, long long stride, const T* past, long long past_stride, const double* wz,
                                 const double* past_z, const long long* source, const short* labels, long long n,
                                 const double* moments, int k, const double* profiles, double rate,
                                 double min_profile, double* out) {
  const Rows<T> rows = {w, stride, past, past_stride, wz, past_z, source, labels, moments + 4 * k * k, k};
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int own = labels[i];
  out[i] = 0;
  if (own < 0) return;
  const double *log_q = profiles + k * k, phi = profiles[2 * k * k];
  double all = 0, all_now = 0, all_before = 0;
  for (int d = 0; d < k; d++) {
    const double now = fmax(rows.now(i, d), 0.0), before = fmax(rows.before(i, d), 0.0);
    all += fmax(profiles[own * k + d] - (now + before), min_profile);
    all_now += now, all_before += before;
  }
  if (!(all_now > 0 && all_before > 0)) return;
  const double log_all = log(all);
  double top_now = 0, top_before = 0, sum_now = 0, sum_before = 0, same = 0;
  for (int pass = 0; pass < 2; pass++)  // the largest scores first
    for (int c = 0; c < k; c++) {
      double by_now = 0, by_before = 0;
      for (int d = 0; d < k; d++) {
        const double now = fmax(rows.now(i, d), 0.0), before = fmax(rows.before(i, d), 0.0);
        const double share = c != own ? log_q[c * k + d]
                                      : log(fmax(profiles[own * k + d] - (now + before), min_profile)) - log_all;
        by_now += now * share, by_before += before * share;
      }
      if (pass == 0) {
        top_now = c == 0 ? by_now : fmax(top_now, by_now);
        top_before = c == 0 ? by_before : fmax(top_before, by_before);
      } else {
        const double u = exp((by_now - top_now) / phi), b = exp((by_before - top_before) / phi);
        sum_now += u, sum_before += b, same += u * b;
      }
    }
  same /= sum_now * sum_before;
  const double stays = (1 - rate) * same, moves = fmax(rate * (1 - same) / (k - 1), 0.0);
  out[i] = quotient(moves, stays + moves);
}

// Objects drawn with the weights of a run, given numbers in [0, 1): the first, in a given order, at which the sum of
// weights exceeds the number times the total. One block per run.
extern "C" __global__ void draw(const double* weight, const long long* order, const double* numbers, long long n,
                                int runs, int n_draws, long long* out) {
  __shared__ double starts[257];
  const int thread = threadIdx.x, r = blockIdx.x;
  const long long share = (n + 255) / 256, begin = thread * share, end = begin + share < n ? begin + share : n;
  double sum = 0;
  for (long long p = begin; p < end; p++) sum += weight[order[p] * runs + r];
  starts[thread + 1] = sum;
  __syncthreads();
  if (thread == 0) {
    starts[0] = 0;
    for (int t = 0; t < 256; t++) starts[t + 1] += starts[t];
  }
  __syncthreads();
  for (int j = thread; j < n_draws; j += 256) {
    const double target = numbers[r * n_draws + j] * starts[256];
    int t = 0;
    while (t < 255 && !(starts[t + 1] > target)) t++;
    double passed = starts[t];
    long long place = t * share;
    for (; place < n - 1; place++) {
      passed += weight[order[place] * runs + r];
      if (passed > target) break;
    }
    out[r * n_draws + j] = order[place < n ? place : n - 1];
  }
}

// A sparse matrix in CSR format times a thin V, in the dtype of V; sums are in float64. One warp per row: groups of
// `width` lanes, one for each column, take turns with the entries.
template <typename T, typename V>
__global__ void csr_matmul(const T* data, const int* indices, const int* indptr, const V* v, long long n, int columns,
                           int width, V* out) {
  __shared__ double parts[8][32];
  const int lane = threadIdx.x, warp = threadIdx.y, groups = 32 / width, group = lane / width;
  const long long i = (long long)blockIdx.x * 8 + warp;
  for (int first = 0; first < columns; first += width) {
    const int column = first + lane % width;
    double sum = 0;
    if (i < n && column < columns)
      for (int e = indptr[i] + group; e < indptr[i + 1]; e += groups)
        sum += (double)data[e] * (double)v[(long long)indices[e] * columns + column];
    parts[warp][lane] = sum;
    __syncwarp();
    if (group == 0 && i < n && column < columns) {
      for (int g = 1; g < groups; g++) sum += parts[warp][g * width + lane];
      out[i * columns + column] = (V)sum;
    }
    __syncwarp();
  }
}

// As `products`, of a sparse matrix in CSR format.
template <typename T>
__global__ void csr_products(const T* data, const int* indices, const int* indptr, const short* labels, long long n,
                             int runs, int k, int first, int width, double* out) {
  extern __shared__ double shared[];
  const int lane = threadIdx.x;
  const long long i = (long long)blockIdx.x * blockDim.y + threadIdx.y;
  double* bins = shared + threadIdx.y * width * 32;
  clear(bins, width, lane);
  if (i < n)
    for (int e = indptr[i] + lane; e < indptr[i + 1]; e += 32)
      for (int r = 0; r < runs; r++) {
        const int c = bin_of(labels[(long long)indices[e] * runs + r], r, k, first, width);
        if (c >= 0) bins[c * 32 + lane] += data[e];
      }
  __syncwarp();
  if (i < n)
    for (int c = lane; c < width; c += 32) out[i * runs * k + first + c] = over_lanes(bins, c);
}

// As `residuals`, of a sparse matrix in CSR format; entries that are not stored are zero.
template <typename T>
__global__ void csr_residuals(const T* data, const int* indices, const int* indptr, const short* labels,
                              const double* sizes, const double* guess, long long n, int k, int first, int width,
                              double* out) {
  extern __shared__ double shared[];
  const int lane = threadIdx.x;
  const long long i = (long long)blockIdx.x * blockDim.y + threadIdx.y;
  double* sums = shared + threadIdx.y * 3 * width * 32;
  double *squares = sums + width * 32, *counts = squares + width * 32;
  clear(sums, 3 * width, lane);
  const int own = i < n ? labels[i] : -1;
  if (own >= 0)
    for (int e = indptr[i] + lane; e < indptr[i + 1]; e += 32) {
      const int c = bin_of(labels[indices[e]], 0, k, first, width);
      if (c < 0 || indices[e] == i) continue;
      const double d = guess[own * k + first + c] - (double)data[e];
      sums[c * 32 + lane] += d;
      squares[c * 32 + lane] += d * d;
      counts[c * 32 + lane] += 1;
    }
  __syncwarp();
  if (own >= 0)
    for (int c = lane; c < width; c += 32) {
      const double g = guess[own * k + first + c];
      const double zeros = sizes[first + c] - (own == first + c) - over_lanes(counts, c);
      out[i * 2 * k + first + c] = over_lanes(sums, c) + zeros * g;
      out[i * 2 * k + k + first + c] = over_lanes(squares, c) + zeros * g * g;
    }
}

// The squared distance of object i to the object tried in a column, or to the nearest centre of its run if that is less.
__device__ double closest(const double* product, const double* w_ii, const long long* tried, const double* nearest,
                          long long i, int column, int n_columns, int runs) {
  const double d = fmax(w_ii[i] - 2 * product[i * n_columns + column] + w_ii[tried[column]], 0.0);
  return fmin(d, nearest[i * runs + column / (n_columns / runs)]);
}

// The sum of squares with each object that is tried as a centre. One block per column.
extern "C" __global__ void try_centres(const double* product, const double* w_ii, const long long* tried,
                                       const double* nearest, long long n, int runs, int trials, double* out) {
  double sum = 0;
  for (long long i = threadIdx.x; i < n; i += 256)
    sum += closest(product, w_ii, tried, nearest, i, blockIdx.x, runs * trials, runs);
  sum = over_block(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// The distance of each object to its nearest centre, and its cluster, with the best of the tried objects as centre c.
extern "C" __global__ void add_centre(const double* product, const double* w_ii, const long long* tried,
                                      const double* nearest, const long long* labels, const double* left, double tie,
                                      long long n, int runs, int trials, long long c, double* found,
                                      long long* relabelled) {
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n * runs) return;
  const int r = at % runs;
  double least = left[r * trials];
  for (int t = 1; t < trials; t++) least = fmin(least, left[r * trials + t]);
  int best = 0;
  while (best + 1 < trials && !(left[r * trials + best] <= (1 + tie) * least)) best++;
  const double d = closest(product, w_ii, tried, nearest, at / runs, r * trials + best, runs * trials, runs);
  found[at] = d;
  relabelled[at] = d < (1 - tie) * nearest[at] ? c : labels[at];
}

// Arrays one after the other, in float64: they are copied to the host together.
struct Parts {
  const void* from[16];
  long long ends[16];
  int kinds[16];
};

extern "C" __global__ void pack(Parts parts, long long size, double* out) {
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= size) return;
  int p = 0;
  while (at >= parts.ends[p]) p++;
  const void* from = parts.from[p];
  const long long i = at - (p ? parts.ends[p - 1] : 0);
  const int kind = parts.kinds[p];
  out[at] = kind == 0   ? ((const double*)from)[i]
            : kind == 1 ? (double)((const float*)from)[i]
            : kind == 2 ? (double)((const long long*)from)[i]
            : kind == 3 ? (double)((const int*)from)[i]
            : kind == 4 ? (double)((const short*)from)[i]
            : kind == 5 ? (double)((const signed char*)from)[i]
                        : (double)((const unsigned char*)from)[i];
}

// For each row i the nearest column of another group, and its distance; of equal distances that with the smallest
// i ^ j. Without groups each row is its own. With `upper`, entries mirror the upper triangle. One warp per row.
template <typename T>
__global__ void nearest_other(const T* d, long long stride, const long long* group, long long n, int upper,
                              long long* near, double* least) {
  __shared__ double lows[8][32];
  __shared__ long long codes[8][32];
  const int lane = threadIdx.x, warp = threadIdx.y;
  const long long i = (long long)blockIdx.x * blockDim.y + warp;
  double low = 0;
  long long code = -1;
  if (i < n)
    for (long long j = lane; j < n; j += 32) {
      if (group ? group[i] == group[j] : i == j) continue;
      const double x = upper && j < i ? d[j * stride + i] : d[i * stride + j];
      if (code < 0 || x < low || (x == low && (i ^ j) < code)) low = x, code = i ^ j;
    }
  lows[warp][lane] = low, codes[warp][lane] = code;
  __syncwarp();
  if (lane > 0 || i >= n) return;
  for (int l = 1; l < 32; l++) {
    const double x = lows[warp][l];
    const long long other = codes[warp][l];
    if (other >= 0 && (code < 0 || x < low || (x == low && other < code))) low = x, code = other;
  }
  near[i] = code < 0 ? i : code ^ i, least[i] = low;
}

// The distance of a union of clusters a and b to another; m_b is 0 if nothing is merged. Methods: complete, average,
// Ward on squares.
__device__ double united(int method, double x, double y, double m_a, double m_b, double h, double m_c) {
  if (method == 0) return fmax(x, y);
  if (method == 1) return x + m_b / (m_a + m_b) * (y - x);
  return m_b > 0 ? x + ((m_b + m_c) * (y - x) + m_c * (x - h)) / (m_a + m_b + m_c) : x;
}

// Some rows of distances after clusters plan[1] are merged into plan[0]: rows first, then columns. See `_merge` of
// clustering/linkage.py.
template <typename T>
__global__ void merge_clusters(const T* d, long long stride, const double* plan, const double* sizes, long long q,
                               long long begin, long long n_rows, int method, T* out) {
  const long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= n_rows * q) return;
  const long long i = begin + at / q, j = at % q;
  const double *m_a = plan + 2 * q, *m_b = m_a + q, *h = m_b + q;
  double ends[2];
  for (int e = 0; e < 2; e++) {
    const long long column = (long long)plan[e * q + j];
    const double x = d[(long long)plan[i] * stride + column], y = d[(long long)plan[q + i] * stride + column];
    ends[e] = united(method, x, y, m_a[i], m_b[i], h[i], sizes[column]);
  }
  out[at] = (T)united(method, ends[0], ends[1], m_a[j], m_b[j], h[j], m_a[i] + m_b[i]);
}
