// This file is compiled with different options for each instruction set, so it must not contain anything with external linkage but one
// function whose name depends on the set: the linker would keep one copy of inline functions of the standard library for all of them.

#include "kernels.hpp"

#include <math.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)
#include <immintrin.h>
#define SET avx512
#define KERNELS kernels_avx512
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define SET avx2
#define KERNELS kernels_avx2
#else
#define SET generic
#define KERNELS kernels_generic
#endif
#define NAME_OF(set) #set
#define NAME(set) NAME_OF(set)

namespace swamp {
namespace {

// Numbers in a vector, and vectors that are summed at once. Compilers make slow code for vectors that are wider than the registers.
#if defined(__AVX512F__)
constexpr int WIDTH = 16, MOST = 8;
#elif defined(__AVX2__)
constexpr int WIDTH = 8, MOST = 12;
#else
constexpr int WIDTH = 4, MOST = 16;
#endif
constexpr int FOURS = 64;  // positions of int8 images that are summed at once

typedef float vec __attribute__((vector_size(4 * WIDTH), aligned(4)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH), aligned(4)));

inline vec load(const float *from) { return *reinterpret_cast<const vec *>(from); }
inline void store(float *to, vec value) { *reinterpret_cast<vec *>(to) = value; }
inline vec all(float value) { return vec{} + value; }
inline vec larger(vec a, vec b) { return a < b ? b : a; }  // returns a if a is NaN
inline vec smaller(vec a, vec b) { return b < a ? b : a; }

inline void store_some(float *to, vec value, int64_t count) {
    if (count >= WIDTH) return store(to, value);
    for (int i = 0; i < count; i++) to[i] = value[i];
}

// -- functions -------------------------------------------------------------------------------------------------------------------------

// e^x with a relative error of 2e-7, for x between -87 and 88; smaller and larger ones give the values there.
inline vec exponential(vec x) {
    x = smaller(larger(x, all(-87.0f)), all(88.0f));
    const vec shifted = x * all(1.44269504f) + all(12582912.0f);  // adding 1.5 · 2^23 rounds to a whole number
    const vec whole = shifted - all(12582912.0f);
    const vec rest = (x - whole * all(0.693359375f)) - whole * all(-2.12194440e-4f);
    vec y = all(1.9875691500e-4f);
    y = y * rest + all(1.3981999507e-3f);
    y = y * rest + all(8.3334519073e-3f);
    y = y * rest + all(4.1665795894e-2f);
    y = y * rest + all(1.6666665459e-1f);
    y = y * rest + all(5.0000001201e-1f);
    y = y * rest * rest + rest + all(1.0f);
    const ivec exponent = (__builtin_convertvector(whole, ivec) + 127) << 23;
    vec power;
    memcpy(&power, &exponent, sizeof power);
    return y * power;
}

inline vec sigmoid(vec x) { return all(1.0f) / (all(1.0f) + exponential(-x)); }

inline vec tangent(vec x) {
    // Near 0 the quotient loses digits; there a polynomial is better.
    const vec square = x * x, e = exponential(x + x);
    const vec series = x * (all(1.0f) + square * (all(-0.33333333f) + square * (all(0.13333333f) + square * all(-0.05396825f))));
    const vec quotient = all(1.0f) - all(2.0f) / (e + all(1.0f));
    return square < all(0.02f) ? series : quotient;
}

// Abramowitz and Stegun, 7.1.26: the absolute error is at most 1.5e-7.
inline vec error_function(vec x) {
    const vec a = x < all(0.0f) ? -x : x, t = all(1.0f) / (all(1.0f) + all(0.3275911f) * a);
    const vec series = ((((all(1.061405429f) * t + all(-1.453152027f)) * t + all(1.421413741f)) * t + all(-0.284496736f)) * t + all(0.254829592f)) * t;
    const vec y = all(1.0f) - series * exponential(-a * a);
    return x < all(0.0f) ? -y : y;
}

inline vec logarithm_of_one_plus_exponential(vec x) {
    vec y;
    for (int i = 0; i < WIDTH; i++) y[i] = x[i] > 20.0f ? x[i] : log1pf(expf(x[i]));
    return y;
}

template <Activation KIND>
inline vec activated(vec x, float slope) {
    const vec zero{}, one = all(1.0f);
    if (KIND == RELU) return larger(x, zero);
    if (KIND == RELU6) return smaller(larger(x, zero), all(6.0f));
    if (KIND == LEAKY_RELU) return x < zero ? x * slope : x;
    if (KIND == ELU) return x < zero ? (exponential(x) - one) * slope : x;
    if (KIND == GELU) return all(0.5f) * x * (one + error_function(x * all(0.70710678f)));
    if (KIND == GELU_TANH) return all(0.5f) * x * (one + tangent(all(0.79788456f) * (x + all(0.044715f) * x * x * x)));
    if (KIND == SILU) return x * sigmoid(x);
    if (KIND == SIGMOID) return sigmoid(x);
    if (KIND == TANH) return tangent(x);
    if (KIND == HARDSWISH) return x * smaller(larger(x + all(3.0f), zero), all(6.0f)) * all(1.0f / 6);
    if (KIND == HARDSIGMOID) return smaller(larger(x + all(3.0f), zero), all(6.0f)) * all(1.0f / 6);
    if (KIND == SOFTPLUS) return logarithm_of_one_plus_exponential(x);
    return x * tangent(logarithm_of_one_plus_exponential(x));
}

template <Activation KIND>
void each(float slope, const float *from, float *to, int64_t count) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) store(to + i, activated<KIND>(load(from + i), slope));
    if (i < count) {
        vec rest{};
        for (int64_t k = i; k < count; k++) rest[k - i] = from[k];
        store_some(to + i, activated<KIND>(rest, slope), count - i);
    }
}

