// All operations that are no sums of taps.

#include "builder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace swamp {

namespace {

Activation activation_of(const std::string &name) {
    static const std::map<std::string, Activation> known = {
        {"relu", RELU},       {"relu6", RELU6}, {"leaky_relu", LEAKY_RELU}, {"elu", ELU},
        {"gelu", GELU},       {"gelu_tanh", GELU_TANH}, {"silu", SILU},     {"sigmoid", SIGMOID},
        {"tanh", TANH},       {"hardswish", HARDSWISH}, {"hardsigmoid", HARDSIGMOID}, {"softplus", SOFTPLUS},
        {"mish", MISH}};
    auto found = known.find(name);
    check(found != known.end(), "its program has the unknown activation " + name);
    return found->second;
}

// The larger of two numbers; NaN if one of them is.
float larger(float found, float number) { return number > found || number != number ? number : found; }

}  // namespace

int Builder::as_numbers(const Value &tokens) {
    const int out = new_float_image(tokens.size), input = tokens.input;
    each_part("", out, {}, 1, 0, [this, out, input](Workspace &memory, const Block &block, int64_t) {
        const Image &to = plan.images[size_t(out)];
        const int64_t length = to.size.width, *given = static_cast<const int64_t *>(block.inputs[input]) + block.first * length;
        for (int64_t example = 0; example < block.count; example++)
            for (int64_t x = 0; x < length; x++) to.plane(memory.floats, 0)[row_of(to, example, 0) + x] = float(given[example * length + x]);
    });
    return out;
}

// The pixels of an image row by row, as a sequence.
int Builder::as_sequence(Value &value) {
    const int from = whole_floats(value);
    if (value.size.height == 1) return from;
    return joined_pixels({from});
}

int Builder::joined_pixels(const std::vector<int> &reads) {
    Size size{plan.images[size_t(reads[0])].size.channels, 1, 0};
    for (int from : reads) size.width += plan.images[size_t(from)].size.pixels();
    const int out = new_float_image(size);
    const double cost = double(size.channels * size.width) / 8;
    each_part("concat", out, reads, size.channels, cost, [this, out, reads](Workspace &memory, const Block &, int64_t channel) {
        const Image &to = plan.images[size_t(out)];
        for (int64_t example = 0; example < plan.num_stacked; example++) {
            float *row = to.plane(memory.floats, channel) + row_of(to, example, 0);
            for (int from : reads) {
                const Image &read = plan.images[size_t(from)];
                for (int64_t y = 0; y < read.size.height; y++, row += read.size.width)
                    std::memcpy(row, read.plane(memory.floats, channel) + row_of(read, example, y), size_t(read.size.width) * sizeof(float));
            }
        }
    });
    return out;
}

Value Builder::activation(const Node &node, Value &x) {
    const Activation kind = activation_of(node.text("kind"));
    const float slope = node.has("slope") ? float(node.number("slope")) : 0.0f;
    if (kind == RELU) {
        if (x.image < 0 && x.relu) return x;
        Value value = linear(x);
        value.relu = true;
        return value;
    }
    const int from = floats_of(x), out = new_float_image(x.size);
    plan.images[size_t(out)].bands = plan.images[size_t(from)].bands;
    const double cost = double(x.size.channels * x.size.pixels()) / 2;
    each_part(node.op, out, {from}, x.size.channels, cost, [this, out, from, kind, slope](Workspace &memory, const Block &, int64_t channel) {
        const Image &to = plan.images[size_t(out)], &read = plan.images[size_t(from)];
        const float *source = read.plane(memory.floats, channel);
        float *wanted = to.plane(memory.floats, channel);
        if (!to.gap) return kernels().activate(kind, slope, source, wanted, to.num_positions);
        for (int64_t example = 0; example < plan.num_stacked; example++)
            kernels().activate(kind, slope, source + row_of(read, example, 0), wanted + row_of(to, example, 0), to.height() * to.pitch);
    });
    return as_value(out);
}

