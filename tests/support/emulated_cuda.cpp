// Runs halo.cu on the CPU: a thread of the host for each thread of a block, which meet where a warp or a block does. What the instructions
// for matrices do is written down from the PTX manual (ldmatrix, mma.m16n8k16).
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#define EMULATED
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)

typedef unsigned int u32;
typedef unsigned short u16;
struct Index { int x; };
static thread_local Index threadIdx, blockIdx;
alignas(16) static char shared[1 << 18];
static std::unique_ptr<std::barrier<>> block_meets, warp_meets[THREADS / 32];
static const char* rows[THREADS];
static u32 left[THREADS][4], right[THREADS][2];
static float given[THREADS];

static int lane() { return threadIdx.x % 32; }
static int other(int lane_of_warp) { return threadIdx.x / 32 * 32 + lane_of_warp; }
static void meet() { warp_meets[threadIdx.x / 32]->arrive_and_wait(); }
static void __syncthreads() { block_meets->arrive_and_wait(); }

static float __uint_as_float(u32 bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static float number(u32 pair, int which) { return __uint_as_float(which ? pair & 0xffff0000u : pair << 16); }
static u32 nearest(float value) {
  u32 bits;
  memcpy(&bits, &value, 4);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static u32 rounded(float first, float second) { return nearest(first) | nearest(second) << 16; }
template <typename Vector>
static void store(u16* pointer, const Vector& chunk) { memcpy(pointer, &chunk, 16); }
static u16 element(int matrix, int row, int column) {
  u16 value;
  memcpy(&value, rows[other(8 * matrix + row)] + 2 * column, 2);
  return value;
}
static void load_matrices(u32* r, const char* pointer) {
  rows[threadIdx.x] = pointer;
  meet();
  for (int i = 0; i < 4; i++) r[i] = element(i, lane() / 4, 2 * (lane() % 4)) | (u32)element(i, lane() / 4, 2 * (lane() % 4) + 1) << 16;
  meet();
}
static void load_transposed(u32* r, const char* pointer) {
  rows[threadIdx.x] = pointer;
  meet();
  for (int i = 0; i < 4; i++) r[i] = element(i, 2 * (lane() % 4), lane() / 4) | (u32)element(i, 2 * (lane() % 4) + 1, lane() / 4) << 16;
  meet();
}
static void multiply(float* c, const u32* a, u32 b0, u32 b1) {
  memcpy(left[threadIdx.x], a, 16);
  right[threadIdx.x][0] = b0;
  right[threadIdx.x][1] = b1;
  meet();
  for (int i = 0; i < 4; i++) {
    const int row = lane() / 4 + 8 * (i / 2), column = 2 * (lane() % 4) + i % 2;
    for (int k = 0; k < 16; k++)
      c[i] += number(left[other(row % 8 * 4 + k % 8 / 2)][(row >= 8) + 2 * (k >= 8)], k % 2) *
              number(right[other(column * 4 + k % 8 / 2)][k >= 8], k % 2);
  }
  meet();
}
static float __shfl_xor_sync(u32, float value, int distance) {
  given[threadIdx.x] = value;
  meet();
  const float found = given[other(lane() ^ distance)];
  meet();
  return found;
}

#include "halo.cu"

extern "C" void run(int blocks, int num_pixels, const u16* x, const u16* weight, u16* y, u16* read, const u16* added, const u16* s,
                    const float* mean, const float* scale, const float* gamma, const float* beta, const u16* s_read,
                    const float* mean_read, const float* scale_read, const float* gamma_read, const float* beta_read,
                    const float* by_gamma, const float* by_beta, float* partial) {
  block_meets = std::make_unique<std::barrier<>>(THREADS);
  for (auto& warp : warp_meets) warp = std::make_unique<std::barrier<>>(32);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < THREADS; thread++)
    threads.emplace_back([=] {
      threadIdx.x = thread;
      for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        if (thread == 0) memset(shared, 0xff, sizeof shared);  // NaN wherever nothing is written
        __syncthreads();
        halo(x, weight, y, read, added, s, mean, scale, gamma, beta, s_read, mean_read, scale_read, gamma_read, beta_read, by_gamma, by_beta,
             partial, blocks, num_pixels);
        __syncthreads();
      }
    });
  for (auto& thread : threads) thread.join();
}
