// How a network is computed for inputs of certain sizes: images in a workspace, and the steps that fill them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "file.hpp"
#include "kernels.hpp"
#include "swamp_runtime.h"

namespace swamp {

struct Size {
    int64_t channels = 1, height = 1, width = 1;
    bool operator==(const Size &other) const { return channels == other.channels && height == other.height && width == other.width; }
    int64_t pixels() const { return height * width; }
};

// A stored image. The images of a block of examples lie below each other. Where layers read beyond the upper and lower edges there are rows
// of zeros above, below and between them.
struct Image {
    Size size;
    bool has_floats = false;
    struct Bytes {
        float scale;
        int32_t zero;
        std::vector<int64_t> shifts;  // horizontal distances at which the numbers are read
        Form form;
        std::vector<int64_t> copies;
        std::vector<const uint16_t *> inside;
    };
    std::vector<Bytes> bytes;  // its int8 forms

    int64_t pitch = 0, gap = 0, rows = 0, num_positions = 0;  // set by the layout
    int64_t offset = 0, stride = 0;  // of the floats
    template <class Float>
    Float *plane(Float *work, int64_t channel) const {
        return work + offset + channel * stride;
    }
    Target target() const;
};

// The memory of one call.
struct Workspace {
    std::unique_ptr<float[]> floats_memory;
    std::unique_ptr<uint8_t[]> bytes_memory;
    float *floats = nullptr;
    uint8_t *bytes = nullptr;
    std::vector<float> scratch;
};

// What a block of examples is computed from and to.
struct Block {
    int64_t first, count;  // examples
    const void *const *inputs;
    float *const *outputs;
};

struct Step {
    Step(std::string name, std::string how) : name(std::move(name)), how(std::move(how)) {}

    std::string name, how;  // of the layer, and sparse, int8, dense or float
    double density = 1;
    int64_t parts = 1;  // independent parts, which threads may share
    double cost = 0;  // about the number of vector operations
    std::vector<double> costs;  // of the parts, if they differ: the sum of all before each part, one entry more at the end
    std::function<void(Workspace &, const Block &, int64_t first, int64_t last)> run;
};

class Plan {
   public:
    // `measure`: layers that are nearly dense are tried with the BLAS.
    // `max_numbers`: it may take so many numbers of four bytes.
    Plan(const File &file, const swamp_sizes &sizes, int64_t num_stacked, bool measure, double max_numbers);
    Plan(const Plan &) = delete;

    int64_t num_stacked;  // examples in a block
    double max_numbers;
    std::vector<Image> images;
    std::vector<Step> steps;
    std::vector<Size> outputs;
    int64_t num_floats = 0, num_bytes = 0;

    std::unique_ptr<Workspace> workspace() const;

   private:
    std::vector<std::shared_ptr<void>> kept;  // what steps point to
    friend class Builder;
};

}  // namespace swamp