Value Builder::combined(const Node &node, Value &x, Value &y) {
    const bool sum = node.op == "add";
    if (sum && x.size == y.size) {
        const auto has_bytes = [](const Value &value) {
            return value.image < 0 && std::any_of(value.parts.begin(), value.parts.end(), [](const Part &part) { return part.form >= 0; });
        };
        if (has_bytes(x) && has_bytes(y)) stored(y);  // a sum has one scale for all of its int8 taps
        Value a = linear(x), b = linear(y);
        if (a.layer.empty()) {
            a.layer = b.layer;
            a.density = b.density;
        }
        a.parts.insert(a.parts.end(), b.parts.begin(), b.parts.end());
        for (size_t i = 0; i < a.bias.size(); i++) a.bias[i] += b.bias[i];
        return a;
    }
    const bool one_channel = y.size.channels == 1, one_pixel = y.size.pixels() == 1;
    const bool fits = (one_channel || y.size.channels == x.size.channels) && (one_pixel || (y.size.height == x.size.height && y.size.width == x.size.width));
    check(fits, node.op + " of its program has images that do not fit together");
    const int from = whole_floats(x), other = whole_floats(y), out = new_float_image(x.size);
    const double cost = double(x.size.channels * x.size.pixels()) / 8;
    const auto compute = [this, out, from, other, sum, one_channel, one_pixel](Workspace &memory, const Block &, int64_t channel) {
        const Image &to = plan.images[size_t(out)], &a = plan.images[size_t(from)], &b = plan.images[size_t(other)];
        const float *x = a.plane(memory.floats, channel), *y = b.plane(memory.floats, one_channel ? 0 : channel);
        float *wanted = to.plane(memory.floats, channel);
        for (int64_t example = 0; example < plan.num_stacked; example++)
            for (int64_t row = 0; row < to.size.height; row++) {
                const float *p = x + row_of(a, example, row), *q = y + row_of(b, example, one_pixel ? 0 : row);
                float *r = wanted + row_of(to, example, row);
                if (one_pixel)
                    for (int64_t i = 0; i < to.size.width; i++) r[i] = sum ? p[i] + *q : p[i] * *q;
                else
                    for (int64_t i = 0; i < to.size.width; i++) r[i] = sum ? p[i] + q[i] : p[i] * q[i];
            }
    };
    each_part(node.op, out, {from, other}, x.size.channels, cost, compute);
    return as_value(out);
}

Value Builder::concat(const Node &node) {
    check(!node.in.empty(), "its program has a concat of nothing");
    const bool along_channels = node.text("axis") == "channels";
    check(along_channels || node.text("axis") == "pixels", "its program has a concat of an unknown axis");
    Value value;
    value.size = values[size_t(node.in[0])].size;
    (along_channels ? value.size.channels : value.size.width) = 0;
    for (int index : node.in) {
        const Size size = values[size_t(index)].size;
        const bool fits = along_channels ? size.height == value.size.height && size.width == value.size.width : size.channels == value.size.channels;
        check(fits, "its program has a concat of images that do not fit together");
        (along_channels ? value.size.channels : value.size.width) += along_channels ? size.channels : size.pixels();
        check(value.size.channels <= MANY && value.size.width <= MANY, "an image of its program is empty or too large");
    }
    if (along_channels) {
        take_memory(2.0 * double(node.in.size()) * double(value.size.channels) + 5.0 * double(value.size.channels));
        int64_t first = 0;
        for (int index : node.in) {
            const int from = floats_of(values[size_t(index)]);
            auto taps = std::make_shared<std::vector<Tap>>();
            const int64_t count = values[size_t(index)].size.channels;
            for (int64_t c = 0; c < count; c++) taps->push_back({int32_t(first + c), int32_t(c), 0, 0, 1.0f});
            value.parts.push_back({from, -1, taps, std::vector<double>(size_t(value.size.channels), 1.0)});
            first += count;
        }
        value.bias.assign(size_t(value.size.channels), 0.0);
        return value;
    }
    std::vector<int> reads;
    for (int index : node.in) reads.push_back(whole_floats(values[size_t(index)]));
    value.size.height = 1;
    value.image = joined_pixels(reads);
    return value;
}