void activate(Activation kind, float slope, const float *from, float *to, int64_t count) {
    switch (kind) {
        case RELU: return each<RELU>(slope, from, to, count);
        case RELU6: return each<RELU6>(slope, from, to, count);
        case LEAKY_RELU: return each<LEAKY_RELU>(slope, from, to, count);
        case ELU: return each<ELU>(slope, from, to, count);
        case GELU: return each<GELU>(slope, from, to, count);
        case GELU_TANH: return each<GELU_TANH>(slope, from, to, count);
        case SILU: return each<SILU>(slope, from, to, count);
        case SIGMOID: return each<SIGMOID>(slope, from, to, count);
        case TANH: return each<TANH>(slope, from, to, count);
        case HARDSWISH: return each<HARDSWISH>(slope, from, to, count);
        case HARDSIGMOID: return each<HARDSIGMOID>(slope, from, to, count);
        case SOFTPLUS: return each<SOFTPLUS>(slope, from, to, count);
        case MISH: return each<MISH>(slope, from, to, count);
    }
}

// Reads, but does not store, up to 31 numbers beyond the last one, which lie in the workspace as well.
inline void every_second(const float *from, float *to, int64_t count) {
#if defined(__AVX512F__)
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    for (int64_t i = 0; i < count; i += WIDTH) {
        const auto some = __mmask16(count - i < WIDTH ? (1 << (count - i)) - 1 : 0xFFFF);
        _mm512_mask_storeu_ps(to + i, some, _mm512_permutex2var_ps((__m512)load(from + 2 * i), even, (__m512)load(from + 2 * i + WIDTH)));
    }
#else
    for (int64_t i = 0; i < count; i++) to[i] = from[2 * i];
#endif
}

void pick(const float *from, int64_t pitch, int64_t every_y, int64_t every_x, float *to, int64_t to_pitch, int64_t rows, int64_t columns) {
    for (int64_t y = 0; y < rows; y++, from += every_y * pitch, to += to_pitch) {
        if (every_x == 1)
            memcpy(to, from, size_t(columns) * sizeof(float));
        else if (every_x == 2)
            every_second(from, to, columns);
        else
            for (int64_t x = 0; x < columns; x++) to[x] = from[every_x * x];
    }
}

