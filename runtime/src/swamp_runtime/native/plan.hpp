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
// of zeros above, below and between them. An image in bands is divided into bands of rows, each in the workspace of another thread; beyond
// the edges of a band are copies of the rows of its neighbours.
struct Image {
    Size size;
    int64_t bands = 1;
    bool has_floats = false;
    int64_t reach = 0;  // how many rows beyond the edges are read of the floats
    struct Bytes {
        float scale;
        int32_t zero;
        int64_t reach;  // how many rows beyond the edges are read
        std::vector<int64_t> shifts;  // horizontal distances at which the numbers are read
        Form form;
        std::vector<int64_t> copies;
        std::vector<const uint16_t *> inside;
    };
    std::vector<Bytes> bytes;  // its int8 forms

    int64_t height() const { return size.height / bands; }  // of what one workspace holds

    int64_t pitch = 0, gap = 0, rows = 0, num_positions = 0;  // set by the layout
    int64_t offset = 0, stride = 0;  // of the floats
    template <class Float>
    Float *plane(Float *work, int64_t channel) const {
        return work + offset + channel * stride;
    }
    Target target() const;
};

// The memory of one call. With bands there is one for each; the first also has all images that are not in bands.
struct Workspace {
    std::unique_ptr<float[]> floats_memory;
    std::unique_ptr<uint8_t[]> bytes_memory;
    float *floats = nullptr;
    uint8_t *bytes = nullptr;
    std::vector<float> scratch;
    std::unique_ptr<uint8_t[]> edges_memory;
    uint8_t *edges[2] = {};  // what the neighbours of a band read of it, in turns
    Workspace *first = this;
    std::vector<std::unique_ptr<Workspace>> others;  // of the first
    Workspace &of_band(int64_t band) { return band ? *first->others[size_t(band) - 1] : *first; }
};

// What a block of examples is computed from and to.
struct Block {
    int64_t first, count;  // examples
    const void *const *inputs;
    float *const *outputs;
    int64_t band;  // the one that is computed, of images in bands
};

class Edges;

struct Step {
    Step(std::string name, std::string how) : name(std::move(name)), how(std::move(how)) {}

    std::string name, how;  // of the layer, and sparse, int8, dense or float
    double density = 1;
    int64_t parts = 1;  // independent parts, which threads may share
    double cost = 0;  // about the number of vector operations
    std::vector<double> costs;  // of the parts, if they differ: the sum of all before each part, one entry more at the end
    std::function<void(Workspace &, const Block &, int64_t first, int64_t last)> run;
    bool banded = false;  // computed band by band, each in its workspace
    std::shared_ptr<const Edges> edges;  // that bands exchange afterwards
};

// The network cannot be computed in bands.
struct NoBands : std::exception {};

class Plan {
   public:
    // `measure`: layers that are nearly dense are tried with the BLAS.
    // `max_numbers`: it may take so many numbers of four bytes.
    // `num_bands`: images are divided into so many bands as far as possible; NoBands if none can be.
    Plan(const File &file, const swamp_sizes &sizes, int64_t num_stacked, int64_t num_bands, bool measure, double max_numbers);
    Plan(const Plan &) = delete;

    int64_t num_stacked, num_bands;  // examples in a block, bands of an image
    double max_numbers;
    std::vector<Image> images;
    std::vector<Step> steps;
    std::vector<Size> outputs;
    int64_t num_floats = 0, num_bytes = 0, num_edge_bytes = 0;

    std::unique_ptr<Workspace> workspace() const;

   private:
    std::unique_ptr<Workspace> one_workspace() const;
    std::vector<std::shared_ptr<void>> kept;  // what steps point to
    friend class Builder;
};

}  // namespace swamp