Value Builder::pixels(const Node &node, Value &x) {
    check(x.size.height == 1, "its program takes tokens of what is no sequence");
    int64_t start = node.integer("start", -MANY, MANY);
    if (start < 0) start += x.size.width;
    const int64_t count = node.has("count") ? node.integer("count", 1, MANY) : x.size.width - start;
    check(start >= 0 && count > 0 && start + count <= x.size.width, "its program takes tokens that are not there");
    const int from = whole_floats(x);
    take_memory(5.0 * double(x.size.channels));
    std::vector<Tap> planes;
    for (int32_t c = 0; c < x.size.channels; c++) planes.push_back({0, c, 0, int32_t(start), 1.0f});
    Value value;
    value.size = {x.size.channels, 1, count};
    value.image = sample(from, value.size, planes, 1, 1);
    return value;
}

Value Builder::flatten(const Node &node, Value &x) {
    if (x.size.pixels() == 1) return x;
    const int from = whole_floats(x);
    const Size size{x.size.channels * x.size.pixels(), 1, 1};
    const int out = new_float_image(size);
    each_part(node.op, out, {from}, size.channels, double(size.channels) / 4, [this, out, from](Workspace &memory, const Block &, int64_t channel) {
        const Image &to = plan.images[size_t(out)], &read = plan.images[size_t(from)];
        const int64_t pixels = read.size.pixels(), y = channel % pixels / read.size.width, column = channel % read.size.width;
        for (int64_t example = 0; example < plan.num_stacked; example++)
            to.plane(memory.floats, channel)[row_of(to, example, 0)] =
                read.plane(memory.floats, channel / pixels)[row_of(read, example, y) + column];
    });
    return as_value(out);
}

Value Builder::pool(const Node &node, Value &x) {
    const bool largest = node.op == "max_pool";
    const auto [kh, kw] = node.pair("kernel", 1, 4096);
    const auto [every_y, every_x] = node.pair("stride", 1, 4096);
    const auto [top, left] = node.pair("padding", 0, 4096);
    const bool all_count = !largest && node.boolean("include_padding");
    check(2 * top <= kh && 2 * left <= kw, "a pool of its program has more padding than half its window");
    const Size size{x.size.channels, divided(x.size.height + 2 * top - kh, every_y) + 1, divided(x.size.width + 2 * left - kw, every_x) + 1};
    check(size.height > 0 && size.width > 0, "an image of its program is smaller than the window of a pool");
    // In bands, windows must not reach beyond them.
    const bool apart = kh == every_y && top == 0 && size.height * every_y == x.size.height && can_band(size);
    const int from = apart ? floats_of(x) : whole_floats(x), out = new_float_image(size);
    plan.images[size_t(out)].bands = plan.images[size_t(from)].bands;
    const double cost = double(size.channels * size.pixels()) * double(kh * kw) / 4;
    const auto compute = [=](Workspace &memory, const Block &, int64_t channel) {
        const Image &to = plan.images[size_t(out)], &read = plan.images[size_t(from)];
        for (int64_t example = 0; example < plan.num_stacked; example++)
            for (int64_t y = 0; y < to.height(); y++) {
                float *row = to.plane(memory.floats, channel) + row_of(to, example, y);
                const int64_t y0 = std::max<int64_t>(y * every_y - top, 0), y1 = std::min(y * every_y - top + kh, read.height());
                const float *source = read.plane(memory.floats, channel) + row_of(read, example, 0);
                for (int64_t column = 0; column < to.size.width; column++) {
                    const int64_t x0 = std::max<int64_t>(column * every_x - left, 0), x1 = std::min(column * every_x - left + kw, read.size.width);
                    float found = largest ? -INFINITY : 0.0f;
                    for (int64_t i = y0; i < y1; i++)
                        for (int64_t j = x0; j < x1; j++) {
                            const float number = source[i * read.pitch + j];
                            found = largest ? larger(found, number) : found + number;
                        }
                    row[column] = largest ? found : found / float(all_count ? kh * kw : (y1 - y0) * (x1 - x0));
                }
            }
    };
    each_part(node.op, out, {from}, size.channels, cost, compute);
    return as_value(out);
}