void transpose(const float *from, int64_t pitch, float *to, int64_t to_pitch, int64_t rows, int64_t columns) {
    constexpr int SIDE = 16;  // numbers in a line of the cache
    for (int64_t y = 0; y < rows; y += SIDE)
        for (int64_t x = 0; x < columns; x += SIDE) {
            const int64_t height = rows - y < SIDE ? rows - y : SIDE, width = columns - x < SIDE ? columns - x : SIDE;
            float block[SIDE][SIDE];
            if (height == SIDE && width == SIDE) {
                for (int i = 0; i < SIDE; i++)
                    for (int j = 0; j < SIDE; j++) block[j][i] = from[(y + i) * pitch + x + j];
                for (int j = 0; j < SIDE; j++) memcpy(to + (x + j) * to_pitch + y, block[j], sizeof block[j]);
                continue;
            }
            for (int64_t i = 0; i < height; i++)
                for (int64_t j = 0; j < width; j++) to[(x + j) * to_pitch + y + i] = from[(y + i) * pitch + x + j];
        }
}

float total(const float *from, int64_t count) {
    vec sums{};
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) sums += load(from + i);
    float found = 0;
    for (; i < count; i++) found += from[i];
    for (int lane = 0; lane < WIDTH; lane++) found += sums[lane];
    return found;
}

// -- int8 ------------------------------------------------------------------------------------------------------------------------------

inline uint8_t as_byte(float x, float inverse, int32_t zero) {
    const float scaled = nearbyintf(x * inverse) + float(zero);
    return scaled >= 127.0f ? 127 : scaled > 0.0f ? uint8_t(scaled) : 0;  // 0 for NaN
}

// Stores the first `count` numbers of a vector at a position of all copies; `position` is a multiple of the vector's width.
inline void store_bytes(const Form &form, uint8_t *bytes, int64_t channel, int64_t position, vec value, int64_t count) {
    uint8_t *to = bytes + form.offset + channel * form.stride + position;
    alignas(16) uint8_t found[16];
#if defined(__AVX512F__)
    const __m512 scaled = _mm512_add_ps(_mm512_roundscale_ps(_mm512_mul_ps((__m512)value, _mm512_set1_ps(form.inverse)), 8), _mm512_set1_ps(float(form.zero)));
    const __m512 within = _mm512_min_ps(_mm512_max_ps(scaled, _mm512_setzero_ps()), _mm512_set1_ps(127.0f));
    const __m128i numbers = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(within));
    (void)found;
    const auto some = __mmask16(count < WIDTH ? (1 << count) - 1 : 0xFFFF);
    for (int copy = 0; copy < form.num_copies; copy++)
        _mm_mask_storeu_epi8(to + form.copies[copy], some & form.inside_bits[copy][position / WIDTH], numbers);
    return;
#elif defined(__AVX2__)
    const __m256 scaled = _mm256_add_ps(_mm256_round_ps(_mm256_mul_ps((__m256)value, _mm256_set1_ps(form.inverse)), 8), _mm256_set1_ps(float(form.zero)));
    const __m256 within = _mm256_min_ps(_mm256_max_ps(scaled, _mm256_setzero_ps()), _mm256_set1_ps(127.0f));
    const __m256i words = _mm256_cvtps_epi32(within);
    const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i *>(found), _mm_packus_epi16(halves, halves));
#else
    for (int i = 0; i < WIDTH; i++) found[i] = as_byte(value[i], form.inverse, form.zero);
#endif
    for (int copy = 0; copy < form.num_copies; copy++) {
        if (count >= WIDTH)
            memcpy(to + form.copies[copy], found, WIDTH);
        else
            for (int i = 0; i < count; i++) to[form.copies[copy] + i] = found[i];
    }
}

