// Reads a program node by node and lays out its images.

#include "builder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace swamp {

namespace {

constexpr int64_t MAX_SHIFT = 2048;
constexpr int64_t MIN_BAND = 32;  // numbers of a channel
constexpr size_t MAX_PARTS = 32;  // of one value; a longer sum is stored in between, lest copies of sums take quadratic time

}  // namespace

void check_size(Size size) {
    const auto [c, h, w] = size;
    check(c > 0 && h > 0 && w > 0 && c <= MANY && h <= MANY && w <= MANY && c * h <= MAX_WORKSPACE && c * h * w <= MAX_WORKSPACE,
          "an image of its program is empty or too large");
}

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
    const auto in_bands = [](const Image &image) { return image.bands > 1; };
    if (plan.num_bands > 1 && std::none_of(plan.images.begin(), plan.images.end(), in_bands)) throw NoBands();
    join_norms();
    lay_out_images();
    for (const Made &one : made) one.maker();
    values.clear();
    made.clear();
}

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

int Builder::new_image(Size size) {
    check_size(size);
    Image image;
    image.size = size;
    plan.images.push_back(image);
    check(plan.images.size() < 100000, "its program is too long");
    return int(plan.images.size()) - 1;
}

int Builder::new_float_image(Size size) {
    const int image = new_image(size);
    plan.images.back().has_floats = true;
    return image;
}

Value Builder::as_value(int image) const {
    Value value;
    value.size = plan.images[size_t(image)].size;
    value.image = image;
    return value;
}

void Builder::add(int out, std::vector<int> reads, Maker maker) {
    made.push_back({{out}, std::move(reads), std::move(maker), nullptr, nullptr});
}

int Builder::stored(Value &value) {
    if (value.image >= 0) return value.image;
    if (value.input >= 0) return as_numbers(value);
    const int out = new_image(value.size);
    std::vector<int> reads;
    size_t num_banded = 0;
    for (const Part &part : value.parts) {
        reads.push_back(part.image);
        num_banded += plan.images[size_t(part.image)].bands > 1;
        for (const Tap &tap : *part.taps) need(part.image, part.form, tap.y, tap.x);
    }
    if (num_banded && num_banded < value.parts.size()) throw NoBands();
    if (num_banded) plan.images[size_t(out)].bands = plan.num_bands;
    add(out, reads, nullptr);
    made.back().sums = std::make_shared<Value>(value);
    made.back().maker = [this, at = made.size() - 1] { make_sum(made[at]); };
    value.parts.clear();
    value.image = out;
    return out;
}

int Builder::floats_of(Value &value) {
    const int image = stored(value);
    plan.images[size_t(image)].has_floats = true;
    return image;
}

int Builder::whole_floats(Value &value) {
    const int from = floats_of(value);
    if (plan.images[size_t(from)].bands == 1) return from;
    if (const auto found = gathered.find(from); found != gathered.end()) return found->second;
    const int out = new_float_image(value.size);
    const double cost = double(value.size.channels * value.size.pixels()) / 8;
    each_part("", out, {from}, value.size.channels, cost, [this, from, out](Workspace &memory, const Block &, int64_t channel) {
        const Image &to = plan.images[size_t(out)], &read = plan.images[size_t(from)];
        const int64_t rows = read.height();
        for (int64_t band = 0; band < read.bands; band++)
            kernels().pick(read.plane(memory.of_band(band).floats, channel), read.pitch, 1, 1, to.plane(memory.floats, channel) + band * rows * to.pitch,
                           to.pitch, rows, to.size.width);
    });
    return gathered[from] = out;
}

// Bands of few numbers cost more than they save.
bool Builder::can_band(Size size) const {
    const int64_t bands = plan.num_bands;
    return bands > 1 && size.height % bands == 0 && size.height / bands * size.width >= MIN_BAND;
}

void Builder::share_edges(Step &step, const std::vector<int> &outs) {
    std::vector<const Image *> images;
    for (int out : outs) {
        const Image &image = plan.images[size_t(out)];
        const auto reaches = [](const Image::Bytes &bytes) { return bytes.reach > 0; };
        step.banded = image.bands > 1;
        if (image.bands > 1 && (image.reach || std::any_of(image.bytes.begin(), image.bytes.end(), reaches))) images.push_back(&image);
    }
    if (images.empty()) return;
    step.edges = std::make_shared<const Edges>(std::move(images));
    plan.num_edge_bytes = std::max(plan.num_edge_bytes, step.edges->num_bytes());
}