Value Builder::global(const Node &node, Value &x) {
    const bool largest = node.op == "global_max";
    const Size size{x.size.channels, 1, 1};
    const int from = whole_floats(x), out = new_float_image(size);
    const double cost = double(x.size.channels * x.size.pixels()) / 8;
    each_part(node.op, out, {from}, size.channels, cost, [this, out, from, largest](Workspace &memory, const Block &, int64_t channel) {
        const Image &to = plan.images[size_t(out)], &read = plan.images[size_t(from)];
        for (int64_t example = 0; example < plan.num_stacked; example++) {
            float found = largest ? -INFINITY : 0.0f;
            for (int64_t y = 0; y < read.size.height; y++) {
                const float *row = read.plane(memory.floats, channel) + row_of(read, example, y);
                if (!largest && read.pitch == read.size.width) {
                    found = kernels().total(row, read.size.pixels());
                    break;
                }
                if (!largest) found += kernels().total(row, read.size.width);
                for (int64_t x = 0; largest && x < read.size.width; x++) found = larger(found, row[x]);
            }
            to.plane(memory.floats, channel)[row_of(to, example, 0)] = largest ? found : found / float(read.size.pixels());
        }
    });
    return as_value(out);
}

Value Builder::upsample(const Node &node, Value &x) {
    const auto [down, across] = node.pair("factor", 1, 4096);
    const std::string &mode = node.text("mode");
    check(mode == "nearest" || mode == "bilinear", "its program has an upsample of an unknown mode");
    const bool bilinear = mode == "bilinear", aligned = bilinear && node.boolean("align_corners");
    const Size size{x.size.channels, x.size.height * down, x.size.width * across};
    check_size(size);
    take_memory(12.0 * double(size.height + size.width));
    // For each row and column of the result, the two that it lies between, and the share of the second.
    const auto between = [&](int64_t length, int64_t factor) {
        std::vector<std::pair<int64_t, float>> found;
        for (int64_t i = 0; i < length * factor; i++) {
            if (!bilinear) {
                found.emplace_back(i / factor, 0.0f);
                continue;
            }
            const double at = aligned ? (length * factor > 1 ? double(i) * double(length - 1) / double(length * factor - 1) : 0.0)
                                      : std::max((double(i) + 0.5) / double(factor) - 0.5, 0.0);
            const double inside = std::min(at, double(length - 1));
            found.emplace_back(int64_t(inside), float(inside - double(int64_t(inside))));
        }
        return found;
    };
    const auto rows = between(x.size.height, down), columns = between(x.size.width, across);
    const int from = whole_floats(x), out = new_float_image(size);
    const double cost = double(size.channels * size.pixels());
    each_part(node.op, out, {from}, size.channels, cost, [this, out, from, rows, columns](Workspace &memory, const Block &, int64_t channel) {
        const Image &to = plan.images[size_t(out)], &read = plan.images[size_t(from)];
        for (int64_t example = 0; example < plan.num_stacked; example++)
            for (int64_t y = 0; y < to.size.height; y++) {
                const auto [first, down] = rows[size_t(y)];
                const float *a = read.plane(memory.floats, channel) + row_of(read, example, first);
                float *row = to.plane(memory.floats, channel) + row_of(to, example, y);
                for (int64_t x = 0; x < to.size.width; x++) {
                    const auto [left, across] = columns[size_t(x)];
                    const auto in_row = [&, left = left, across = across](const float *b) { return across == 0 ? b[left] : b[left] + (b[left + 1] - b[left]) * across; };
                    const float upper = in_row(a);
                    row[x] = down == 0 ? upper : upper + (in_row(a + read.pitch) - upper) * down;
                }
            }
    });
    return as_value(out);
}

