#include "builder.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

namespace swamp {

namespace {

constexpr int64_t MANY = int64_t(1) << 24;
constexpr int64_t MAX_SHIFT = 2048;
constexpr double CACHE = 28 * 1024;  // bytes of the first-level cache that a tile may take
constexpr size_t MAX_PARTS = 32;  // of one value; a longer sum is stored in between, lest copies of sums take quadratic time
constexpr size_t MAX_INT8_TAPS = 130000;  // of one channel: their sum fits in 32 bits
constexpr double MAX_MEASURED = 2e8;  // vector operations of a layer; whoever has larger ones does not wait for measurements of them
constexpr double DENSE_FROM = 0.12;  // the density from which on a layer is also tried with the BLAS

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

void check_size(Size size) {
    const auto [c, h, w] = size;
    check(c > 0 && h > 0 && w > 0 && c <= MANY && h <= MANY && w <= MANY && c * h <= MAX_WORKSPACE && c * h * w <= MAX_WORKSPACE,
          "an image of its program is empty or too large");
}

size_t most_in_a_row(const std::vector<Tap> &taps, int64_t num_rows) {
    std::vector<size_t> counts(static_cast<size_t>(num_rows));
    for (const Tap &tap : taps) counts[size_t(tap.row)]++;
    return *std::max_element(counts.begin(), counts.end());
}

int64_t divided(int64_t value, int64_t by) { return value >= 0 ? value / by : -((-value + by - 1) / by); }

}  // namespace

Builder::Builder(const File &file, const swamp_sizes &sizes, Plan &plan, bool measure) : file(file), sizes(sizes), plan(plan), measuring(measure) {
    std::vector<int> uses(file.inputs.size() + file.nodes.size());
    for (const Node &node : file.nodes)
        for (int value : node.in) uses[size_t(value)]++;
    for (const Output &output : file.outputs) uses[size_t(output.value)]++;
    limit();
    read_inputs();
    for (const Node &node : file.nodes) {
        values.push_back(computed(node));
        check_size(values.back().size);
        take_memory(4.0 * double(values.back().size.channels) * double(1 + values.back().parts.size()));
        if (values.back().parts.size() > MAX_PARTS) stored(values.back());
        if (uses[values.size() - 1] > 1 && values.back().input < 0) stored(values.back());  // computed once
    }
    write_outputs();
    join_norms();
    lay_out_images();
    for (const Made &one : made) one.maker();
    values.clear();
    made.clear();
}

// -- limits ----------------------------------------------------------------------------------------------------------------------------

void Builder::limit() {
    double stored = 0, given = 0;
    for (const auto &[name, tensor] : file.tensors) stored += double(tensor.num_values());
    for (const Input &input : file.inputs) {
        const double height = double(input.sizes[1] < 0 ? sizes.height : input.sizes[1]);
        const double width = double(input.sizes[2] < 0 ? (input.kind == Kind::IMAGE ? sizes.width : sizes.length) : input.sizes[2]);
        given += double(input.sizes[0]) * height * width;
    }
    memory_left = std::min((16 << 20) + 64 * stored + 1024 * given * double(plan.num_stacked), plan.max_numbers);
    work_left = 2e9 + 1e5 * (stored + given) * double(plan.num_stacked);
}

void Builder::take_memory(double numbers) {
    memory_left -= numbers;
    if (memory_left < 0) throw TooLarge("the network takes more memory than one with its weights and inputs may");
}

void Builder::take_work(double operations) {
    work_left -= operations;
    if (work_left < 0) throw TooLarge("the network takes more computations than one with its weights and inputs may");
}

void Builder::add_step(Step step) {
    take_work(step.cost);
    plan.steps.push_back(std::move(step));
}

// -- images ----------------------------------------------------------------------------------------------------------------------------

int Builder::new_image(Size size) {
    check_size(size);
    Image image;
    image.size = size;
    plan.images.push_back(image);
    check(plan.images.size() < 100000, "its program is too long");
    return int(plan.images.size()) - 1;
}

void Builder::add(int out, std::vector<int> reads, Maker maker) {
    made.push_back({{out}, std::move(reads), std::move(maker), nullptr, nullptr});
}

int Builder::stored(Value &value) {
    if (value.image >= 0) return value.image;
    if (value.input >= 0) return as_numbers(value);
    const int out = new_image(value.size);
    std::vector<int> reads;
    for (const Part &part : value.parts) {
        reads.push_back(part.image);
        for (const Tap &tap : *part.taps) need(part.image, part.form, tap.y, tap.x);
    }
    add(out, reads, nullptr);
    made.back().sums = std::make_shared<Value>(value);
    made.back().maker = [this, at = made.size() - 1] { make_sum(made[at]); };
    value.parts.clear();
    value.image = out;
    return out;
}

int Builder::as_numbers(const Value &tokens) {
    const int out = new_image(tokens.size), input = tokens.input;
    plan.images[size_t(out)].has_floats = true;
    add(out, {}, [this, out, input] {
        Step step("", "input");
        step.run = [image = &plan.images[size_t(out)], input, stacked = plan.num_stacked](Workspace &memory, const Block &block, int64_t, int64_t) {
            const int64_t length = image->size.width, *given = static_cast<const int64_t *>(block.inputs[input]) + block.first * length;
            for (int64_t example = 0; example < block.count; example++)
                for (int64_t x = 0; x < length; x++)
                    image->plane(memory.floats, 0)[example * (1 + image->gap) * image->pitch + x] = float(given[example * length + x]);
            finish_channel(*image, memory, 0, stacked);
        };
        add_step(std::move(step));
    });
    return out;
}

// The pixels of an image row by row, as a sequence.
int Builder::as_sequence(Value &value) {
    const int from = read_floats(value);
    if (value.size.height == 1) return from;
    return joined_pixels({from});
}

int Builder::joined_pixels(const std::vector<int> &reads) {
    Size size{plan.images[size_t(reads[0])].size.channels, 1, 0};
    for (int from : reads) size.width += plan.images[size_t(from)].size.pixels();
    const int out = new_image(size);
    plan.images[size_t(out)].has_floats = true;
    const Node node{"concat", {}, {}};
    each_channel(node, out, reads, double(size.channels * size.width) / 8, [this, out, reads](Workspace &memory, int64_t channel) {
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

int Builder::read_floats(Value &value) {
    const int image = stored(value);
    plan.images[size_t(image)].has_floats = true;
    return image;
}

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
    const int image = read_floats(value);
    return whole(image);
}

void Builder::need(int image, int form, int64_t y, int64_t x) {
    check(std::abs(x) <= MAX_SHIFT, "a window of its program is too wide");
    Image &read = plan.images[size_t(image)];
    if (form < 0) {
        read.has_floats = true;
    } else {
        std::vector<int64_t> &shifts = read.bytes[size_t(form)].shifts;
        if (std::find(shifts.begin(), shifts.end(), x) == shifts.end()) shifts.push_back(x);
    }
    Grid &grid = grids[{read.size.height, read.size.width}];
    grid.gap = std::max(grid.gap, std::abs(y));
}

// A norm that reads nothing but the sums of a step before, channel by channel, is computed with them.
void Builder::join_norms() {
    std::map<int, size_t> written;  // the step that writes each image
    std::vector<Made> joined;
    for (Made &one : made) {
        const bool alone = one.sums && one.sums->parts.size() == 1 && one.sums->parts[0].form < 0 &&
                           int64_t(one.sums->parts[0].taps->size()) == one.sums->size.channels;
        if (alone) {
            const std::vector<Tap> &taps = *one.sums->parts[0].taps;
            const auto own = [](const Tap &tap) { return tap.row == tap.channel && !tap.x && !tap.y; };
            auto before = written.find(one.sums->parts[0].image);
            if (before != written.end() && std::all_of(taps.begin(), taps.end(), own) && std::is_sorted(taps.begin(), taps.end(), [](const Tap &a, const Tap &b) { return a.row < b.row; })) {
                Made &first = joined[before->second];
                if (first.sums && !first.second && first.sums->size == one.sums->size) {
                    first.second = one.sums;
                    first.outs.push_back(one.outs[0]);
                    continue;
                }
            }
        }
        if (one.outs[0] >= 0) written[one.outs[0]] = joined.size();
        joined.push_back(std::move(one));
    }
    made = std::move(joined);
    for (size_t at = 0; at < made.size(); at++)
        if (made[at].sums) made[at].maker = [this, at] { make_sum(made[at]); };
}

void Builder::lay_out_images() {
    for (Image &image : plan.images) {
        Grid &grid = grids[{image.size.height, image.size.width}];
        grid.pitch = pitch_of(image.size.height, image.size.width);
    }
    // The memory of an image that is no longer read is taken for a later one of the same form, whose borders are at the same places.
    using Key = std::vector<int64_t>;
    std::map<Key, std::vector<std::pair<int64_t, int64_t>>> unused;
    std::vector<size_t> last(plan.images.size(), 0);
    for (size_t i = 0; i < made.size(); i++)
        for (int image : made[i].reads) last[size_t(image)] = i;
    std::vector<std::pair<int64_t, int64_t>> places(plan.images.size());
    std::vector<Key> keys(plan.images.size());
    for (size_t i = 0; i < made.size(); i++) {
        for (int out : made[i].outs) {
            if (out < 0) continue;
            Image &image = plan.images[size_t(out)];
            const Grid &grid = grids[{image.size.height, image.size.width}];
            const int64_t rows = grid.gap + plan.num_stacked * (image.size.height + grid.gap);
            check(rows <= MAX_WORKSPACE / grid.pitch / image.size.channels, "the network's images take too much memory");
            const auto [floats, bytes] = lay_out(image, grid, plan.num_stacked);
            Key key = {image.size.channels, image.size.height, image.size.width, image.has_floats};
            for (const Image::Bytes &one : image.bytes) {
                key.insert(key.end(), {one.zero, INT64_MAX});
                key.insert(key.end(), one.shifts.begin(), one.shifts.end());
            }
            auto &pool = unused[key];
            if (pool.empty()) {
                places[size_t(out)] = {plan.num_floats, plan.num_bytes};
                plan.num_floats += floats;
                plan.num_bytes += bytes;
                take_memory(double(floats) + double(bytes) / 4);
                check(plan.num_floats <= MAX_WORKSPACE && plan.num_bytes <= MAX_WORKSPACE, "the network's images take too much memory");
            } else {
                places[size_t(out)] = pool.back();
                pool.pop_back();
            }
            keys[size_t(out)] = key;
            image.offset += places[size_t(out)].first;
            for (Image::Bytes &one : image.bytes) {
                one.form.offset += places[size_t(out)].second;
                one.inside.clear();
                for (int64_t shift : one.shifts) one.inside.push_back(inside(image, -shift).second);
                one.form.inside_bits = one.inside.data();
            }
        }
        std::set<int> done(made[i].reads.begin(), made[i].reads.end());
        for (int image : done)
            if (last[size_t(image)] == i) unused[keys[size_t(image)]].push_back(places[size_t(image)]);
    }
}

// -- inputs and outputs ----------------------------------------------------------------------------------------------------------------

void Builder::read_inputs() {
    for (size_t i = 0; i < file.inputs.size(); i++) {
        const Input &input = file.inputs[i];
        const int64_t free[3] = {-1, sizes.height, input.kind == Kind::IMAGE ? sizes.width : sizes.length};
        Size size;
        int64_t *sides[3] = {&size.channels, &size.height, &size.width};
        for (int k = 0; k < 3; k++) {
            *sides[k] = input.sizes[k] < 0 ? free[k] : input.sizes[k];
            check(*sides[k] > 0, "the input " + input.name + " has a size that the call must give");
        }
        check_size(size);
        Value value;
        value.size = size;
        if (input.kind == Kind::TOKENS) {
            value.input = int(i);
            values.push_back(value);
            continue;
        }
        const int out = new_image(size);
        plan.images[size_t(out)].has_floats = true;
        const bool last = input.kind == Kind::SEQUENCE;
        add(out, {}, [this, out, i, size, last] {
            Step step("", "input");
            step.parts = size.channels;
            step.cost = double(size.channels * size.pixels()) / 8;
            const Image *image = &plan.images[size_t(out)];
            const int64_t stacked = plan.num_stacked;
            step.run = [image, i, size, last, stacked](Workspace &memory, const Block &block, int64_t first, int64_t stop) {
                const float *given = static_cast<const float *>(block.inputs[i]) + block.first * size.channels * size.pixels();
                for (int64_t example = 0; example < block.count; example++, given += size.channels * size.pixels()) {
                    float *wanted = image->plane(memory.floats, first) + example * (size.height + image->gap) * image->pitch;
                    if (last) kernels().transpose(given + first, size.channels, wanted, image->stride, size.width, stop - first);
                    for (int64_t channel = first; !last && channel < stop; channel++, wanted += image->stride)
                        kernels().pick(given + channel * size.pixels(), size.width, 1, 1, wanted, image->pitch, size.height, size.width);
                }
                for (int64_t channel = first; channel < stop; channel++) finish_channel(*image, memory, channel, stacked);
            };
            add_step(std::move(step));
        });
        value.image = out;
        values.push_back(value);
    }
}

void Builder::write_outputs() {
    for (size_t i = 0; i < file.outputs.size(); i++) {
        const Output &output = file.outputs[i];
        Value &value = values[size_t(output.value)];
        const int from = read_floats(value);
        const Size size = value.size;
        const bool right = output.kind == Kind::IMAGE || (size.height == 1 && (output.kind == Kind::SEQUENCE || output.kind == Kind::SIGNAL || size.width == 1));
        check(right, "the output " + output.name + " of its program has a size that does not fit its kind");
        plan.outputs.push_back(size);
        const bool last = output.kind == Kind::SEQUENCE;
        add(-1, {from}, [this, from, i, size, last] {
            const Image *image = &plan.images[size_t(from)];
            Step step("", "output");
            step.cost = double(size.channels * size.pixels()) / 8;
            step.run = [image, i, size, last](Workspace &memory, const Block &block, int64_t, int64_t) {
                float *wanted = block.outputs[i] + block.first * size.channels * size.pixels();
                for (int64_t example = 0; example < block.count; example++, wanted += size.channels * size.pixels()) {
                    const float *found = image->plane(memory.floats, 0) + example * (size.height + image->gap) * image->pitch;
                    if (last) kernels().transpose(found, image->stride, wanted, size.channels, size.channels, size.width);
                    for (int64_t channel = 0; !last && channel < size.channels; channel++)
                        kernels().pick(found + channel * image->stride, image->pitch, 1, 1, wanted + channel * size.pixels(), size.width, size.height,
                                       size.width);
                }
            };
            add_step(std::move(step));
        });
    }
}

// -- nodes -----------------------------------------------------------------------------------------------------------------------------

Value Builder::computed(const Node &node) {
    const auto given = [&](size_t count) {
        check(node.in.size() == count, node.op + " of its program has another number of inputs than it should");
        return &values[size_t(node.in.empty() ? 0 : node.in[0])];
    };
    if (node.op == "conv" || node.op == "linear") return weighted(node, *given(1));
    if (node.op == "flatten") return flatten(node, *given(1));
    if (node.op == "batch_norm") return batch_norm(node, *given(1));
    if (node.op == "layer_norm") return layer_norm(node, *given(1));
    if (node.op == "group_norm") return group_norm(node, *given(1));
    if (node.op == "activation") return activation(node, *given(1));
    if (node.op == "affine") return affine(node, *given(1));
    if (node.op == "add" || node.op == "multiply") {
        Value &first = *given(2);
        return combined(node, first, values[size_t(node.in[1])]);
    }
    if (node.op == "softmax") return softmax(node, *given(1));
    if (node.op == "attention") return attention(node);
    if (node.op == "embedding") return embedding(node, *given(1));
    if (node.op == "constant") {
        given(0);
        return fixed(node, 0, -1);
    }
    if (node.op == "positions") return fixed(node, node.integer("offset", 0, MANY), given(1)->size.width);
    if (node.op == "concat") return concat(node);
    if (node.op == "channels") return channels(node, *given(1));
    if (node.op == "pixels") return pixels(node, *given(1));
    if (node.op == "max_pool" || node.op == "avg_pool") return pool(node, *given(1));
    if (node.op == "global_mean" || node.op == "global_max") return global(node, *given(1));
    if (node.op == "upsample") return upsample(node, *given(1));
    throw Malformed("its program has the unknown operation " + node.op);
}

std::vector<float> Builder::dense_numbers(const Node &node, const char *attribute, int64_t length) {
    const Tensor &tensor = file.tensor(node, attribute, 1);
    check(tensor.shape[0] == length, "the tensor " + node.text(attribute) + " has a shape that " + node.op + " does not take");
    std::vector<float> numbers(static_cast<size_t>(length));
    for (size_t i = 0; i < tensor.num_values(); i++) numbers[tensor.position(i)] = tensor.value(i);
    for (float number : numbers) check(std::isfinite(number), "the tensor " + node.text(attribute) + " holds a number that is not finite");
    return numbers;
}

// Planes of an image at (channel, y, x) and every few pixels, as an image of its own. Beyond the edges are zeros.
int Builder::sample(int image, Size size, const std::vector<Tap> &planes, int64_t every_y, int64_t every_x) {
    take_memory(30.0 * double(planes.size()));
    std::vector<int64_t> key = {image, size.height, size.width, every_y, every_x};
    for (const Tap &plane : planes) key.insert(key.end(), {plane.channel, plane.y, plane.x});
    if (auto found = sampled.find(key); found != sampled.end()) return found->second;
    const int out = new_image({int64_t(planes.size()), size.height, size.width});
    plan.images[size_t(out)].has_floats = plan.images[size_t(image)].has_floats = true;
    const Node node{"sample", {}, {}};
    const double cost = double(planes.size()) * double(size.pixels()) / 4;
    each_channel(node, out, {image}, cost, [this, out, image, planes, every_y, every_x](Workspace &memory, int64_t channel) {
        const Image &to = plan.images[size_t(out)], &from = plan.images[size_t(image)];
        const Tap &plane = planes[size_t(channel)];
        const float *source = from.plane(memory.floats, plane.channel);
        float *wanted = to.plane(memory.floats, channel);
        const auto range = [](int64_t at, int64_t every, int64_t length, int64_t count) {  // of the positions that are inside
            const int64_t begin = std::clamp<int64_t>(-divided(at, every), 0, count);
            return std::pair(begin, std::clamp<int64_t>(divided(length - 1 - at, every) + 1, begin, count));
        };
        const auto [left, right] = range(plane.x, every_x, from.size.width, to.size.width);
        const auto [top, bottom] = range(plane.y, every_y, from.size.height, to.size.height);
        const bool cut = left > 0 || right < to.size.width || top > 0 || bottom < to.size.height;
        for (int64_t example = 0; example < plan.num_stacked; example++) {
            float *first = wanted + row_of(to, example, 0);
            if (cut)
                for (int64_t y = 0; y < to.size.height; y++) std::fill_n(first + y * to.pitch, to.size.width, 0.0f);
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
    const int64_t outputs = weight.shape[0], inputs = weight.shape[1];
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
    const bool whole_numbers = !weight.integers.empty() && node.has("input");
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
        const int64_t at = weight.position(i), row = at / (inputs * area), channel = at / area % inputs + row / (outputs / groups) * inputs;
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
            for (size_t i = 0; i < scale.size(); i++) part.scale[i] = weight.scales[i];
        } else {
            if (found == read.bytes.end()) {
                read.bytes.push_back({float(step), int32_t(zero), {}, {}, {}, {}});
                found = read.bytes.end() - 1;
            }
            part.form = int(found - read.bytes.begin());
            std::vector<double> sums(size_t(outputs), 0.0);
            for (const Tap &tap : *taps) sums[size_t(tap.row)] += tap.weight;
            for (size_t i = 0; i < scale.size(); i++) {
                part.scale[i] = double(weight.scales[i]) * float(step);
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
    const std::vector<float> ones(size_t(channels), 1.0f), zeros(size_t(channels), 0.0f);
    const std::vector<float> weight = node.has("weight") ? dense_numbers(node, "weight", channels) : ones;
    const std::vector<float> bias = node.has("bias") ? dense_numbers(node, "bias", channels) : zeros;
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

Value Builder::activation(const Node &node, Value &x) {
    const Activation kind = activation_of(node.text("kind"));
    const float slope = node.has("slope") ? float(node.number("slope")) : 0.0f;
    if (kind == RELU) {
        if (x.image < 0 && x.relu) return x;
        Value value = linear(x);
        value.relu = true;
        return value;
    }
    const int from = read_floats(x), out = new_image(x.size);
    plan.images[size_t(out)].has_floats = true;
    const double cost = double(x.size.channels * x.size.pixels()) / 2;
    each_channel(node, out, {from}, cost, [this, out, from, kind, slope](Workspace &memory, int64_t channel) {
        const Image &to = plan.images[size_t(out)], &read = plan.images[size_t(from)];
        const float *source = read.plane(memory.floats, channel);
        float *wanted = to.plane(memory.floats, channel);
        if (!to.gap) return kernels().activate(kind, slope, source, wanted, to.num_positions);
        for (int64_t example = 0; example < plan.num_stacked; example++)
            kernels().activate(kind, slope, source + row_of(read, example, 0), wanted + row_of(to, example, 0), to.size.height * to.pitch);
    });
    Value value;
    value.size = x.size;
    value.image = out;
    return value;
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
    const int from = read_floats(x), other = read_floats(y), out = new_image(x.size);
    plan.images[size_t(out)].has_floats = true;
    const double cost = double(x.size.channels * x.size.pixels()) / 8;
    each_channel(node, out, {from, other}, cost, [this, out, from, other, sum, one_channel, one_pixel](Workspace &memory, int64_t channel) {
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
    });
    Value value;
    value.size = x.size;
    value.image = out;
    return value;
}

Value Builder::channels(const Node &node, Value &x) {
    const int64_t start = node.integer("start", 0, MANY), count = node.integer("count", 1, MANY), step = node.integer("step", 1, MANY);
    check(start + (count - 1) * step < x.size.channels, "its program takes channels that are not there");
    const int from = read_floats(x);
    take_memory(5.0 * double(count));
    auto taps = std::make_shared<std::vector<Tap>>();
    for (int64_t c = 0; c < count; c++) taps->push_back({int32_t(c), int32_t(start + c * step), 0, 0, 1.0f});
    Value value;
    value.size = {count, x.size.height, x.size.width};
    value.parts.push_back({from, -1, taps, std::vector<double>(size_t(count), 1.0)});
    value.bias.assign(size_t(count), 0.0);
    return value;
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
            const int from = read_floats(values[size_t(index)]);
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
    for (int index : node.in) reads.push_back(read_floats(values[size_t(index)]));
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
    const int from = read_floats(x);
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
    const int from = read_floats(x);
    const Size size{x.size.channels * x.size.pixels(), 1, 1};
    const int out = new_image(size);
    plan.images[size_t(out)].has_floats = true;
    each_channel(node, out, {from}, double(size.channels) / 4, [this, out, from](Workspace &memory, int64_t channel) {
        const Image &to = plan.images[size_t(out)], &read = plan.images[size_t(from)];
        const int64_t pixels = read.size.pixels(), y = channel % pixels / read.size.width, column = channel % read.size.width;
        for (int64_t example = 0; example < plan.num_stacked; example++)
            to.plane(memory.floats, channel)[row_of(to, example, 0)] =
                read.plane(memory.floats, channel / pixels)[row_of(read, example, y) + column];
    });
    Value value;
    value.size = size;
    value.image = out;
    return value;
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
    const int from = read_floats(x), out = new_image(size);
    plan.images[size_t(out)].has_floats = true;
    const double cost = double(size.channels * size.pixels()) * double(kh * kw) / 4;
    const auto compute = [=, this_plan = &plan](Workspace &memory, int64_t channel) {
        const Image &to = this_plan->images[size_t(out)], &read = this_plan->images[size_t(from)];
        for (int64_t example = 0; example < this_plan->num_stacked; example++)
            for (int64_t y = 0; y < to.size.height; y++) {
                float *row = to.plane(memory.floats, channel) + row_of(to, example, y);
                const int64_t y0 = std::max<int64_t>(y * every_y - top, 0), y1 = std::min(y * every_y - top + kh, read.size.height);
                const float *source = read.plane(memory.floats, channel) + row_of(read, example, 0);
                for (int64_t column = 0; column < to.size.width; column++) {
                    const int64_t x0 = std::max<int64_t>(column * every_x - left, 0), x1 = std::min(column * every_x - left + kw, read.size.width);
                    float found = largest ? -INFINITY : 0.0f;
                    for (int64_t i = y0; i < y1; i++)
                        for (int64_t j = x0; j < x1; j++) {
                            const float number = source[i * read.pitch + j];
                            found = !largest ? found + number : number > found || number != number ? number : found;
                        }
                    row[column] = largest ? found : found / float(all_count ? kh * kw : (y1 - y0) * (x1 - x0));
                }
            }
    };
    each_channel(node, out, {from}, cost, compute);
    Value value;
    value.size = size;
    value.image = out;
    return value;
}

Value Builder::global(const Node &node, Value &x) {
    const bool largest = node.op == "global_max";
    const Size size{x.size.channels, 1, 1};
    const int from = read_floats(x), out = new_image(size);
    plan.images[size_t(out)].has_floats = true;
    each_channel(node, out, {from}, double(x.size.channels * x.size.pixels()) / 8, [this, out, from, largest](Workspace &memory, int64_t channel) {
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
                for (int64_t x = 0; largest && x < read.size.width; x++) found = std::max(found, row[x]);
            }
            to.plane(memory.floats, channel)[row_of(to, example, 0)] = largest ? found : found / float(read.size.pixels());
        }
    });
    Value value;
    value.size = size;
    value.image = out;
    return value;
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
    const int from = read_floats(x), out = new_image(size);
    plan.images[size_t(out)].has_floats = true;
    each_channel(node, out, {from}, double(size.channels * size.pixels()), [this, out, from, rows, columns](Workspace &memory, int64_t channel) {
        const Image &to = plan.images[size_t(out)], &read = plan.images[size_t(from)];
        for (int64_t example = 0; example < plan.num_stacked; example++)
            for (int64_t y = 0; y < to.size.height; y++) {
                const auto [first, down] = rows[size_t(y)];
                const float *a = read.plane(memory.floats, channel) + row_of(read, example, first);
                const float *b = down == 0 ? a : a + read.pitch;
                float *row = to.plane(memory.floats, channel) + row_of(to, example, y);
                for (int64_t x = 0; x < to.size.width; x++) {
                    const auto [left, across] = columns[size_t(x)];
                    const int64_t right = across == 0 ? left : left + 1;
                    const float upper = a[left] + (a[right] - a[left]) * across, lower = b[left] + (b[right] - b[left]) * across;
                    row[x] = upper + (lower - upper) * down;
                }
            }
    });
    Value value;
    value.size = size;
    value.image = out;
    return value;
}

Value Builder::layer_norm(const Node &node, Value &x) {
    const float eps = float(node.number("eps"));
    const float *weight = node.has("weight") ? keep(dense_numbers(node, "weight", x.size.channels)) : nullptr;
    const float *bias = node.has("bias") ? keep(dense_numbers(node, "bias", x.size.channels)) : nullptr;
    const int from = read_floats(x), out = new_image(x.size);
    plan.images[size_t(out)].has_floats = true;
    add(out, {from}, [this, out, from, weight, bias, eps] {
        Step step("layer_norm", "float");
        step.cost = double(plan.images[size_t(out)].size.channels * plan.images[size_t(out)].num_positions) / 4;
        step.run = [this_plan = &plan, out, from, weight, bias, eps](Workspace &memory, const Block &, int64_t, int64_t) {
            const Image &to = this_plan->images[size_t(out)], &read = this_plan->images[size_t(from)];
            const int64_t length = to.num_positions;
            if (int64_t(memory.scratch.size()) < 2 * length) memory.scratch.resize(size_t(2 * length));
            kernels().normalise(read.plane(memory.floats, 0), read.stride, to.plane(memory.floats, 0), to.stride, to.size.channels,
                                length, weight, bias, eps, memory.scratch.data());
            for (int64_t channel = 0; channel < to.size.channels; channel++) finish_channel(to, memory, channel, this_plan->num_stacked);
        };
        add_step(std::move(step));
    });
    Value value;
    value.size = x.size;
    value.image = out;
    return value;
}

Value Builder::group_norm(const Node &node, Value &x) {
    const int64_t groups = node.integer("groups", 1, MANY), channels = x.size.channels;
    check(channels % groups == 0, "a group_norm of its program has groups of unequal size");
    const float eps = float(node.number("eps"));
    const std::vector<float> weight = node.has("weight") ? dense_numbers(node, "weight", channels) : std::vector<float>(size_t(channels), 1.0f);
    const std::vector<float> bias = node.has("bias") ? dense_numbers(node, "bias", channels) : std::vector<float>(size_t(channels), 0.0f);
    const int from = read_floats(x), out = new_image(x.size);
    plan.images[size_t(out)].has_floats = true;
    add(out, {from}, [this, out, from, weight, bias, eps, groups, channels] {
        Step step("group_norm", "float");
        step.parts = groups;
        step.cost = double(plan.images[size_t(out)].size.channels * plan.images[size_t(out)].num_positions) / 2;
        step.run = [this, this_plan = &plan, out, from, weight, bias, eps, groups, channels](Workspace &memory, const Block &, int64_t first, int64_t last) {
            const Image &to = this_plan->images[size_t(out)], &read = this_plan->images[size_t(from)];
            const int64_t each = channels / groups, step = to.size.height + to.gap;
            for (int64_t group = first; group < last; group++) {
                for (int64_t example = 0; example < this_plan->num_stacked; example++) {
                    double sum = 0, squares = 0;
                    const auto rows = [&](auto visit) {
                        for (int64_t c = group * each; c < (group + 1) * each; c++)
                            for (int64_t y = 0; y < to.size.height; y++) {
                                const int64_t at = (example * step + y) * to.pitch;
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
                        const float scale = share * weight[size_t(c)], shift = bias[size_t(c)] - float(mean) * scale;
                        for (int64_t i = 0; i < to.size.width; i++) wanted[i] = row[i] * scale + shift;
                    });
                }
                for (int64_t c = group * each; c < (group + 1) * each; c++) finish_channel(to, memory, c, this_plan->num_stacked);
            }
        };
        add_step(std::move(step));
    });
    Value value;
    value.size = x.size;
    value.image = out;
    return value;
}

Value Builder::softmax(const Node &node, Value &x) {
    const int from = read_floats(x), out = new_image(x.size);
    plan.images[size_t(out)].has_floats = true;
    add(out, {from}, [this, out, from] {
        Step step("softmax", "float");
        step.cost = double(plan.images[size_t(out)].size.channels * plan.images[size_t(out)].num_positions) / 2;
        step.run = [this_plan = &plan, out, from](Workspace &memory, const Block &, int64_t, int64_t) {
            const Image &to = this_plan->images[size_t(out)], &read = this_plan->images[size_t(from)];
            for (int64_t c = 0; c < to.size.channels; c++)
                std::memcpy(to.plane(memory.floats, c), read.plane(memory.floats, c), size_t(to.num_positions) * sizeof(float));
            kernels().softmax(to.plane(memory.floats, 0), to.size.channels, to.num_positions, to.stride, nullptr, false);
            for (int64_t c = 0; c < to.size.channels; c++) finish_channel(to, memory, c, this_plan->num_stacked);
        };
        add_step(std::move(step));
    });
    (void)node;
    Value value;
    value.size = x.size;
    value.image = out;
    return value;
}

Value Builder::attention(const Node &node) {
    check(node.in.size() == 3 || node.in.size() == 4, "an attention of its program has another number of inputs than it should");
    const int64_t heads = node.integer("heads", 1, 65536);
    const bool causal = node.boolean("causal");
    const float scale = float(node.number("scale"));
    Value &q = values[size_t(node.in[0])], &k = values[size_t(node.in[1])], &v = values[size_t(node.in[2])];
    const int64_t queries = q.size.pixels(), keys = k.size.pixels();
    const bool fits = q.size.channels == k.size.channels && keys == v.size.pixels() && q.size.channels % heads == 0 &&
                      v.size.channels % heads == 0 && (!causal || queries == keys);
    check(fits && std::isfinite(scale), "an attention of its program has queries, keys and values that do not fit together");
    const double scores = double(queries) * double(keys);
    take_memory(std::max(scores - largest_scores, 0.0));
    largest_scores = std::max(scores, largest_scores);
    std::vector<int> reads = {as_sequence(q), as_sequence(k), as_sequence(v)};
    const bool masked = node.in.size() == 4;
    if (masked) {
        Value &given = values[size_t(node.in[3])];
        check(given.size == (Size{1, 1, keys}), "an attention of its program has a mask that does not fit");
        reads.push_back(read_floats(given));
    }
    const Size size{v.size.channels, q.size.height, q.size.width};
    const int out = new_image(size);
    plan.images[size_t(out)].has_floats = true;
    const int64_t inner = q.size.channels / heads, outer = v.size.channels / heads;
    add(out, reads, [=] {
        Step step("attention", "float");
        step.parts = heads;
        step.cost = double(heads * queries * keys * (inner + outer)) / 16;
        step.run = [=, this_plan = &plan](Workspace &memory, const Block &block, int64_t first, int64_t last) {
            const Image &to = this_plan->images[size_t(out)], &qs = this_plan->images[size_t(reads[0])], &ks = this_plan->images[size_t(reads[1])],
                        &vs = this_plan->images[size_t(reads[2])];
            std::vector<float> scores(static_cast<size_t>(queries * keys));
            std::vector<uint8_t> seen(static_cast<size_t>(masked ? keys : 0));
            std::vector<float> found(static_cast<size_t>(size.height > 1 ? outer * queries : 0));  // where rows do not follow each other
            for (int64_t head = first; head < last; head++) {
                for (int64_t example = 0; example < block.count; example++) {
                    if (masked) {
                        const Image &mask = this_plan->images[size_t(reads[3])];
                        const float *given = mask.plane(memory.floats, 0) + example * (1 + mask.gap) * mask.pitch;
                        for (int64_t i = 0; i < keys; i++) seen[size_t(i)] = given[i] != 0;
                    }
                    const auto at = [&](const Image &image) { return example * (image.size.height + image.gap) * image.pitch; };
                    const float *query = qs.plane(memory.floats, head * inner) + at(qs), *key = ks.plane(memory.floats, head * inner) + at(ks);
                    float *wanted = to.plane(memory.floats, head * outer) + at(to), *whole = size.height > 1 ? found.data() : wanted;
                    // The scores lie key by key, so that both products and the softmax run along the queries.
                    kernels().multiply(keys, queries, inner, scale, key, 1, ks.stride, query, qs.stride, scores.data(), queries);
                    kernels().softmax(scores.data(), keys, queries, queries, masked ? seen.data() : nullptr, causal);
                    kernels().multiply(outer, queries, keys, 1.0f, vs.plane(memory.floats, head * outer) + at(vs), vs.stride, 1, scores.data(), queries,
                                       whole, size.height > 1 ? queries : to.stride);
                    for (int64_t c = 0; size.height > 1 && c < outer; c++)
                        for (int64_t y = 0; y < size.height; y++)
                            std::memcpy(wanted + c * to.stride + y * to.pitch, whole + c * queries + y * size.width, size_t(size.width) * sizeof(float));
                }
                for (int64_t c = head * outer; c < (head + 1) * outer; c++) finish_channel(to, memory, c, this_plan->num_stacked);
            }
        };
        add_step(std::move(step));
    });
    Value value;
    value.size = size;
    value.image = out;
    return value;
}

Value Builder::embedding(const Node &node, const Value &tokens) {
    check(tokens.input >= 0, "an embedding of its program is given what are no tokens");
    const Tensor &tensor = file.tensor(node, "weight", 2);
    const int64_t known = tensor.shape[0], channels = tensor.shape[1], length = tokens.size.width;
    check(known > 0 && channels > 0 && known * channels <= MAX_WORKSPACE, "an embedding of its program is empty or too large");
    take_memory(double(known * channels));
    std::vector<float> table(static_cast<size_t>(known * channels));
    for (size_t i = 0; i < tensor.num_values(); i++) table[tensor.position(i)] = tensor.value(i);
    const float *rows = keep(std::move(table));
    const int out = new_image({channels, 1, length}), input = tokens.input;
    plan.images[size_t(out)].has_floats = true;
    const std::string name = node.text("weight");
    add(out, {}, [this, out, rows, known, channels, length, input, name] {
        Step step(name, "float");
        step.cost = double(channels * length) / 2;
        step.run = [this_plan = &plan, out, rows, known, channels, length, input, name](Workspace &memory, const Block &block, int64_t, int64_t) {
            const Image &to = this_plan->images[size_t(out)];
            for (int64_t example = 0; example < block.count; example++) {
                const int64_t *given = static_cast<const int64_t *>(block.inputs[input]) + (block.first + example) * length;
                for (int64_t x = 0; x < length; x++) {
                    if (given[x] < 0 || given[x] >= known)
                        throw std::invalid_argument("token " + std::to_string(given[x]) + " is not between 0 and " + std::to_string(known - 1) + ", as " + name + " needs it");
                    float *wanted = to.plane(memory.floats, 0) + example * (1 + to.gap) * to.pitch + x;
                    for (int64_t c = 0; c < channels; c++) wanted[c * to.stride] = rows[given[x] * channels + c];
                }
            }
            for (int64_t c = 0; c < channels; c++) finish_channel(to, memory, c, this_plan->num_stacked);
        };
        add_step(std::move(step));
    });
    Value value;
    value.size = {channels, 1, length};
    value.image = out;
    return value;
}

Value Builder::fixed(const Node &node, int64_t offset, int64_t length) {
    const bool vector = file.num_dimensions(node, "weight") == 1;
    const Tensor &tensor = file.tensor(node, "weight", vector ? 1 : 2);
    const int64_t rows = vector ? 1 : tensor.shape[0], channels = vector ? tensor.shape[0] : tensor.shape[1];
    if (length < 0) length = rows;
    check(!vector || length == 1, node.op + " of its program needs a table");
    check(channels > 0 && length > 0 && offset + length <= rows, "the sequence has " + std::to_string(length) + " tokens, and the network has places for " + std::to_string(rows - offset));
    take_memory(double(rows * channels));
    std::vector<float> table(static_cast<size_t>(rows * channels));
    for (size_t i = 0; i < tensor.num_values(); i++) table[tensor.position(i)] = tensor.value(i);
    const float *numbers = keep(std::move(table));
    const Size size{channels, 1, length};
    const int out = new_image(size);
    plan.images[size_t(out)].has_floats = true;
    each_channel(node, out, {}, double(channels * length) / 4, [this, out, numbers, channels, offset](Workspace &memory, int64_t channel) {
        const Image &to = plan.images[size_t(out)];
        for (int64_t example = 0; example < plan.num_stacked; example++)
            for (int64_t x = 0; x < to.size.width; x++)
                to.plane(memory.floats, channel)[row_of(to, example, 0) + x] = numbers[(offset + x) * channels + channel];
    });
    Value value;
    value.size = size;
    value.image = out;
    return value;
}

// -- steps -----------------------------------------------------------------------------------------------------------------------------

void Builder::each_channel(const Node &node, int out, std::vector<int> reads, double cost, std::function<void(Workspace &, int64_t)> compute) {
    add(out, std::move(reads), [this, name = node.op, out, cost, compute] {
        Step step(name, "float");
        const Image *image = &plan.images[size_t(out)];
        step.parts = image->size.channels;
        step.cost = cost * double(plan.num_stacked);
        const int64_t stacked = plan.num_stacked;
        step.run = [image, compute, stacked](Workspace &memory, const Block &, int64_t first, int64_t last) {
            for (int64_t channel = first; channel < last; channel++) {
                compute(memory, channel);
                finish_channel(*image, memory, channel, stacked);
            }
        };
        add_step(std::move(step));
    });
}

// For a distance, which positions of an image still lie within their row after they were moved.
std::pair<const uint32_t *, const uint16_t *> Builder::inside(const Image &image, int64_t shift) {
    auto [found, fresh] = insides.try_emplace({image.size.height, image.size.width, shift});
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
    const int64_t rows_unit = std::lcm(width, pitch);
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
    step.parts = value.size.channels;
    step.cost = costs.back() * double((length + width - 1) / width);
    step.costs = std::move(costs);
    const Image *others = second ? &plan.images[size_t(outs[1])] : nullptr;
    step.run = [sum, image, others, length, num_tiles, unit, stacked](Workspace &memory, const Block &, int64_t first, int64_t last) {
        const int64_t units = (length + unit - 1) / unit;
        for (int64_t i = 0; i < num_tiles; i++) {  // of nearly equal size
            const int64_t begin = units * i / num_tiles * unit, end = std::min(units * (i + 1) / num_tiles * unit, length);
            kernels().sum(sum, memory.floats, memory.bytes, first, last, begin, end);
        }
        for (const Image *written : {image, others})
            if (written && ((!written->bytes.empty() && !kernels().keeps_sides) || stacked > 1))
                for (int64_t channel = first; channel < last; channel++) clear_edges(*written, memory, channel, stacked);
    };
    return step;
}

void Builder::make_sum(const Made &one) {
    Step step = sum_step(one.outs, *one.sums, one.second.get());
    if (measuring && step.cost < MAX_MEASURED) try_dense(step, one);
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
    dense.parts = 1;  // a BLAS has threads of its own
    dense.costs.clear();
    dense.run = [=, add_rest = dense.run](Workspace &memory, const Block &block, int64_t, int64_t) {
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
        add_rest(memory, block, 0, rows);
    };
    const auto memory = plan.workspace();
    const Block block{0, plan.num_stacked, nullptr, nullptr};
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