void Builder::need(int image, int form, int64_t y, int64_t x) {
    check(std::abs(x) <= MAX_SHIFT, "a window of its program is too wide");
    Image &read = plan.images[size_t(image)];
    int64_t &reach = form < 0 ? read.reach : read.bytes[size_t(form)].reach;
    reach = std::max(reach, std::abs(y));
    if (read.bands > 1 && reach > read.height()) throw NoBands();
    if (form < 0) {
        read.has_floats = true;
    } else {
        std::vector<int64_t> &shifts = read.bytes[size_t(form)].shifts;
        if (std::find(shifts.begin(), shifts.end(), x) == shifts.end()) shifts.push_back(x);
    }
    Grid &grid = grid_of(read);
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
        Grid &grid = grid_of(image);
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
            const Grid &grid = grid_of(image);
            const int64_t rows = grid.gap + plan.num_stacked * (image.size.height + grid.gap);
            check(rows <= MAX_WORKSPACE / grid.pitch / image.size.channels, "the network's images take too much memory");
            const auto [floats, bytes] = lay_out(image, grid, plan.num_stacked);
            Key key = {image.size.channels, image.size.height, image.size.width, image.bands, image.has_floats};
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
        const int out = new_float_image(size);
        if (input.kind == Kind::IMAGE && can_band(size)) plan.images[size_t(out)].bands = plan.num_bands;
        const bool last = input.kind == Kind::SEQUENCE;
        add(out, {}, [this, out, i, size, last] {
            Step step("", "input");
            step.parts = size.channels;
            step.cost = double(size.channels * size.pixels()) / 8;
            const Image *image = &plan.images[size_t(out)];
            share_edges(step, {out});
            const int64_t stacked = plan.num_stacked;
            step.run = [image, i, size, last, stacked](Workspace &memory, const Block &block, int64_t first, int64_t stop) {
                const float *given = static_cast<const float *>(block.inputs[i]) + block.first * size.channels * size.pixels();
                for (int64_t example = 0; example < block.count; example++, given += size.channels * size.pixels()) {
                    float *wanted = image->plane(memory.floats, first) + example * (size.height + image->gap) * image->pitch;
                    if (last) kernels().transpose(given + first, size.channels, wanted, image->stride, size.width, stop - first);
                    for (int64_t channel = first; !last && channel < stop; channel++, wanted += image->stride)
                        kernels().pick(given + channel * size.pixels() + block.band * image->height() * size.width, size.width, 1, 1, wanted, image->pitch,
                                       image->height(), size.width);
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
        const int from = whole_floats(value);
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

Value Builder::computed(const Node &node) {
    const auto given = [&](size_t count) {
        check(node.in.size() == count, node.op + " of its program has another number of inputs than it should");
        return &values[size_t(node.in.empty() ? 0 : node.in[0])];
    };
    if (node.op == "conv" || node.op == "linear" || node.op == "transposed_linear") return weighted(node, *given(1));
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
    if (node.op == "embedding" || node.op == "counted_positions") return embedding(node, *given(1));
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

std::vector<float> Builder::dense_numbers(const Node &node, const char *attribute, int64_t length, float otherwise) {
    return node.has(attribute) ? dense_numbers(node, attribute, length) : std::vector<float>(size_t(length), otherwise);
}

const float *Builder::table(const Tensor &tensor) {
    take_memory(double(tensor.length()));
    std::vector<float> numbers(static_cast<size_t>(tensor.length()));
    for (size_t i = 0; i < tensor.num_values(); i++) numbers[tensor.position(i)] = tensor.value(i);
    return keep(std::move(numbers));
}

void Builder::each_part(const std::string &name, int out, std::vector<int> reads, int64_t parts, double cost,
                        std::function<void(Workspace &, const Block &, int64_t)> compute) {
    add(out, std::move(reads), [this, name, out, parts, cost, compute] {
        Step step(name, "float");
        const Image *image = &plan.images[size_t(out)];
        step.parts = parts;
        step.cost = cost * double(plan.num_stacked) / double(image->bands);
        share_edges(step, {out});
        const int64_t stacked = plan.num_stacked, each = image->size.channels / parts;
        step.run = [image, compute, stacked, each](Workspace &memory, const Block &block, int64_t first, int64_t last) {
            for (int64_t part = first; part < last; part++) {
                compute(memory, block, part);
                for (int64_t channel = part * each; channel < (part + 1) * each; channel++) finish_channel(*image, memory, channel, stacked);
            }
        };
        add_step(std::move(step));
    });
}

}  // namespace swamp