Value Builder::layer_norm(const Node &node, Value &x) {
    const float eps = float(node.number("eps"));
    const int64_t channels = x.size.channels;
    const float *weight = keep(dense_numbers(node, "weight", channels, 1.0f)), *bias = keep(dense_numbers(node, "bias", channels, 0.0f));
    const int from = whole_floats(x), out = new_float_image(x.size);
    const double cost = double(channels * x.size.pixels()) / 4;
    each_part(node.op, out, {from}, 1, cost, [this, out, from, weight, bias, eps](Workspace &memory, const Block &, int64_t) {
        const Image &to = plan.images[size_t(out)], &read = plan.images[size_t(from)];
        const int64_t length = to.num_positions;
        if (int64_t(memory.scratch.size()) < 2 * length) memory.scratch.resize(size_t(2 * length));
        kernels().normalise(read.plane(memory.floats, 0), read.stride, to.plane(memory.floats, 0), to.stride, to.size.channels, length, weight, bias,
                            eps, memory.scratch.data());
    });
    return as_value(out);
}

Value Builder::group_norm(const Node &node, Value &x) {
    const int64_t groups = node.integer("groups", 1, MANY), channels = x.size.channels;
    check(channels % groups == 0, "a group_norm of its program has groups of unequal size");
    const float eps = float(node.number("eps"));
    const float *weight = keep(dense_numbers(node, "weight", channels, 1.0f)), *bias = keep(dense_numbers(node, "bias", channels, 0.0f));
    const int from = whole_floats(x), out = new_float_image(x.size);
    const double cost = double(channels * x.size.pixels()) / 2;
    each_part(node.op, out, {from}, groups, cost, [this, out, from, weight, bias, eps, each = channels / groups](Workspace &memory, const Block &, int64_t group) {
        const Image &to = plan.images[size_t(out)], &read = plan.images[size_t(from)];
        for (int64_t example = 0; example < plan.num_stacked; example++) {
            double sum = 0, squares = 0;
            const auto rows = [&](auto visit) {
                for (int64_t c = group * each; c < (group + 1) * each; c++)
                    for (int64_t y = 0; y < to.size.height; y++) {
                        const int64_t at = row_of(to, example, y);
                        visit(c, read.plane(memory.floats, c) + at, to.plane(memory.floats, c) + at);
                    }
            };
            rows([&](int64_t, const float *row, float *) {
                float total = 0;
                for (int64_t i = 0; i < to.size.width; i++) total += row[i];
                sum += total;
            });
            const double count = double(each) * double(to.size.pixels()), mean = sum / count;
            rows([&](int64_t, const float *row, float *) {
                float total = 0;
                for (int64_t i = 0; i < to.size.width; i++) total += (row[i] - float(mean)) * (row[i] - float(mean));
                squares += total;
            });
            const auto share = float(1 / std::sqrt(squares / count + eps));
            rows([&](int64_t c, const float *row, float *wanted) {
                const float scale = share * weight[c], shift = bias[c] - float(mean) * scale;
                for (int64_t i = 0; i < to.size.width; i++) wanted[i] = row[i] * scale + shift;
            });
        }
    });
    return as_value(out);
}

