// Sparse networks on a CPU. Everything that such a network computes is one operation: each channel of an output is a sum (or a maximum) of
// places of stored images, each times a weight. A tile of outputs stays in registers while the surviving weights of its channel go by, so a
// pruned weight costs nothing and a surviving one a load and a multiply-add.
//
// An image lies in memory channel by channel; a place holds `lanes` numbers, one for each image of a block. Between rows and around them are
// zeros, so that a neighbouring place is always a fixed distance away, and a row is no different from the next. Which places, weights and
// distances there are is data: nothing here depends on the network.

#include <algorithm>
#include <cstdint>

namespace {

// floats of a register, and registers that are summed at once. Of vectors wider than its registers gcc makes slow code.
#if defined(__AVX512F__)
constexpr int WIDTH = 16, TILE = 6;
#elif defined(__AVX__)
constexpr int WIDTH = 8, TILE = 12;
#else
constexpr int WIDTH = 4, TILE = 12;
#endif
constexpr int BLOCK = 8;  // lanes, where there is more than one

typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4)));

inline vec load(const float *from) { return *reinterpret_cast<const vec *>(from); }
inline void store(float *to, vec value) { *reinterpret_cast<vec *>(to) = value; }
inline vec larger(vec a, vec b) { return a < b ? b : a; }  // a NaN of a stays

}  // namespace

struct Step {
    int32_t kind;  // SUM, MAXIMUM or PHASES
    int32_t relu;
    int32_t joined;  // reads nothing but what the step before writes in the same places: both run tile by tile
    int32_t channels, height, width, pitch, lanes;  // of the output
    int64_t out, stride;  // its first place in the workspace, and from channel to channel
    const int32_t *first;  // for each channel, its first weight; one more at the end
    const int32_t *distance;  // for each weight, what it is multiplied with: distance in the workspace from the output's own place number
    const float *weight, *bias;
    int64_t in, in_stride;  // PHASES: the image that is split by the remainders of its coordinates
    int32_t in_height, in_width, in_pitch, every;
};

enum { SUM, MAXIMUM, PHASES };

namespace {

template <int V, bool MAX>
void tile(const Step &step, float *work, int64_t place) {
    const float *from = work + place;
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
        float *to = work + step.out + channel * step.stride + place;
        for (int v = 0; v < V; v++) store(to + v * WIDTH, step.relu ? larger(sum[v], vec{}) : sum[v]);
    }
}

template <int V>
void sized(const Step &step, float *work, int64_t place, int vectors) {
    if constexpr (V > 1) {
        if (vectors < V) return sized<V - 1>(step, work, place, vectors);
    }
    step.kind == MAXIMUM ? tile<V, true>(step, work, place) : tile<V, false>(step, work, place);
}

int64_t vectors_of(const Step &step) { return (int64_t(step.height) * step.pitch * step.lanes + WIDTH - 1) / WIDTH; }

// For a number or a few, where a call of memset would take longer than the work.
inline void zero(float *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        to[i] = 0.0f;
        asm volatile("");  // keeps compilers from making that call
    }
}

// Tiles have also written between the rows and behind the last one.
void clear_borders(const Step &step, float *work) {
    const int64_t row = int64_t(step.pitch) * step.lanes, inside = int64_t(step.width) * step.lanes, end = vectors_of(step) * WIDTH;
    for (int channel = 0; channel < step.channels; channel++) {
        float *image = work + step.out + channel * step.stride;
        for (int64_t y = 0; y < step.height; y++) zero(image + y * row + inside, row - inside);
        zero(image + step.height * row, end - step.height * row);
    }
}

// Steps that are joined: all of them for one tile, then for the next.
void sums(const Step *steps, int count, float *work) {
    const int64_t vectors = vectors_of(*steps), tiles = (vectors + TILE - 1) / TILE;
    for (int64_t i = 0, begin = 0; i < tiles; i++) {
        const int64_t end = vectors * (i + 1) / tiles;  // tiles of nearly equal size
        for (int s = 0; s < count; s++) sized<TILE>(steps[s], work, begin * WIDTH, int(end - begin));
        begin = end;
    }
    for (int s = 0; s < count; s++) clear_borders(steps[s], work);
}

// Places whose coordinates leave the same remainders become an image of their own; then strides are none.
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
            // where sides are no multiples, some parts have a place less
            const int inside = y * every + a < step.in_height ? std::max(step.in_width - b + every - 1, 0) / every : 0;
            for (int x = 0; x < inside; x++) std::copy_n(row + x * every * LANES, LANES, out + x * LANES);
            zero(out + inside * LANES, int64_t(step.width - inside) * LANES);
        }
    }
}

}  // namespace

// One block of up to `lanes` images through the network. The first step only says how the input lies in the workspace, the last step's
// channels are the answer.
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