// Stores V vectors, from a position on; of those that end after `end`, what comes before it.
template <int V>
inline void store_vectors(const Form &form, uint8_t *bytes, int64_t channel, int64_t position, int64_t end, const vec *values) {
    int v = 0;
#if defined(__AVX512F__)
    // 64 numbers at once. They are cut off before they are rounded, which gives the same bytes.
    const __m512 inverse = _mm512_set1_ps(form.inverse), least = _mm512_set1_ps(-float(form.zero)), most = _mm512_set1_ps(127.0f - float(form.zero));
    const __m512i zeros = _mm512_set1_epi8(char(form.zero));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);  // Packing takes four numbers of each vector in turns.
    for (; v + 4 <= V && position + (v + 4) * WIDTH <= end; v += 4) {
        const auto whole = [&](int i) { return _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(_mm512_mul_ps((__m512)values[v + i], inverse), least), most)); };
        const __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(whole(0), whole(1)), _mm512_packs_epi32(whole(2), whole(3)));
        const __m512i numbers = _mm512_add_epi8(_mm512_permutexvar_epi32(order, packed), zeros);
        uint8_t *to = bytes + form.offset + channel * form.stride + position + v * WIDTH;
        for (int copy = 0; copy < form.num_copies; copy++) {
            __mmask64 inside;
            memcpy(&inside, form.inside_bits[copy] + position / WIDTH + v, sizeof inside);
            // What is moved beyond its row lands where a zero belongs. Storing that zero takes less time than a store with a mask.
            _mm512_storeu_si512(to + form.copies[copy], _mm512_mask_mov_epi8(zeros, inside, numbers));
        }
    }
#endif
    for (; v < V && position + v * WIDTH < end; v++) store_bytes(form, bytes, channel, position + v * WIDTH, values[v], end - position - v * WIDTH);
}

void store_channel(const Form &form, uint8_t *bytes, const float *from, int64_t channel, int64_t count) {
    constexpr int V = FOURS / WIDTH;
    for (int64_t i = 0; i < count; i += FOURS) {
        vec values[V] = {};
        if (i + FOURS <= count)
            memcpy(values, from + i, sizeof values);
        else
            memcpy(values, from + i, sizeof(float) * size_t(count - i));
        store_vectors<V>(form, bytes, channel, i, count, values);
    }
}

// Adds the int8 taps of a channel at 64 positions. Four taps' numbers are interleaved, so that one instruction multiplies and adds them.
inline void sum_fours(const Sum &sum, const uint8_t *bytes, int64_t channel, int32_t *total) {
    const int32_t begin = sum.first_four[channel], end = sum.first_four[channel + 1];
#if defined(__AVX512F__)
    __m512i s0 = _mm512_setzero_si512(), s1 = s0, s2 = s0, s3 = s0;
    for (int32_t t = begin; t < end; t++) {
        const int32_t *at = sum.four_distances + 4 * int64_t(t);
        const __m512i a = _mm512_loadu_si512(bytes + at[0]), b = _mm512_loadu_si512(bytes + at[1]);
        const __m512i c = _mm512_loadu_si512(bytes + at[2]), d = _mm512_loadu_si512(bytes + at[3]);
        const __m512i ab = _mm512_unpacklo_epi8(a, b), AB = _mm512_unpackhi_epi8(a, b);
        const __m512i cd = _mm512_unpacklo_epi8(c, d), CD = _mm512_unpackhi_epi8(c, d);
        const __m512i weight = _mm512_set1_epi32(sum.four_weights[t]);
        s0 = _mm512_dpbusd_epi32(s0, _mm512_unpacklo_epi16(ab, cd), weight);
        s1 = _mm512_dpbusd_epi32(s1, _mm512_unpackhi_epi16(ab, cd), weight);
        s2 = _mm512_dpbusd_epi32(s2, _mm512_unpacklo_epi16(AB, CD), weight);
        s3 = _mm512_dpbusd_epi32(s3, _mm512_unpackhi_epi16(AB, CD), weight);
    }
    // Each sum has four positions of every sixteen; put them in order.
    const __m512i x0 = _mm512_shuffle_i32x4(s0, s1, 0x44), x1 = _mm512_shuffle_i32x4(s0, s1, 0xEE);
    const __m512i x2 = _mm512_shuffle_i32x4(s2, s3, 0x44), x3 = _mm512_shuffle_i32x4(s2, s3, 0xEE);
    _mm512_storeu_si512(total, _mm512_shuffle_i32x4(x0, x2, 0x88));
    _mm512_storeu_si512(total + 16, _mm512_shuffle_i32x4(x0, x2, 0xDD));
    _mm512_storeu_si512(total + 32, _mm512_shuffle_i32x4(x1, x3, 0x88));
    _mm512_storeu_si512(total + 48, _mm512_shuffle_i32x4(x1, x3, 0xDD));
#elif defined(__AVX2__)
    const __m256i ones = _mm256_set1_epi16(1);
    for (int half = 0; half < 2; half++) {
        __m256i s[4] = {};
        for (int32_t t = begin; t < end; t++) {
            const int32_t *at = sum.four_distances + 4 * int64_t(t);
            const auto numbers = [&](int i) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(bytes + at[i] + 32 * half)); };
            const __m256i a = numbers(0), b = numbers(1), c = numbers(2), d = numbers(3), weight = _mm256_set1_epi32(sum.four_weights[t]);
            const __m256i ab = _mm256_unpacklo_epi8(a, b), AB = _mm256_unpackhi_epi8(a, b);
            const __m256i cd = _mm256_unpacklo_epi8(c, d), CD = _mm256_unpackhi_epi8(c, d);
            const __m256i fours[4] = {_mm256_unpacklo_epi16(ab, cd), _mm256_unpackhi_epi16(ab, cd), _mm256_unpacklo_epi16(AB, CD),
                                      _mm256_unpackhi_epi16(AB, CD)};
            // Numbers below 128 times weights of at most 127: two products fit in 16 bits.
            for (int i = 0; i < 4; i++) s[i] = _mm256_add_epi32(s[i], _mm256_madd_epi16(_mm256_maddubs_epi16(fours[i], weight), ones));
        }
        __m256i *to = reinterpret_cast<__m256i *>(total + 32 * half);
        _mm256_storeu_si256(to, _mm256_permute2x128_si256(s[0], s[1], 0x20));
        _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(s[2], s[3], 0x20));
        _mm256_storeu_si256(to + 2, _mm256_permute2x128_si256(s[0], s[1], 0x31));
        _mm256_storeu_si256(to + 3, _mm256_permute2x128_si256(s[2], s[3], 0x31));
    }