Value Builder::softmax(const Node &node, Value &x) {
    const int from = whole_floats(x), out = new_float_image(x.size);
    const double cost = double(x.size.channels * x.size.pixels()) / 2;
    each_part(node.op, out, {from}, 1, cost, [this, out, from](Workspace &memory, const Block &, int64_t) {
        const Image &to = plan.images[size_t(out)], &read = plan.images[size_t(from)];
        for (int64_t c = 0; c < to.size.channels; c++)
            std::memcpy(to.plane(memory.floats, c), read.plane(memory.floats, c), size_t(to.num_positions) * sizeof(float));
        kernels().softmax(to.plane(memory.floats, 0), to.size.channels, to.num_positions, to.stride, nullptr, false);
    });
    return as_value(out);
}

Value Builder::attention(const Node &node) {
    check(node.in.size() == 3 || node.in.size() == 4, "an attention of its program has another number of inputs than it should");
    const int64_t heads = node.integer("heads", 1, 65536);
    const bool causal = node.boolean("causal");
    const float scale = float(node.number("scale"));
    Value &q = values[size_t(node.in[0])], &k = values[size_t(node.in[1])], &v = values[size_t(node.in[2])];
    const int64_t queries = q.size.pixels(), keys = k.size.pixels();
    // Several heads of queries may share one of keys and values.
    const int64_t inner = q.size.channels / heads, key_heads = inner ? k.size.channels / inner : 0, outer = key_heads ? v.size.channels / key_heads : 0;
    const bool fits = outer && q.size.channels == inner * heads && k.size.channels == inner * key_heads && v.size.channels == outer * key_heads &&
                      heads % key_heads == 0 && keys == v.size.pixels() && (!causal || queries == keys);
    check(fits && std::isfinite(scale), "an attention of its program has queries, keys and values that do not fit together");
    const double scores = double(queries) * double(keys);
    take_memory(std::max(scores - largest_scores, 0.0));
    largest_scores = std::max(scores, largest_scores);
    std::vector<int> reads = {as_sequence(q), as_sequence(k), as_sequence(v)};
    const bool masked = node.in.size() == 4;
    if (masked) {
        Value &given = values[size_t(node.in[3])];
        check(given.size == (Size{1, 1, keys}), "an attention of its program has a mask that does not fit");
        reads.push_back(whole_floats(given));
    }
    const Size size{heads * outer, q.size.height, q.size.width};
    const int64_t sharing = heads / key_heads;
    const int out = new_float_image(size);
    const double cost = double(heads * queries * keys * (inner + outer)) / 16;
    each_part(node.op, out, reads, heads, cost, [=](Workspace &memory, const Block &block, int64_t head) {
        const Image &to = plan.images[size_t(out)], &qs = plan.images[size_t(reads[0])], &ks = plan.images[size_t(reads[1])], &vs = plan.images[size_t(reads[2])];
        std::vector<float> scores(static_cast<size_t>(queries * keys));
        std::vector<uint8_t> seen(static_cast<size_t>(masked ? keys : 0));
        std::vector<float> found(static_cast<size_t>(size.height > 1 ? outer * queries : 0));  // where rows do not follow each other
        for (int64_t example = 0; example < block.count; example++) {
            if (masked) {
                const Image &mask = plan.images[size_t(reads[3])];
                const float *given = mask.plane(memory.floats, 0) + row_of(mask, example, 0);
                for (int64_t i = 0; i < keys; i++) seen[size_t(i)] = given[i] != 0;
            }
            const float *query = qs.plane(memory.floats, head * inner) + row_of(qs, example, 0);
            const float *key = ks.plane(memory.floats, head / sharing * inner) + row_of(ks, example, 0);
            const float *value = vs.plane(memory.floats, head / sharing * outer) + row_of(vs, example, 0);
            float *wanted = to.plane(memory.floats, head * outer) + row_of(to, example, 0), *whole = size.height > 1 ? found.data() : wanted;
            // The scores lie key by key, so that both products and the softmax run along the queries.
            kernels().multiply(keys, queries, inner, scale, key, 1, ks.stride, query, qs.stride, scores.data(), queries);
            kernels().softmax(scores.data(), keys, queries, queries, masked ? seen.data() : nullptr, causal);
            kernels().multiply(outer, queries, keys, 1.0f, value, vs.stride, 1, scores.data(), queries, whole, size.height > 1 ? queries : to.stride);
            for (int64_t c = 0; size.height > 1 && c < outer; c++)
                for (int64_t y = 0; y < size.height; y++)
                    std::memcpy(wanted + c * to.stride + y * to.pitch, whole + c * queries + y * size.width, size_t(size.width) * sizeof(float));
        }
    });
    return as_value(out);
}

