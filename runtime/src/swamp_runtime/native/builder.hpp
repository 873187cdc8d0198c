// From a program to the steps of a plan.
#pragma once

#include <array>
#include <set>

#include "layout.hpp"

namespace swamp {

constexpr int64_t MANY = int64_t(1) << 24;  // no side of an image is longer

void check_size(Size size);

// Whole division that rounds down.
inline int64_t divided(int64_t value, int64_t by) { return value >= 0 ? value / by : -((-value + by - 1) / by); }

struct Tap {
    int32_t row, channel;  // of the output and of the image
    int32_t y, x;  // distance from the output's pixel
    float weight;
};

// Taps into one image, or into one of its int8 forms.
struct Part {
    int image = -1, form = -1;  // form -1: floats
    std::shared_ptr<const std::vector<Tap>> taps;
    std::vector<double> scale;  // of the rows
};

// A value of the program: a stored image, or the sums that it is. Norms and sums that follow a layer are folded into its taps.
struct Value {
    Size size;
    int image = -1;
    int input = -1;  // tokens: the number of the input
    std::vector<Part> parts;
    std::vector<double> bias;
    bool relu = false;
    std::string layer;  // the weight that it comes from
    double density = 1;
};

class Builder {
   public:
    Builder(const File &file, const swamp_sizes &sizes, Plan &plan, bool measure);

   private:
    using Maker = std::function<void()>;

    const File &file;
    const swamp_sizes &sizes;
    Plan &plan;
    const bool measuring;
    double memory_left, work_left;  // numbers of four bytes, and vector operations
    double largest_scores = 0;  // of attention, which each layer needs for itself
    std::vector<Value> values;
    struct Made {
        std::vector<int> outs, reads;  // the images that a step writes (-1: none) and reads
        Maker maker;  // adds the step, when the layout is known
        std::shared_ptr<Value> sums, second;  // of a step of sums, and of the norm that is computed with them
    };
    std::vector<Made> made;
    std::map<std::array<int64_t, 3>, Grid> grids;
    std::map<int, int> gathered;  // images that were in bands, and are whole
    std::map<std::vector<int64_t>, int> sampled;
    std::map<std::array<int64_t, 4>, std::pair<const uint32_t *, const uint16_t *>> insides;

    void read_inputs();
    Value computed(const Node &node);
    void write_outputs();
    void join_norms();
    void lay_out_images();
    std::pair<const uint32_t *, const uint16_t *> inside(const Image &image, int64_t shift);

    // A small file must not need much memory or time. What is taken is counted before it is allocated or computed.
    void limit();
    void take_memory(double numbers);
    void take_work(double operations);

    int new_image(Size size);
    int new_float_image(Size size);
    Value as_value(int image) const;
    int stored(Value &value);  // the number of the value's image
    int floats_of(Value &value);  // the same, of an image that has floats
    int whole_floats(Value &value);  // the same, of an image that is not in bands
    bool can_band(Size size) const;
    Grid &grid_of(const Image &image) { return grids[{image.height(), image.size.width, image.bands}]; }
    void share_edges(Step &step, const std::vector<int> &outs);
    int as_numbers(const Value &tokens);
    int as_sequence(Value &value);
    int joined_pixels(const std::vector<int> &reads);
    Value whole(int image);
    Value linear(Value &value);
    void need(int image, int form, int64_t y, int64_t x);
    void add(int out, std::vector<int> reads, Maker maker);
    void add_step(Step step);

    Step sum_step(const std::vector<int> &outs, const Value &value, const Value *second);
    void make_sum(const Made &one);
    void try_dense(Step &step, const Made &one);
    // A step that computes an image in parts of equally many channels; `cost` is that of one example.
    void each_part(const std::string &name, int out, std::vector<int> reads, int64_t parts, double cost,
                   std::function<void(Workspace &, const Block &, int64_t part)> compute);

    Value weighted(const Node &node, Value &x);
    Value batch_norm(const Node &node, Value &x);
    Value layer_norm(const Node &node, Value &x);
    Value group_norm(const Node &node, Value &x);
    Value activation(const Node &node, Value &x);
    Value affine(const Node &node, Value &x);
    Value combined(const Node &node, Value &x, Value &y);
    Value softmax(const Node &node, Value &x);
    Value attention(const Node &node);
    Value embedding(const Node &node, const Value &tokens);
    Value fixed(const Node &node, int64_t offset, int64_t length);
    Value concat(const Node &node);
    Value channels(const Node &node, Value &x);
    Value pixels(const Node &node, Value &x);
    Value pool(const Node &node, Value &x);
    Value global(const Node &node, Value &x);
    Value upsample(const Node &node, Value &x);
    Value flatten(const Node &node, Value &x);
    int sample(int image, Size size, const std::vector<Tap> &planes, int64_t every_y, int64_t every_x);

    template <class T>
    T *keep(std::vector<T> numbers) {
        auto owner = std::make_shared<std::vector<T>>(std::move(numbers));
        plan.kept.push_back(owner);
        return owner->data();
    }
    std::vector<float> dense_numbers(const Node &node, const char *attribute, int64_t length);
    std::vector<float> dense_numbers(const Node &node, const char *attribute, int64_t length, float otherwise);  // where there is no tensor
    const float *table(const Tensor &tensor);
    int64_t row_of(const Image &image, int64_t example, int64_t y) const { return (example * (image.size.height + image.gap) + y) * image.pitch; }
};

// The BLAS that the caller gave, or null.
swamp_gemm given_gemm();

}  // namespace swamp
