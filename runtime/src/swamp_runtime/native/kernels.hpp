// The inner loops. They are compiled once for each instruction set; the best that the processor has is chosen when the library is loaded.
#pragma once

#include <stdint.h>

namespace swamp {

// How the int8 numbers of an image lie in the workspace. Positions are counted from the image's first pixel, row by row; a channel's are
// `stride` apart from the next one's. There is a copy for every horizontal distance at which the image is read, moved by that distance, with
// what stands for zero beyond the edges: position p is stored at offset + channel · stride + copies[i] + p for each i.
struct Form {
    int64_t offset = 0, stride = 0;
    int32_t num_copies = 0;
    const int64_t *copies = nullptr;
    const uint16_t *const *inside_bits = nullptr;  // for each copy: one bit for each of sixteen positions, whether it stays within its row
    float inverse = 1;  // a number x is stored as round(x · inverse) + zero, between 0 and 127
    int32_t zero = 0;
};

constexpr int MAX_BYTE_FORMS = 2;

// In which forms a result is stored.
struct Target {
    int32_t has_floats = 0, num_bytes = 0;
    int64_t offset = 0, stride = 0;  // of the floats
    Form bytes[MAX_BYTE_FORMS];
};

// Channels that are sums of taps: numbers of other images at fixed distances, each times a weight. Taps into images of floats are grouped by
// their horizontal distance. The sum of a group is moved by that distance and cut off at the edges as a whole, so that all reads are aligned
// and images have no borders at their sides. Taps into int8 images come in fours.
struct Sum {
    int32_t num_groups = 1;  // the first has the distance 0
    const int32_t *shifts = nullptr;  // the distances of the groups
    const uint32_t *const *inside = nullptr;  // for each group and position: all bits set where the moved number lies within its row
    const uint16_t *const *inside_bits = nullptr;  // the same, one bit for each of sixteen positions
    int32_t chains = 1;  // sums of a group that are added up in turns: 4 for images of one vector, 2 for images of two to four
    int32_t whole_rows = 0;  // tiles consist of whole rows, so that nothing comes from beyond a tile
    const int32_t *first = nullptr, *distance = nullptr;  // of the taps of each channel and group, one entry more at the end
    const float *weight = nullptr, *bias = nullptr;
    const int32_t *first_four = nullptr, *four_distances = nullptr, *four_weights = nullptr;  // null: no int8; four weights in an integer
    const float *scale = nullptr;  // of each channel's int8 sum
    int32_t relu = 0, num_targets = 1;
    Target targets[2];
    const float *second_scale = nullptr, *second_bias = nullptr;  // the second target's numbers are those of the first times this plus that
    int32_t second_relu = 0;
};

enum Activation : int32_t { RELU, RELU6, LEAKY_RELU, ELU, GELU, GELU_TANH, SILU, SIGMOID, TANH, HARDSWISH, HARDSIGMOID, SOFTPLUS, MISH };

struct Kernels {
    const char *name;
    int32_t width;  // floats in a vector
    bool keeps_sides;  // int8 copies are stored without their positions beyond a row; else they must be cleared
    int32_t most;  // positions that a call of `sum` takes at most
    // Positions [begin, end) of channels [first, last).
    void (*sum)(const Sum &sum, float *work, uint8_t *bytes, int64_t first, int64_t last, int64_t begin, int64_t end);
    void (*store)(const Form &form, uint8_t *bytes, const float *from, int64_t channel, int64_t count);  // one channel as int8
    // to[y][x] = from[every_y · y][every_x · x]; rows are `pitch` and `to_pitch` apart.
    void (*pick)(const float *from, int64_t pitch, int64_t every_y, int64_t every_x, float *to, int64_t to_pitch, int64_t rows, int64_t columns);
    // to[x][y] = from[y][x] for a matrix (rows, columns).
    void (*transpose)(const float *from, int64_t pitch, float *to, int64_t to_pitch, int64_t rows, int64_t columns);
    float (*total)(const float *from, int64_t count);
    void (*activate)(Activation kind, float slope, const float *from, float *to, int64_t count);
    // C = alpha A B: A (m, k) with distances `row` and `column` between its numbers, B (k, n) and C (m, n) with rows that are not interrupted.
    void (*multiply)(int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t row, int64_t column, const float *b, int64_t ldb,
                     float *c, int64_t ldc);
    // Softmax down the columns of a matrix (rows, columns). Rows whose `seen` is 0 count as nothing; `causal`: row > column as well.
    void (*softmax)(float *matrix, int64_t rows, int64_t columns, int64_t ld, const uint8_t *seen, bool causal);
    // (x - mean) / deviation of each column, times weight plus bias of each row; rows are `stride` apart. `scratch` has 2 · columns numbers.
    void (*normalise)(const float *from, int64_t from_stride, float *to, int64_t to_stride, int64_t rows, int64_t columns, const float *weight,
                      const float *bias, float eps, float *scratch);
};

const Kernels &kernels_generic();
const Kernels &kernels_avx2();
const Kernels &kernels_avx512();
const Kernels &kernels();  // the best for this processor

}  // namespace swamp
