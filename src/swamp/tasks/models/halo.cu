// A 3x3 convolution of stride 1 that reads each pixel once. A tile of ROWS image rows lies in shared memory with a border of one pixel, and
// the nine taps are nine shifted views of it, which ldmatrix can read because each lane names the address of a row of its own.
// Images are bf16 with the channels innermost; IN channels are read, OUT written.
// NORM: x is s, and the tile is h = relu((s - mean) * scale * gamma + beta), computed once an element and written, too.
// NORM_BACKWARD: x is the gradient by such an h, zero where h is, and the tile is the gradient by its s, computed and written likewise.
// BACKWARD: x is the gradient of the output, taps point the other way, and channels change places in the weight.
// ADD: what is added to the sums before they are rounded.
// MASK: what is written is zero where (s - mean) * scale * gamma + beta <= 0; sums of it and of it times the normed s are left.
typedef unsigned int u32;
typedef unsigned short u16;

#define PIXELS (ROWS * WIDTH)
#define PITCH (2 * IN + 16)                        // bytes of a pixel of the tile: eight pixels then lie in different banks
#define ROW_CHANNELS (BACKWARD ? OUT : IN)         // the innermost channels of the weight
#define WEIGHT_ROWS (9 * (BACKWARD ? IN : OUT))
#define WEIGHT_PITCH (2 * ROW_CHANNELS + 16)
#define TILE_BYTES ((ROWS + 2) * (WIDTH + 2) * PITCH)
#define OUT_PITCH (4 * OUT + 16)                   // bytes of a pixel of the sums, which take the place of tile and weight
#define WARPS (THREADS / 32)
#define EACH (PIXELS / WARPS)                      // pixels of a warp
#define MT (EACH / 16)
#define NT (OUT / 8)
#define KT (IN / 16)
#define CHUNKS (OUT / 8)                           // of eight channels, 16 bytes in bf16
#define STEP (THREADS / CHUNKS)                    // pixels that are written at once

#define BATCH 4                                    // chunks that a thread loads at once

struct alignas(16) Chunk { u32 v[4]; };