#else
    for (int i = 0; i < FOURS; i++) total[i] = 0;
    for (int32_t t = begin; t < end; t++)
        for (int k = 0; k < 4; k++) {
            const uint8_t *from = bytes + sum.four_distances[4 * int64_t(t) + k];
            const auto weight = int16_t(int8_t(sum.four_weights[t] >> 8 * k));
            for (int i = 0; i < FOURS; i++) total[i] += int16_t(weight * int16_t(from[i]));
        }
#endif
}

#if defined(__AVX512F__)
// The same at 32 and at 16 positions, for small images.
inline void sum_fours_32(const Sum &sum, const uint8_t *bytes, int64_t channel, int32_t *total) {
    __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0;
    for (int32_t t = sum.first_four[channel]; t < sum.first_four[channel + 1]; t++) {
        const int32_t *at = sum.four_distances + 4 * int64_t(t);
        const auto numbers = [&](int i) { return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(bytes + at[i])); };
        const __m256i a = numbers(0), b = numbers(1), c = numbers(2), d = numbers(3), weight = _mm256_set1_epi32(sum.four_weights[t]);
        const __m256i ab = _mm256_unpacklo_epi8(a, b), AB = _mm256_unpackhi_epi8(a, b);
        const __m256i cd = _mm256_unpacklo_epi8(c, d), CD = _mm256_unpackhi_epi8(c, d);
        s0 = _mm256_dpbusd_epi32(s0, _mm256_unpacklo_epi16(ab, cd), weight);
        s1 = _mm256_dpbusd_epi32(s1, _mm256_unpackhi_epi16(ab, cd), weight);
        s2 = _mm256_dpbusd_epi32(s2, _mm256_unpacklo_epi16(AB, CD), weight);
        s3 = _mm256_dpbusd_epi32(s3, _mm256_unpackhi_epi16(AB, CD), weight);
    }
    __m256i *to = reinterpret_cast<__m256i *>(total);
    _mm256_storeu_si256(to, _mm256_permute2x128_si256(s0, s1, 0x20));
    _mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(s2, s3, 0x20));
    _mm256_storeu_si256(to + 2, _mm256_permute2x128_si256(s0, s1, 0x31));
    _mm256_storeu_si256(to + 3, _mm256_permute2x128_si256(s2, s3, 0x31));
}

