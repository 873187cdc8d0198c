// Steps that compute sums of taps, and layers that a BLAS computes faster.

#include "builder.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

namespace swamp {

namespace {

constexpr double CACHE = 28 * 1024;  // bytes of the first-level cache that a tile may take
constexpr double MAX_MEASURED = 2e8;  // vector operations of a layer; whoever has larger ones does not wait for measurements of them
constexpr double DENSE_FROM = 0.12;  // the density from which on a layer is also tried with the BLAS

}  // namespace

// For a distance, which positions of an image still lie within their row after they were moved.
std::pair<const uint32_t *, const uint16_t *> Builder::inside(const Image &image, int64_t shift) {
    auto [found, fresh] = insides.try_emplace({image.num_positions, image.pitch, image.size.width, shift});
    if (fresh) {
        const int64_t length = rounded_up(image.num_positions, 64) + 256;
        take_memory(1.125 * double(length));
        std::vector<uint32_t> whole(static_cast<size_t>(length));
        std::vector<uint16_t> bits(static_cast<size_t>(length / 16));
        for (int64_t p = 0; p < image.num_positions; p++) {
            const int64_t x = p % image.pitch + shift;
            if (x < 0 || x >= image.size.width) continue;
            whole[size_t(p)] = UINT32_MAX;
            bits[size_t(p / 16)] = uint16_t(bits[size_t(p / 16)] | 1 << p % 16);
        }
        found->second = {keep(std::move(whole)), keep(std::move(bits))};
    }
    return found->second;
}

Step Builder::sum_step(const std::vector<int> &outs, const Value &value, const Value *second) {
    const Image *image = &plan.images[size_t(outs[0])];
    const auto num_channels = size_t(value.size.channels);
    struct Found {
        int32_t row, shift, distance;
        float weight;
    };
    std::vector<Found> floats, whole;
    std::vector<double> whole_scale(num_channels, 0.0);
    std::vector<int32_t> shifts = {0};
    bool any_whole = false;
    for (const Part &part : value.parts) {
        const Image &read = plan.images[size_t(part.image)];
        if (part.form >= 0) {
            check(!any_whole, "its program adds two int8 layers");
            any_whole = true;
            whole_scale = part.scale;
            const Image::Bytes &bytes = read.bytes[size_t(part.form)];
            for (const Tap &tap : *part.taps) {
                const auto copy = size_t(std::find(bytes.shifts.begin(), bytes.shifts.end(), tap.x) - bytes.shifts.begin());
                const int64_t distance = bytes.form.offset + bytes.copies[copy] + tap.x + tap.channel * bytes.form.stride + tap.y * read.pitch;
                whole.push_back({tap.row, 0, int32_t(distance), tap.weight});
            }
            continue;
        }
        for (const Tap &tap : *part.taps) {
            auto shift = std::find(shifts.begin(), shifts.end(), tap.x);
            if (shift == shifts.end()) shift = shifts.insert(shifts.end(), tap.x);
            const int64_t distance = read.offset + tap.channel * read.stride + tap.y * read.pitch;
            floats.push_back({tap.row, int32_t(shift - shifts.begin()), int32_t(distance), float(tap.weight * part.scale[size_t(tap.row)])});
        }
    }
    const auto by_place = [](const Found &a, const Found &b) {
        return a.row != b.row ? a.row < b.row : a.shift != b.shift ? a.shift < b.shift : a.distance < b.distance;
    };
    std::sort(floats.begin(), floats.end(), by_place);
    std::sort(whole.begin(), whole.end(), by_place);

    take_memory(double(num_channels) * double(shifts.size() + 4) + 2.0 * double(floats.size() + whole.size()));
    take_work(double(num_channels) * double(shifts.size()));
    Sum sum;
    std::vector<int32_t> first, distance, first_four, four_distances, four_weights;
    std::vector<float> weight, bias(value.bias.begin(), value.bias.end());
    std::vector<double> costs(num_channels + 1, 0.0);
    size_t at = 0, at_whole = 0;
    for (size_t channel = 0; channel < num_channels; channel++) {
        const size_t taps_before = distance.size(), fours_before = four_weights.size();
        for (size_t group = 0; group < shifts.size(); group++) {
            first.push_back(int32_t(distance.size()));
            for (; at < floats.size() && size_t(floats[at].row) == channel && size_t(floats[at].shift) == group; at++) {
                distance.push_back(floats[at].distance);
                weight.push_back(floats[at].weight);
            }
        }
        first_four.push_back(int32_t(four_weights.size()));
        while (at_whole < whole.size() && size_t(whole[at_whole].row) == channel) {
            uint32_t packed = 0;
            for (int k = 0; k < 4; k++) {
                const bool more = at_whole < whole.size() && size_t(whole[at_whole].row) == channel;
                four_distances.push_back(more ? whole[at_whole].distance : four_distances.back());
                if (more) packed |= uint32_t(uint8_t(int8_t(whole[at_whole++].weight))) << 8 * k;
            }
            four_weights.push_back(int32_t(packed));
        }
        costs[channel + 1] = costs[channel] + double(distance.size() - taps_before) + 1.2 * double(four_weights.size() - fours_before) + 6;
    }
    first.push_back(int32_t(distance.size()));
    first_four.push_back(int32_t(four_weights.size()));
    sum.first = keep(std::move(first));
    sum.distance = keep(std::move(distance));
    sum.weight = keep(std::move(weight));
    sum.bias = keep(std::move(bias));
    if (any_whole) {
        sum.first_four = keep(std::move(first_four));
        sum.four_distances = keep(std::move(four_distances));
        sum.four_weights = keep(std::move(four_weights));
        sum.scale = keep(std::vector<float>(whole_scale.begin(), whole_scale.end()));
    }
    sum.relu = value.relu;
    sum.targets[0] = image->target();
    if (second) {
        const std::vector<double> &scale = second->parts[0].scale;
        std::vector<float> factors(num_channels);
        for (size_t c = 0; c < num_channels; c++) factors[c] = float(scale[c] * (*second->parts[0].taps)[c].weight);
        sum.num_targets = 2;
        sum.targets[1] = plan.images[size_t(outs[1])].target();
        sum.second_scale = keep(std::move(factors));
        sum.second_bias = keep(std::vector<float>(second->bias.begin(), second->bias.end()));
        sum.second_relu = second->relu;
    }

    // Tiles of whole rows where that is possible; the numbers that a tile needs should stay in the first-level cache.
    const int64_t most = kernels().most, width = kernels().width, pitch = image->pitch;
    const int64_t rows_unit = std::lcm(width, pitch), num_vectors = (image->num_positions * image->bands + width - 1) / width;
    sum.chains = num_vectors == 1 ? 4 : num_vectors <= 4 ? 2 : 1;
    int64_t unit = any_whole ? 64 : width, furthest = 0;
    for (int32_t shift : shifts) furthest = std::max<int64_t>(furthest, std::abs(shift));
    if (shifts.size() > 1) {
        sum.num_groups = int32_t(shifts.size());
        std::vector<const uint32_t *> whole_masks;
        std::vector<const uint16_t *> bit_masks;
        for (int32_t shift : shifts) {
            const auto [numbers, bits] = inside(*image, shift);
            whole_masks.push_back(numbers);
            bit_masks.push_back(bits);
        }
        sum.inside = keep(std::move(whole_masks));
        sum.inside_bits = keep(std::move(bit_masks));
        sum.shifts = keep(std::move(shifts));
        if (width == 16 && furthest <= 16 && rows_unit <= most && !any_whole) {
            sum.whole_rows = 1;
            unit = rows_unit;
        }
    }
    double planes = 0;
    for (const Part &part : value.parts)
        if (part.form < 0) planes += double(plan.images[size_t(part.image)].size.channels);
    int64_t tile = most / unit * unit;
    while (!any_whole && tile > std::max(4 * width, unit) && planes * double(tile + 2 * image->gap * pitch) * 4 > CACHE) tile -= unit;
    const int64_t length = image->num_positions, num_tiles = (length + tile - 1) / tile, stacked = plan.num_stacked;

    Step step(value.layer, any_whole ? "int8" : value.layer.empty() ? "float" : "sparse");
    step.density = value.density;
    // Threads share tiles, so that each reads mostly what it wrote itself. Where edges are cleared after the sums they share channels.
    const Image *others = second ? &plan.images[size_t(outs[1])] : nullptr;
    const auto has_edges = [&](const Image *written) { return written && ((!written->bytes.empty() && !kernels().keeps_sides) || stacked > 1); };
    const bool clears = has_edges(image) || has_edges(others);
    const int64_t channels = value.size.channels;
    share_edges(step, outs);
    step.parts = clears ? channels : num_tiles * channels;
    step.cost = costs.back() * double((length + width - 1) / width);
    step.costs = std::move(costs);
    std::vector<int64_t> tiles;  // where they begin and end; they are of nearly equal size
    for (int64_t i = 0; i <= num_tiles; i++) tiles.push_back(std::min((length + unit - 1) / unit * i / num_tiles * unit, length));
    if (!clears) {
        step.run = [sum, channels, tiles](Workspace &memory, const Block &, int64_t first, int64_t last) {
            auto tile = size_t(first / channels);
            for (int64_t before = int64_t(tile) * channels; before < last; before += channels, tile++)
                kernels().sum(sum, memory.floats, memory.bytes, std::max<int64_t>(first - before, 0), std::min(last - before, channels), tiles[tile], tiles[tile + 1]);
        };
        return step;
    }
    step.run = [sum, image, others, tiles, stacked](Workspace &memory, const Block &, int64_t first, int64_t last) {
        for (size_t i = 0; i + 1 < tiles.size(); i++) kernels().sum(sum, memory.floats, memory.bytes, first, last, tiles[i], tiles[i + 1]);
        for (const Image *written : {image, others})
            for (int64_t channel = first; written && channel < last; channel++) clear_edges(*written, memory, channel, stacked);
    };
    return step;
}

void Builder::make_sum(const Made &one) {
    Step step = sum_step(one.outs, *one.sums, one.second.get());
    if (measuring && !step.banded && step.cost < MAX_MEASURED) try_dense(step, one);
    add_step(std::move(step));
}

// Compute the layer's taps with the BLAS instead, one product for each distance, and add what remains; keep whichever way is faster.
void Builder::try_dense(Step &step, const Made &one) {
    const swamp_gemm gemm = given_gemm();
    const Value &value = *one.sums;
    const Image *image = &plan.images[size_t(one.outs[0])];
    const auto layer = std::find_if(value.parts.begin(), value.parts.end(), [](const Part &part) { return part.form < 0 && part.taps->size() > 1024; });
    if (!gemm || layer == value.parts.end() || !image->has_floats || image->num_positions < 16) return;
    const Image *read = &plan.images[size_t(layer->image)];
    const int64_t rows = value.size.channels, columns = read->size.channels, length = image->num_positions;
    std::set<std::pair<int32_t, int32_t>> windows;  // horizontal and vertical distances
    for (const Tap &tap : *layer->taps) windows.insert({tap.x, tap.y});
    if (double(layer->taps->size()) < DENSE_FROM * double(rows * columns) * double(windows.size())) return;
    take_work(16 * step.cost + double(plan.num_floats) / 8);  // of what is measured
    std::map<std::pair<int32_t, int32_t>, std::vector<float>> matrices;
    for (const Tap &tap : *layer->taps) {
        std::vector<float> &matrix = matrices[{tap.x, tap.y}];
        matrix.resize(size_t(rows * columns));
        matrix[size_t(tap.row * columns + tap.channel)] = float(tap.weight * layer->scale[size_t(tap.row)]);
    }
    struct Product {
        const float *matrix;
        int64_t shift, from;
        const uint32_t *inside;
    };
    std::vector<Product> products;
    for (auto &[at, matrix] : matrices)
        products.push_back({keep(std::move(matrix)), at.first, read->offset + at.second * read->pitch, inside(*image, at.first).first});
    std::stable_sort(products.begin(), products.end(), [](const Product &a, const Product &b) { return std::abs(a.shift) < std::abs(b.shift); });
    if (products[0].shift != 0) return;
    Value rest = value;
    rest.parts.erase(rest.parts.begin() + (layer - value.parts.begin()));
    rest.parts.push_back(whole(one.outs[0]).parts[0]);
    Step dense = sum_step(one.outs, rest, one.second.get());
    dense.how = "dense";
    dense.run = [=, add_rest = dense.run, num_parts = dense.parts](Workspace &memory, const Block &block, int64_t, int64_t) {
        float *out = image->plane(memory.floats, 0);
        if (int64_t(memory.scratch.size()) < rows * length) memory.scratch.resize(size_t(rows * length));
        for (size_t i = 0; i < products.size(); i++) {
            const int64_t shift = products[i].shift;
            float *to = shift ? memory.scratch.data() : out;
            const bool fresh = i == 0 || products[i - 1].shift != shift, ends = i + 1 == products.size() || products[i + 1].shift != shift;
            gemm(rows, length, columns, products[i].matrix, columns, memory.floats + products[i].from + shift, read->stride, fresh ? 0.0f : 1.0f, to,
                 shift ? length : image->stride);
            if (!shift || !ends) continue;
            for (int64_t row = 0; row < rows; row++)
                for (int64_t p = 0; p < length; p++) out[row * image->stride + p] += products[i].inside[p] ? to[row * length + p] : 0.0f;
        }
        add_rest(memory, block, 0, num_parts);
    };
    dense.parts = 1;  // a BLAS has threads of its own
    dense.costs.clear();
    const auto memory = plan.workspace();
    const Block block{0, plan.num_stacked, nullptr, nullptr, 0};
    const auto fastest = [&](const Step &which) {
        double least = 1e9;
        for (int i = 0; i < 4; i++) {
            const auto begin = std::chrono::steady_clock::now();
            which.run(*memory, block, 0, which.parts);
            least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        }
        return least;
    };
    if (fastest(dense) < fastest(step)) step = std::move(dense);
}

}  // namespace swamp
