// Computes sparse networks on a CPU. Every layer is one operation: each channel of an output is a sum (or a maximum) of pixels of stored
// images, each times a weight. A tile of outputs stays in registers while the loop goes over the surviving weights of its channel, so that a
// pruned weight costs nothing and a surviving one costs a load and a multiply-add.
//
// An image is stored channel by channel; a pixel holds `lanes` numbers, one for each image of a block. There are zeros between and around
// the rows, so that a neighbouring pixel is always at a fixed distance, in every row. Pixels, weights and distances are data: nothing here
// depends on the network.

#include <algorithm>
#include <cstdint>

namespace {

// The number of floats in a register, and of registers that are summed at once. For vectors wider than its registers gcc makes slow code.
#if defined(__AVX512F__)
constexpr int WIDTH = 16, TILE = 6;
#elif defined(__AVX__)
constexpr int WIDTH = 8, TILE = 12;
#else
constexpr int WIDTH = 4, TILE = 12;
#endif
constexpr int BLOCK = 8;  // the only number of lanes besides 1

typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4)));

inline vec load(const float *from) { return *reinterpret_cast<const vec *>(from); }
inline void store(float *to, vec value) { *reinterpret_cast<vec *>(to) = value; }
inline vec larger(vec a, vec b) { return a < b ? b : a; }  // returns a if a is NaN

}  // namespace

struct Step {
    int32_t kind;  // SUM, MAXIMUM or PHASES
    int32_t relu;
    int32_t joined;  // reads the step before at its own pixel only, so that both run tile by tile
    int32_t channels, height, width, pitch, lanes;  // of the output
    int64_t out, stride;  // offset of its first pixel in the workspace, and distance between channels
    const int32_t *first;  // index of each channel's first weight; one more entry at the end
    const int32_t *distance;  // for each weight, the offset in the workspace of the pixel that it multiplies, for the output's first pixel
    const float *weight, *bias;
    int64_t in, in_stride;  // PHASES: the image whose pixels are sorted by the remainders of their coordinates
    int32_t in_height, in_width, in_pitch, every;
};

enum { SUM, MAXIMUM, PHASES };

namespace {

template <int V, bool MAX>
void tile(const Step &step, float *work, int64_t offset) {
    const float *from = work + offset;
    for (int channel = 0; channel < step.channels; channel++) {
        vec sum[V];
        const int32_t begin = step.first[channel], end = step.first[channel + 1];
        for (int v = 0; v < V; v++) sum[v] = MAX ? load(from + step.distance[begin] + v * WIDTH) : vec{} + step.bias[channel];
        for (int32_t t = begin; t < end; t++) {
            const float *source = from + step.distance[t];
            const vec weight = vec{} + step.weight[t];
            for (int v = 0; v < V; v++) {
                const vec value = load(source + v * WIDTH);
                sum[v] = MAX ? larger(sum[v], value) : sum[v] + weight * value;
            }
        }
        float *to = work + step.out + channel * step.stride + offset;
        for (int v = 0; v < V; v++) store(to + v * WIDTH, step.relu ? larger(sum[v], vec{}) : sum[v]);
    }
}

template <int V>
void sized(const Step &step, float *work, int64_t offset, int vectors) {
    if constexpr (V > 1) {
        if (vectors < V) return sized<V - 1>(step, work, offset, vectors);
    }
    step.kind == MAXIMUM ? tile<V, true>(step, work, offset) : tile<V, false>(step, work, offset);
}

int64_t vectors_of(const Step &step) { return (int64_t(step.height) * step.pitch * step.lanes + WIDTH - 1) / WIDTH; }

// Sets a few numbers to zero; a call of memset would take longer.
inline void zero(float *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        to[i] = 0.0f;
        asm volatile("");  // keeps compilers from calling memset
    }
}

// Clears the borders between the rows and behind the last one, which tiles have overwritten.
void clear_borders(const Step &step, float *work) {
    const int64_t row = int64_t(step.pitch) * step.lanes, inside = int64_t(step.width) * step.lanes, end = vectors_of(step) * WIDTH;
    for (int channel = 0; channel < step.channels; channel++) {
        float *image = work + step.out + channel * step.stride;
        for (int64_t y = 0; y < step.height; y++) zero(image + y * row + inside, row - inside);
        zero(image + step.height * row, end - step.height * row);
    }
}

// Computes joined steps: all of them for one tile, then for the next.
void sums(const Step *steps, int count, float *work) {
    const int64_t vectors = vectors_of(*steps), tiles = (vectors + TILE - 1) / TILE;
    for (int64_t i = 0, begin = 0; i < tiles; i++) {
        const int64_t end = vectors * (i + 1) / tiles;  // tiles of nearly equal size
        for (int s = 0; s < count; s++) sized<TILE>(steps[s], work, begin * WIDTH, int(end - begin));
        begin = end;
    }
    for (int s = 0; s < count; s++) clear_borders(steps[s], work);
}

// Collects pixels whose coordinates have the same remainders in one channel, so that later reads have no stride.
template <int LANES>
void phases(const Step &step, float *work) {
    const int every = step.every;
    float *to = work + step.out;
    for (int channel = 0; channel < step.channels; channel++, to += step.stride) {
        const int source = channel / (every * every), a = channel / every % every, b = channel % every;
        const float *from = work + step.in + source * step.in_stride;
        for (int y = 0; y < step.height; y++) {
            const float *row = from + (int64_t(y * every + a) * step.in_pitch + b) * LANES;
            float *out = to + int64_t(y) * step.pitch * LANES;
            // If a side is not a multiple of `every`, some of these channels have one pixel less.
            const int inside = y * every + a < step.in_height ? std::max(step.in_width - b + every - 1, 0) / every : 0;
            for (int x = 0; x < inside; x++) std::copy_n(row + x * every * LANES, LANES, out + x * LANES);
            zero(out + inside * LANES, int64_t(step.width - inside) * LANES);
        }
    }
}

}  // namespace

// Computes a block of up to `lanes` images. The first step only describes the input's position in the workspace; the last step's channels
// are the outputs.
extern "C" void swamp_run(const Step *steps, int count, float *work, const float *images, float *answers, int num_images) {
    const Step &input = steps[0], &last = steps[count - 1];
    for (int image = 0; image < num_images; image++)
        for (int channel = 0; channel < input.channels; channel++)
            for (int y = 0; y < input.height; y++) {
                float *row = work + input.out + channel * input.stride + int64_t(y) * input.pitch * input.lanes + image;
                for (int x = 0; x < input.width; x++) row[int64_t(x) * input.lanes] = *images++;
            }
    for (int s = 1; s < count;) {
        if (steps[s].kind == PHASES) {
            steps[s].lanes == 1 ? phases<1>(steps[s], work) : phases<BLOCK>(steps[s], work);
            s++;
            continue;
        }
        int joined = 1;
        while (s + joined < count && steps[s + joined].joined) joined++;
        sums(steps + s, joined, work);
        s += joined;
    }
    for (int image = 0; image < num_images; image++)
        for (int channel = 0; channel < last.channels; channel++) *answers++ = work[last.out + channel * last.stride + image];
}