inline void sum_fours_16(const Sum &sum, const uint8_t *bytes, int64_t channel, int32_t *total) {
    __m128i s0 = _mm_setzero_si128(), s1 = s0, s2 = s0, s3 = s0;
    for (int32_t t = sum.first_four[channel]; t < sum.first_four[channel + 1]; t++) {
        const int32_t *at = sum.four_distances + 4 * int64_t(t);
        const auto numbers = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i *>(bytes + at[i])); };
        const __m128i a = numbers(0), b = numbers(1), c = numbers(2), d = numbers(3), weight = _mm_set1_epi32(sum.four_weights[t]);
        const __m128i ab = _mm_unpacklo_epi8(a, b), AB = _mm_unpackhi_epi8(a, b), cd = _mm_unpacklo_epi8(c, d), CD = _mm_unpackhi_epi8(c, d);
        s0 = _mm_dpbusd_epi32(s0, _mm_unpacklo_epi16(ab, cd), weight);
        s1 = _mm_dpbusd_epi32(s1, _mm_unpackhi_epi16(ab, cd), weight);
        s2 = _mm_dpbusd_epi32(s2, _mm_unpacklo_epi16(AB, CD), weight);
        s3 = _mm_dpbusd_epi32(s3, _mm_unpackhi_epi16(AB, CD), weight);
    }
    __m128i *to = reinterpret_cast<__m128i *>(total);
    _mm_storeu_si128(to, s0);
    _mm_storeu_si128(to + 1, s1);
    _mm_storeu_si128(to + 2, s2);
    _mm_storeu_si128(to + 3, s3);
}
#endif

// -- sums ------------------------------------------------------------------------------------------------------------------------------

template <int V>
inline void store_sums(const Target &target, float *work, uint8_t *bytes, int64_t channel, int64_t begin, int64_t end, const vec *total) {
    if (target.has_floats) {
        float *to = work + target.offset + channel * target.stride + begin;
        if (end - begin >= V * WIDTH)
            for (int v = 0; v < V; v++) store(to + v * WIDTH, total[v]);
        else
            for (int v = 0; v < V; v++) store_some(to + v * WIDTH, total[v], end - begin - v * WIDTH);
    }
    for (int which = 0; which < target.num_bytes; which++) store_vectors<V>(target.bytes[which], bytes, channel, begin, end, total);
}

// Adds the taps [t, stop) at V vectors of positions. Images of few vectors are added in several chains, because an addition waits for the one
// before. The order of additions depends on the image and not on the tile, so that bits do not depend on how threads divide the image.
template <int V, int CHAINS>
inline void add_taps(const Sum &sum, const float *from, int32_t t, int32_t stop, vec *total) {
    if constexpr (CHAINS > 1) {
        if (stop - t >= 2 * CHAINS) {
            vec more[CHAINS - 1][V] = {};
            for (; t + CHAINS <= stop; t += CHAINS) {
                for (int v = 0; v < V; v++) total[v] += load(from + sum.distance[t] + v * WIDTH) * sum.weight[t];
                for (int u = 1; u < CHAINS; u++)
                    for (int v = 0; v < V; v++) more[u - 1][v] += load(from + sum.distance[t + u] + v * WIDTH) * sum.weight[t + u];
            }
            for (int u = 1; u < CHAINS; u++)
                for (int v = 0; v < V; v++) total[v] += more[u - 1][v];
        }
    }
    for (; t < stop; t++) {
        const float *source = from + sum.distance[t];
        const vec weight = all(sum.weight[t]);
        for (int v = 0; v < V; v++) total[v] += weight * load(source + v * WIDTH);
    }
}

