// Layers that are sums of taps: convolutions, linear layers, and what is folded into them.

#include "builder.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace swamp {

namespace {

constexpr size_t MAX_INT8_TAPS = 130000;  // of one channel: their sum fits in 32 bits

size_t most_in_a_row(const std::vector<Tap> &taps, int64_t num_rows) {
    std::vector<size_t> counts(static_cast<size_t>(num_rows));
    for (const Tap &tap : taps) counts[size_t(tap.row)]++;
    return *std::max_element(counts.begin(), counts.end());
}

}  // namespace

Value Builder::whole(int image) {
    const Size size = plan.images[size_t(image)].size;
    take_memory(8.0 * double(size.channels));
    std::vector<Tap> taps;
    for (int32_t c = 0; c < size.channels; c++) taps.push_back({c, c, 0, 0, 1.0f});
    Value value;
    value.size = size;
    value.parts.push_back({image, -1, std::make_shared<const std::vector<Tap>>(std::move(taps)), std::vector<double>(size_t(size.channels), 1.0)});
    value.bias.assign(size_t(size.channels), 0.0);
    return value;
}

Value Builder::linear(Value &value) {
    if (value.image < 0 && !value.relu && value.input < 0) return value;
    return whole(floats_of(value));
}

// Planes of an image at (channel, y, x) and every few pixels, as an image of its own. Beyond the edges are zeros.
int Builder::sample(int image, Size size, const std::vector<Tap> &planes, int64_t every_y, int64_t every_x) {
    take_memory(30.0 * double(planes.size()));
    std::vector<int64_t> key = {image, size.height, size.width, every_y, every_x};
    for (const Tap &plane : planes) key.insert(key.end(), {plane.channel, plane.y, plane.x});
    if (auto found = sampled.find(key); found != sampled.end()) return found->second;
    // In bands, the rows of a band are picked from the same band.
    const auto aligned = [&](const Tap &plane) { return plane.y >= 0 && plane.y < every_y; };
    const bool in_bands = plan.images[size_t(image)].bands > 1;
    if (in_bands && !(can_band(size) && plan.images[size_t(image)].size.height == size.height * every_y && std::all_of(planes.begin(), planes.end(), aligned))) {
        Value from;
        from.size = plan.images[size_t(image)].size;
        from.image = image;
        return sample(whole_floats(from), size, planes, every_y, every_x);
    }
    const int out = new_image({int64_t(planes.size()), size.height, size.width});
    plan.images[size_t(out)].has_floats = plan.images[size_t(image)].has_floats = true;
    if (in_bands) plan.images[size_t(out)].bands = plan.num_bands;
    const double cost = double(planes.size()) * double(size.pixels()) / 4;
    const auto num_planes = int64_t(planes.size());
    each_part("sample", out, {image}, num_planes, cost, [this, out, image, planes, every_y, every_x](Workspace &memory, const Block &, int64_t channel) {
        const Image &to = plan.images[size_t(out)], &from = plan.images[size_t(image)];
        const Tap &plane = planes[size_t(channel)];
        const float *source = from.plane(memory.floats, plane.channel);
        float *wanted = to.plane(memory.floats, channel);
        const auto range = [](int64_t at, int64_t every, int64_t length, int64_t count) {  // of the positions that are inside
            const int64_t begin = std::clamp<int64_t>(-divided(at, every), 0, count);
            return std::pair(begin, std::clamp<int64_t>(divided(length - 1 - at, every) + 1, begin, count));
        };
        const auto [left, right] = range(plane.x, every_x, from.size.width, to.size.width);
        const auto [top, bottom] = range(plane.y, every_y, from.height(), to.height());
        const bool cut = left > 0 || right < to.size.width || top > 0 || bottom < to.height();
        for (int64_t example = 0; example < plan.num_stacked; example++) {
            float *first = wanted + row_of(to, example, 0);
            if (cut)
                for (int64_t y = 0; y < to.height(); y++) std::fill_n(first + y * to.pitch, to.size.width, 0.0f);
            kernels().pick(source + row_of(from, example, 0) + (top * every_y + plane.y) * from.pitch + left * every_x + plane.x, from.pitch, every_y,
                           every_x, first + top * to.pitch + left, to.pitch, bottom - top, right - left);
        }
    });
    sampled[key] = out;
    return out;
}