__device__ __forceinline__ float low(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ __forceinline__ float part(const Chunk& chunk, int k) { return k % 2 ? high(chunk.v[k / 2]) : low(chunk.v[k / 2]); }
__device__ __forceinline__ Chunk loaded(const u16* pointer) { return *(const Chunk*)pointer; }

#ifndef EMULATED
__device__ __forceinline__ u32 address(const void* pointer) {
  u32 out;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(out) : "l"(pointer));
  return out;
}
__device__ __forceinline__ void store(u16* pointer, const Chunk& chunk) {  // The compiler would make four stores of a plain one.
  asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(pointer), "r"(chunk.v[0]), "r"(chunk.v[1]), "r"(chunk.v[2]), "r"(chunk.v[3]));
}
__device__ __forceinline__ u32 rounded(float first, float second) {
  u32 out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(second), "f"(first));
  return out;
}
__device__ __forceinline__ void load_matrices(u32* r, const char* pointer) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address(pointer)) : "memory");
}
__device__ __forceinline__ void load_transposed(u32* r, const char* pointer) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address(pointer)) : "memory");
}
__device__ __forceinline__ void multiply(float* c, const u32* a, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
extern __shared__ __align__(16) char shared[];
#endif

extern "C" __global__ void __launch_bounds__(THREADS) halo(
    const u16* __restrict__ x, const u16* __restrict__ weight, u16* __restrict__ y, u16* __restrict__ read,
    const u16* __restrict__ added, const u16* __restrict__ s, const float* __restrict__ mean, const float* __restrict__ scale,
    const float* __restrict__ gamma, const float* __restrict__ beta, const u16* __restrict__ s_read,
    const float* __restrict__ mean_read, const float* __restrict__ scale_read, const float* __restrict__ gamma_read,
    const float* __restrict__ beta_read, const float* __restrict__ by_gamma, const float* __restrict__ by_beta,
    float* __restrict__ partial, int num_parts, int num_pixels) {
  char* tile = shared;
  char* factors = shared + TILE_BYTES;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int image = blockIdx.x / (HEIGHT / ROWS), first_row = blockIdx.x % (HEIGHT / ROWS) * ROWS;

  // The weight.
#pragma unroll 4
  for (int i = thread; i < WEIGHT_ROWS * (ROW_CHANNELS / 8); i += THREADS) {
    const int row = i / (ROW_CHANNELS / 8), chunk = i % (ROW_CHANNELS / 8);
    // In memory: output channel, tap, input channel. In the tile: tap, output channel, input channel.
    const int tap = row % 9, output = row / 9, outputs = WEIGHT_ROWS / 9;
    *(Chunk*)(factors + (tap * outputs + output) * WEIGHT_PITCH + 16 * chunk) = loaded(weight + 8 * i);
  }
  // The tile with its border. A thread always has the same channels.
  {
    const int chunk = thread % (IN / 8);
#if NORM || NORM_BACKWARD
    float centre[8], slope[8], shift[8], width[8], mean_gs[8];
    for (int k = 0; k < 8; k++) {
      const int channel = 8 * chunk + k;
      centre[k] = mean_read[channel];
      slope[k] = scale_read[channel] * gamma_read[channel];
      shift[k] = NORM ? beta_read[channel] : by_beta[channel] / num_pixels;
      width[k] = NORM ? 0.0f : scale_read[channel];
      mean_gs[k] = NORM ? 0.0f : by_gamma[channel] / num_pixels;
    }
#endif
    const int step = THREADS / (IN / 8), all = (ROWS + 2) * (WIDTH + 2);
    for (int start = thread / (IN / 8); start < all; start += BATCH * step) {
      Chunk value[BATCH], before[BATCH];
      int offset[BATCH];  // -1 outside of the image
#pragma unroll
      for (int i = 0; i < BATCH; i++) {  // Several loads are under way at once.
        const int pixel = start + i * step, column = pixel % (WIDTH + 2) - 1, row = first_row + pixel / (WIDTH + 2) - 1;
        const bool there = pixel < all && column >= 0 && column < WIDTH && row >= 0 && row < HEIGHT;
        offset[i] = there ? ((image * HEIGHT + row) * WIDTH + column) * IN + 8 * chunk : -1;
        value[i] = before[i] = {{0, 0, 0, 0}};
        if (there) value[i] = loaded(x + offset[i]);
#if NORM_BACKWARD
        if (there) before[i] = loaded(s_read + offset[i]);
#endif
      }
#pragma unroll
      for (int i = 0; i < BATCH; i++) {
        const int pixel = start + i * step;
#if NORM || NORM_BACKWARD
        if (offset[i] >= 0) {
          float number[8];
          for (int k = 0; k < 8; k++) {
            const float given = part(value[i], k);
#if NORM
            number[k] = fmaxf((given - centre[k]) * slope[k] + shift[k], 0.0f);
#else
            number[k] = slope[k] * (given - shift[k] - (part(before[i], k) - centre[k]) * width[k] * mean_gs[k]);
#endif
          }
          for (int k = 0; k < 4; k++) value[i].v[k] = rounded(number[2 * k], number[2 * k + 1]);
          if (pixel >= WIDTH + 2 && pixel < all - WIDTH - 2) store(read + offset[i], value[i]);
        }
#endif
        if (pixel < all) *(Chunk*)(tile + pixel * PITCH + 16 * chunk) = value[i];
      }
    }
  }
  __syncthreads();

  float total[MT][NT][4];
  for (int m = 0; m < MT; m++)
    for (int n = 0; n < NT; n++)
      for (int k = 0; k < 4; k++) total[m][n][k] = 0.0f;
  const char* source[MT];
  for (int m = 0; m < MT; m++) {
    const int pixel = warp * EACH + 16 * m + lane % 16;
    source[m] = tile + ((pixel / WIDTH + 1) * (WIDTH + 2) + pixel % WIDTH + 1) * PITCH + 16 * (lane / 16);
  }
#if BACKWARD
  const char* factor = factors + (lane % 16) * WEIGHT_PITCH + 16 * (lane / 16);
#else
  const char* factor = factors + (lane % 8 + 8 * (lane / 16)) * WEIGHT_PITCH + 16 * (lane / 8 % 2);
#endif
#pragma unroll
  for (int tap = 0; tap < 9; tap++) {
    const int down = tap / 3 - 1, right = tap % 3 - 1;
    const int moved = (BACKWARD ? -1 : 1) * (down * (WIDTH + 2) + right) * PITCH;
    const char* of_tap = factor + tap * (WEIGHT_ROWS / 9) * WEIGHT_PITCH;
#pragma unroll
    for (int k = 0; k < KT; k++) {
      u32 b[NT / 2][4];
#pragma unroll
      for (int n = 0; n < NT / 2; n++)
#if BACKWARD
        load_transposed(b[n], of_tap + 16 * k * WEIGHT_PITCH + 32 * n);
#else
        load_matrices(b[n], of_tap + 16 * n * WEIGHT_PITCH + 32 * k);
#endif
#pragma unroll
      for (int m = 0; m < MT; m++) {
        u32 a[4];
        load_matrices(a, source[m] + moved + 32 * k);
#pragma unroll
        for (int n = 0; n < NT; n++) multiply(total[m][n], a, b[n / 2][2 * (n % 2)], b[n / 2][2 * (n % 2) + 1]);
      }
    }
  }
  __syncthreads();  // All warps have read tile and weight, whose place the sums take.
  for (int m = 0; m < MT; m++)
    for (int n = 0; n < NT; n++) {
      const int pixel = warp * EACH + 16 * m + lane / 4, channel = 8 * n + 2 * (lane % 4);
      float* at = (float*)(shared + pixel * OUT_PITCH) + channel;
      at[0] = total[m][n][0];
      at[1] = total[m][n][1];
      at = (float*)(shared + (pixel + 8) * OUT_PITCH) + channel;
      at[0] = total[m][n][2];
      at[1] = total[m][n][3];
    }
  __syncthreads();

  const int chunk = thread % CHUNKS;
  const size_t begin = ((size_t)(image * HEIGHT + first_row) * WIDTH) * OUT + 8 * chunk;
  float one[8], two[8], pilot[8];
  for (int k = 0; k < 8; k++) {
    one[k] = two[k] = 0.0f;
    pilot[k] = ((float*)shared)[8 * chunk + k];  // Squares around a value of the tile lose few digits.
  }
#if MASK
  float centre[8], width[8], slope[8], shift[8];
  for (int k = 0; k < 8; k++) {
    centre[k] = mean[8 * chunk + k];
    width[k] = scale[8 * chunk + k];
    slope[k] = gamma[8 * chunk + k];
    shift[k] = beta[8 * chunk + k];
  }
#endif
#pragma unroll 4
  for (int pixel = thread / CHUNKS; pixel < PIXELS; pixel += STEP) {
    const float* at = (float*)(shared + pixel * OUT_PITCH) + 8 * chunk;
    const size_t offset = begin + (size_t)pixel * OUT;
    float value[8];
    for (int k = 0; k < 8; k++) value[k] = at[k];
#if ADD
    {
      const Chunk other = loaded(added + offset);
      for (int k = 0; k < 8; k++) value[k] += part(other, k);
    }
#endif
    Chunk out;
#if MASK
    const Chunk before = loaded(s + offset);
    float normed[8];
    for (int k = 0; k < 8; k++) {
      normed[k] = (part(before, k) - centre[k]) * width[k];
      if (!(normed[k] * slope[k] + shift[k] > 0.0f)) value[k] = 0.0f;
    }
#endif
    for (int k = 0; k < 4; k++) out.v[k] = rounded(value[2 * k], value[2 * k + 1]);
    store(y + offset, out);
    for (int k = 0; k < 8; k++) {
      const float written = part(out, k);
#if MASK
      one[k] += written;
      two[k] += written * normed[k];
#else
      const float away = written - pilot[k];
      one[k] += away;
      two[k] += away * away;
#endif
    }
  }
  // Sums over the threads with the same channels.
  for (int k = 0; k < 8; k++)
    for (int distance = 16; distance >= CHUNKS; distance /= 2) {
      one[k] += __shfl_xor_sync(0xffffffffu, one[k], distance);
      two[k] += __shfl_xor_sync(0xffffffffu, two[k], distance);
    }
  __syncthreads();
  float* sums = (float*)shared;  // warps x 2 x OUT
  if (lane < CHUNKS)
    for (int k = 0; k < 8; k++) {
      sums[(2 * warp) * OUT + 8 * chunk + k] = one[k];
      sums[(2 * warp + 1) * OUT + 8 * chunk + k] = two[k];
    }
  if (thread < CHUNKS)
    for (int k = 0; k < 8; k++) sums[2 * WARPS * OUT + 8 * chunk + k] = pilot[k];
  __syncthreads();
  for (int channel = thread; channel < OUT; channel += THREADS) {
    float first = 0.0f, second = 0.0f;
    for (int w = 0; w < WARPS; w++) {
      first += sums[2 * w * OUT + channel];
      second += sums[(2 * w + 1) * OUT + channel];
    }
#if !MASK
    const float offset = first / PIXELS;
    second = fmaxf(second - first * offset, 0.0f);
    first = sums[2 * WARPS * OUT + channel] + offset;
#endif
    partial[channel * num_parts + blockIdx.x] = first;
    partial[(OUT + channel) * num_parts + blockIdx.x] = second;
  }
}