// Adds a group's sum, moved by its distance.
template <int V, int CHAINS>
inline void add_group(const Sum &sum, const float *work, int64_t begin, int group, int32_t t, int32_t stop, vec *total) {
    vec part[V] = {};
    const int32_t shift = sum.shifts[group];
#if defined(__AVX512F__)
    if (sum.whole_rows) {
        add_taps<V, CHAINS>(sum, work + begin, t, stop, part);
        const uint16_t *inside = sum.inside_bits[group] + begin / WIDTH;
        const __m512i lanes = _mm512_add_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(shift & 31));
        for (int v = 0; v < V; v++) {
            const __m512 here = (__m512)part[v], before = (__m512)part[v > 0 ? v - 1 : 0], after = (__m512)part[v + 1 < V ? v + 1 : v];
            // Lanes 0 to 15 are those of the first operand, 16 to 31 those of the second; a negative distance counts from the end.
            const __m512 moved = shift > 0 ? _mm512_maskz_permutex2var_ps(inside[v], here, lanes, after) : _mm512_maskz_permutex2var_ps(inside[v], here, lanes, before);
            total[v] += (vec)moved;
        }
        return;
    }
#endif
    add_taps<V, CHAINS>(sum, work + begin + shift, t, stop, part);
    for (int v = 0; v < V; v++) {
        ivec bits, inside = *reinterpret_cast<const ivec *>(sum.inside[group] + begin + v * WIDTH);
        memcpy(&bits, &part[v], sizeof bits);
        bits &= inside;
        memcpy(&part[v], &bits, sizeof bits);
        total[v] += part[v];
    }
}

template <int V, int CHAINS>
void sum_tile(const Sum &sum, float *work, uint8_t *bytes, int64_t first, int64_t last, int64_t begin, int64_t end) {
    for (int64_t channel = first; channel < last; channel++) {
        vec total[V];
        if (sum.first_four) {
            alignas(64) int32_t whole[V * WIDTH + FOURS];
            for (int64_t i = 0; i < V * WIDTH; i += FOURS) {
#if defined(__AVX512F__)
                if (V * WIDTH - i <= 16) {
                    sum_fours_16(sum, bytes + begin + i, channel, whole + i);
                    break;
                }
                if (V * WIDTH - i <= 32) {
                    sum_fours_32(sum, bytes + begin + i, channel, whole + i);
                    break;
                }
#endif
                sum_fours(sum, bytes + begin + i, channel, whole + i);
            }
            for (int v = 0; v < V; v++)
                total[v] = __builtin_convertvector(*reinterpret_cast<const ivec *>(whole + v * WIDTH), vec) * sum.scale[channel] + sum.bias[channel];
        } else {
            for (int v = 0; v < V; v++) total[v] = all(sum.bias[channel]);
        }
        const int32_t *group = sum.first + channel * sum.num_groups;
        add_taps<V, CHAINS>(sum, work + begin, group[0], group[1], total);
        for (int g = 1; g < sum.num_groups; g++)
            if (group[g] < group[g + 1]) add_group<V, CHAINS>(sum, work, begin, g, group[g], group[g + 1], total);
        if (sum.relu)
            for (int v = 0; v < V; v++) total[v] = larger(total[v], vec{});
        store_sums<V>(sum.targets[0], work, bytes, channel, begin, end, total);
        if (sum.num_targets > 1) {
            for (int v = 0; v < V; v++) {
                total[v] = total[v] * sum.second_scale[channel] + sum.second_bias[channel];
                if (sum.second_relu) total[v] = larger(total[v], vec{});
            }
            store_sums<V>(sum.targets[1], work, bytes, channel, begin, end, total);
        }
    }
}

template <int V, int CHAINS>
void sized(const Sum &sum, float *work, uint8_t *bytes, int64_t first, int64_t last, int64_t begin, int64_t end) {
    if constexpr (V > 1) {
        if (end - begin <= (V - 1) * WIDTH) return sized<V - 1, CHAINS>(sum, work, bytes, first, last, begin, end);
    }
    sum_tile<V, CHAINS>(sum, work, bytes, first, last, begin, end);
}

void sum(const Sum &sum, float *work, uint8_t *bytes, int64_t first, int64_t last, int64_t begin, int64_t end) {
    const auto some = sum.chains == 4 ? sized<1, 4> : sum.chains == 2 ? sized<4, 2> : sized<MOST, 1>;
    some(sum, work, bytes, first, last, begin, end);
}

// -- matrices --------------------------------------------------------------------------------------------------------------------------