Value Builder::embedding(const Node &node, const Value &tokens) {
    check(tokens.input >= 0, "an embedding of its program is given what are no tokens");
    const Tensor &tensor = file.tensor(node, "weight", 2);
    const int64_t known = tensor.shape[0], channels = tensor.shape[1], length = tokens.size.width;
    // With `counted`, a token's row is `offset` and the number of tokens up to it that are no padding; the row of padding is `offset`.
    const bool counted = node.op == "counted_positions";
    const int64_t padding = counted ? node.integer("padding", -MANY, MANY) : 0, offset = counted ? node.integer("offset", 0, MANY) : 0;
    check(known > 0 && channels > 0 && known * channels <= MAX_WORKSPACE, "an embedding of its program is empty or too large");
    const float *rows = table(tensor);
    const int out = new_float_image({channels, 1, length}), input = tokens.input;
    const std::string name = node.text("weight");
    each_part(name, out, {}, 1, double(channels * length) / 2, [=](Workspace &memory, const Block &block, int64_t) {
        const Image &to = plan.images[size_t(out)];
        for (int64_t example = 0; example < block.count; example++) {
            const int64_t *given = static_cast<const int64_t *>(block.inputs[input]) + (block.first + example) * length;
            for (int64_t x = 0, count = 0; x < length; x++) {
                count += given[x] != padding;
                const int64_t row = !counted ? given[x] : given[x] != padding ? offset + count : offset;
                if (counted && row >= known)
                    throw std::invalid_argument("the sequence has " + std::to_string(count) + " tokens, and the network has places for " + std::to_string(known - offset - 1));
                if (row < 0 || row >= known)
                    throw std::invalid_argument("token " + std::to_string(row) + " is not between 0 and " + std::to_string(known - 1) + ", as " + name + " needs it");
                float *wanted = to.plane(memory.floats, 0) + row_of(to, example, 0) + x;
                for (int64_t c = 0; c < channels; c++) wanted[c * to.stride] = rows[row * channels + c];
            }
        }
    });
    return as_value(out);
}

Value Builder::fixed(const Node &node, int64_t offset, int64_t length) {
    const bool vector = file.num_dimensions(node, "weight") == 1;
    const Tensor &tensor = file.tensor(node, "weight", vector ? 1 : 2);
    const int64_t rows = vector ? 1 : tensor.shape[0], channels = vector ? tensor.shape[0] : tensor.shape[1];
    if (length < 0) length = rows;
    check(!vector || length == 1, node.op + " of its program needs a table");
    check(channels > 0 && length > 0 && offset + length <= rows, "the sequence has " + std::to_string(length) + " tokens, and the network has places for " + std::to_string(rows - offset));
    const float *numbers = table(tensor);
    const Size size{channels, 1, length};
    const int out = new_float_image(size);
    const double cost = double(channels * length) / 4;
    each_part(node.op, out, {}, channels, cost, [this, out, numbers, channels, offset](Workspace &memory, const Block &, int64_t channel) {
        const Image &to = plan.images[size_t(out)];
        for (int64_t example = 0; example < plan.num_stacked; example++)
            for (int64_t x = 0; x < to.size.width; x++)
                to.plane(memory.floats, channel)[row_of(to, example, 0) + x] = numbers[(offset + x) * channels + channel];
    });
    return as_value(out);
}

}  // namespace swamp