Value Builder::weighted(const Node &node, Value &x) {
    const bool is_conv = node.op == "conv";
    const bool is_flat = is_conv && file.num_dimensions(node, "weight") == 3;  // a convolution of sequences
    const Tensor &weight = file.tensor(node, "weight", is_flat ? 3 : is_conv ? 4 : 2);
    const bool transposed = node.op == "transposed_linear";
    const int64_t outputs = weight.shape[transposed ? 1 : 0], inputs = weight.shape[transposed ? 0 : 1];
    const int64_t kh = is_conv && !is_flat ? weight.shape[2] : 1, kw = is_conv ? weight.shape.back() : 1;
    const std::pair<int64_t, int64_t> one = {1, 1}, none = {0, 0};
    const auto [every_y, every_x] = is_conv ? node.pair("stride", 1, 4096) : one;
    const auto [top, left] = is_conv ? node.pair("padding", 0, 4096) : none;
    const auto [far_y, far_x] = is_conv ? node.pair("dilation", 1, 4096) : one;
    const int64_t groups = is_conv ? node.integer("groups", 1, MANY) : 1;
    check(outputs > 0 && inputs > 0 && kh > 0 && kw > 0 && kh <= 4096 && kw <= 4096 && inputs * groups == x.size.channels && outputs % groups == 0,
          "the weight " + node.text("weight") + " does not fit the image that it is given");
    const int64_t reach_y = far_y * (kh - 1), reach_x = far_x * (kw - 1);
    const int64_t height = divided(x.size.height + 2 * top - reach_y - 1, every_y) + 1, width = divided(x.size.width + 2 * left - reach_x - 1, every_x) + 1;
    check(height > 0 && width > 0, "the image is smaller than the window of " + node.text("weight"));
    const Size size{outputs, height, width};
    check_size(size);
    const int64_t area = kh * kw;
    // The rows of a transposed weight are the inputs of the layer, whose sums have one scale only if all rows have the same.
    const auto has_first_scale = [&](float scale) { return scale == weight.scales[0]; };
    const bool whole_numbers = !weight.integers.empty() && node.has("input") &&
                               (!transposed || std::all_of(weight.scales.begin(), weight.scales.end(), has_first_scale));
    std::vector<double> scale(size_t(outputs), 1.0), bias(size_t(outputs), 0.0);
    if (node.has("bias")) {
        const std::vector<float> numbers = dense_numbers(node, "bias", outputs);
        bias.assign(numbers.begin(), numbers.end());
    }
    // The taps; strides divide the image into planes whose pixels lie next to each other. A window that does not keep its image's size reads
    // planes that were cut out for it.
    int image = stored(x);
    const bool regular = height == -divided(-x.size.height, every_y) && width == -divided(-x.size.width, every_x);
    const bool plain = regular && every_y == 1 && every_x == 1;
    check(weight.pruned || int64_t(weight.values.size()) == weight.length(), "the weight " + node.text("weight") + " has a type that is no weight's");
    check(weight.num_values() <= INT32_MAX, "the weight " + node.text("weight") + " is too large");
    take_memory(12.0 * double(weight.num_values()));
    take_work(2.0 * double(weight.num_values()));
    auto taps = std::make_shared<std::vector<Tap>>();
    taps->reserve(weight.num_values());
    std::vector<Tap> planes;
    std::map<std::array<int64_t, 3>, int32_t> numbered;
    const auto plane = [&](int64_t channel, int64_t y, int64_t x) {
        auto [found, fresh] = numbered.try_emplace({channel, y, x}, int32_t(planes.size()));
        if (fresh) {
            planes.push_back({0, int32_t(channel), int32_t(y), int32_t(x), 1.0f});
            check(int64_t(planes.size()) * height * width <= MAX_WORKSPACE, "the network's images take too much memory");
        }
        return found->second;
    };
    for (size_t i = 0; i < weight.num_values(); i++) {
        const float number = whole_numbers ? float(weight.integers[i]) : weight.value(i);
        check(std::isfinite(number), "the weight " + node.text("weight") + " holds a number that is not finite");
        if (number == 0) continue;
        const int64_t at = weight.position(i), row = transposed ? at % outputs : at / (inputs * area);
        const int64_t channel = transposed ? at / outputs : at / area % inputs + row / (outputs / groups) * inputs;
        const int64_t y = far_y * (at / kw % kh) - top, across = far_x * (at % kw) - left;
        if (plain) {
            taps->push_back({int32_t(row), int32_t(channel), int32_t(y), int32_t(across), number});
        } else if (regular) {
            const int64_t whole_y = divided(y, every_y), whole_x = divided(across, every_x);
            const int32_t from = plane(channel, y - whole_y * every_y, across - whole_x * every_x);
            taps->push_back({int32_t(row), from, int32_t(whole_y), int32_t(whole_x), number});
        } else {
            taps->push_back({int32_t(row), plane(channel, y, across), 0, 0, number});
        }
    }
    const double density = double(taps->size()) / double(std::max<int64_t>(weight.length(), 1));
    if (!plain && !planes.empty()) image = sample(image, size, planes, every_y, every_x);
    Part part{image, -1, taps, scale};
    if (whole_numbers) {
        const Json &given = node.attribute("input");
        check(given.list.size() == 2 && given.list[0].is_number() && given.list[1].is(Json::INTEGER), "the input of " + node.op + " is none");
        const double step = given.list[0].number();
        const int64_t zero = given.list[1].integer;
        check(step > 1e-30 && step < 1e30 && zero >= 0 && zero <= 127, "the input of " + node.op + " is none");
        Image &read = plan.images[size_t(image)];
        const auto same = [&](const Image::Bytes &form) { return form.scale == float(step) && form.zero == zero; };
        auto found = std::find_if(read.bytes.begin(), read.bytes.end(), same);
        if (most_in_a_row(*taps, outputs) > MAX_INT8_TAPS || (found == read.bytes.end() && read.bytes.size() == MAX_BYTE_FORMS)) {
            part.form = -1;  // so many taps, or so many scales of one image: this layer computes with floats
            for (size_t i = 0; i < scale.size(); i++) part.scale[i] = weight.scales[transposed ? 0 : i];
        } else {
            if (found == read.bytes.end()) {
                read.bytes.push_back({float(step), int32_t(zero), 0, {}, {}, {}, {}});
                found = read.bytes.end() - 1;
            }
            part.form = int(found - read.bytes.begin());
            std::vector<double> sums(size_t(outputs), 0.0);
            for (const Tap &tap : *taps) sums[size_t(tap.row)] += tap.weight;
            for (size_t i = 0; i < scale.size(); i++) {
                part.scale[i] = double(weight.scales[transposed ? 0 : i]) * float(step);
                bias[i] -= part.scale[i] * double(zero) * sums[i];
            }
        }
    }
    Value value;
    value.size = size;
    value.parts.push_back(std::move(part));
    value.bias = std::move(bias);
    value.layer = node.text("weight");
    value.density = density;
    return value;
}