template <int ROWS, int V>
void block(int64_t k, float alpha, const float *a, int64_t row, int64_t column, const float *b, int64_t ldb, float *c, int64_t ldc, int64_t columns) {
    vec total[ROWS][V] = {};
    for (int64_t i = 0; i < k; i++, a += column, b += ldb) {
        vec numbers[V];
        if (columns >= V * WIDTH) {
            for (int v = 0; v < V; v++) numbers[v] = load(b + v * WIDTH);
        } else {
            for (int v = 0; v < V; v++)
                for (int j = 0; j < WIDTH; j++) numbers[v][j] = v * WIDTH + j < columns ? b[v * WIDTH + j] : 0.0f;
        }
        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < V; v++) total[r][v] += numbers[v] * a[r * row];
    }
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < V; v++) store_some(c + r * ldc + v * WIDTH, total[r][v] * alpha, columns - v * WIDTH);
}

void multiply(int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t row, int64_t column, const float *b, int64_t ldb, float *c,
              int64_t ldc) {
    constexpr int V = 2, ROWS = 4;
    for (int64_t j = 0; j < n; j += V * WIDTH) {
        int64_t i = 0;
        for (; i + ROWS <= m; i += ROWS) block<ROWS, V>(k, alpha, a + i * row, row, column, b + j, ldb, c + i * ldc + j, ldc, n - j);
        for (; i < m; i++) block<1, V>(k, alpha, a + i * row, row, column, b + j, ldb, c + i * ldc + j, ldc, n - j);
    }
}

void softmax(float *matrix, int64_t rows, int64_t columns, int64_t ld, const uint8_t *seen, bool causal) {
    const float nothing = -3e38f;
    for (int64_t j = 0; j < columns; j += WIDTH) {
        const int64_t count = columns - j;
        const auto numbers = [&](int64_t i) {
            vec x;
            const float *from = matrix + i * ld + j;
            if (count >= WIDTH)
                x = load(from);
            else
                for (int c = 0; c < WIDTH; c++) x[c] = c < count ? from[c] : 0.0f;
            if (seen && !seen[i]) x = all(nothing);
            if (causal && i > j)
                for (int c = 0; c < WIDTH; c++) x[c] = i > j + c ? nothing : x[c];
            return x;
        };
        vec most = all(nothing), total{};
        for (int64_t i = 0; i < rows; i++) most = larger(most, numbers(i));
        for (int64_t i = 0; i < rows; i++) {
            const vec x = numbers(i), power = exponential(x - most), e = x <= all(nothing) ? vec{} : power;
            total += e;
            store_some(matrix + i * ld + j, e, count);
        }
        total = total <= vec{} ? all(1.0f) : total;
        const vec share = all(1.0f) / total;
        for (int64_t i = 0; i < rows; i++) {
            float *to = matrix + i * ld + j;
            if (count >= WIDTH)
                store(to, load(to) * share);
            else
                for (int64_t c = 0; c < count; c++) to[c] *= share[c];
        }
    }
}

void normalise(const float *from, int64_t from_stride, float *to, int64_t to_stride, int64_t rows, int64_t columns, const float *weight,
               const float *bias, float eps, float *scratch) {
    float *mean = scratch, *share = scratch + columns;
    for (int64_t j = 0; j < columns; j++) mean[j] = share[j] = 0.0f;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) mean[j] += from[i * from_stride + j];
    for (int64_t j = 0; j < columns; j++) mean[j] /= float(rows);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const float distance = from[i * from_stride + j] - mean[j];
            share[j] += distance * distance;
        }
    for (int64_t j = 0; j < columns; j++) share[j] = 1.0f / sqrtf(share[j] / float(rows) + eps);
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) to[i * to_stride + j] = (from[i * from_stride + j] - mean[j]) * share[j] * weight[i] + bias[i];
    }
}

}  // namespace

const Kernels &KERNELS() {
    static const Kernels found = {NAME(SET), WIDTH, WIDTH == 16, MOST * WIDTH, sum, store_channel, pick, transpose, total, activate, multiply, softmax, normalise};
    return found;
}

}  // namespace swamp