Value Builder::batch_norm(const Node &node, Value &x) {
    const int64_t channels = x.size.channels;
    const std::vector<float> mean = dense_numbers(node, "mean", channels), variance = dense_numbers(node, "variance", channels);
    const std::vector<float> weight = dense_numbers(node, "weight", channels, 1.0f), bias = dense_numbers(node, "bias", channels, 0.0f);
    const double eps = node.number("eps");
    Value value = linear(x);
    for (size_t c = 0; c < size_t(channels); c++) {
        const double scale = weight[c] / std::sqrt(double(variance[c]) + eps);
        check(std::isfinite(scale), "a batch_norm of its program divides by zero");
        for (Part &part : value.parts) part.scale[c] *= scale;
        value.bias[c] = (value.bias[c] - mean[c]) * scale + bias[c];
    }
    return value;
}

Value Builder::affine(const Node &node, Value &x) {
    Value value = linear(x);
    const double factor = node.number("factor"), offset = node.number("offset");
    for (Part &part : value.parts)
        for (double &scale : part.scale) scale *= factor;
    for (double &bias : value.bias) bias = bias * factor + offset;
    return value;
}

Value Builder::channels(const Node &node, Value &x) {
    const int64_t start = node.integer("start", 0, MANY), count = node.integer("count", 1, MANY), step = node.integer("step", 1, MANY);
    check(start + (count - 1) * step < x.size.channels, "its program takes channels that are not there");
    const int from = floats_of(x);
    take_memory(5.0 * double(count));
    auto taps = std::make_shared<std::vector<Tap>>();
    for (int64_t c = 0; c < count; c++) taps->push_back({int32_t(c), int32_t(start + c * step), 0, 0, 1.0f});
    Value value;
    value.size = {count, x.size.height, x.size.width};
    value.parts.push_back({from, -1, taps, std::vector<double>(size_t(count), 1.0)});
    value.bias.assign(size_t(count), 0.0);
    return value;
}

}  // namespace swamp
